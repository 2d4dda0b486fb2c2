"""The crew over all GPUs of a node, with workers that misbehave: what goes wrong on one GPU costs that GPU alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from pytest_gpuready.agent import __main__ as agent_main
from pytest_gpuready.agent.lease import SHARING
from pytest_gpuready.agent.stress import crew as crew_module
from pytest_gpuready.agent.stress import guard, hand
from pytest_gpuready.agent.stress.crew import Crew, stress
from pytest_gpuready.model import stress_doc
from pytest_gpuready.model.agent_doc import Envelope
from pytest_gpuready.model.agent_words import PROGRESS, TIED
from pytest_gpuready.model.stress_doc import ENGINE, Phase, Plan, StressDoc, StressGpu
from pytest_gpuready.transport.agent_zip import agent_zip

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "src"
WORKER = (sys.executable, "-S", str(HERE / "fake_worker.py"))

# The watch with another kernel log: a file.
WATCH = """
import os, pathlib, sys
from pytest_gpuready.agent.stress import watch
os._exit(watch.main(sys.argv[1:], pathlib.Path({log!r})))
"""

# The agent with other workers.
AGENT = f"""
import os, sys
from pytest_gpuready.agent import __main__ as agent
from pytest_gpuready.agent.stress import crew, guard, hand, telling
if "WATCH" in os.environ:
    guard.WATCH = (sys.executable, "-c", os.environ["WATCH"])
hand.STOP_S = 0.2
telling.AT_LEAST_S, telling.EVERY_S = 0.0, 0.02
crew.WORKER = {WORKER!r}
crew.Crew.__init__.__kwdefaults__["worker"] = crew.WORKER
sys.exit(agent.main(sys.argv[1:]))
"""

GEMM = Phase(kind="gemm", format="bf16", seconds=0.1)
HBM = Phase(kind="hbm", kernel="copy")
LONG = Phase(kind="hbm", kernel="read", repeats=9)

Node = Callable[..., Path]


@pytest.fixture
def node(tmp_path: Path, driver: Path, stand_in: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node of so many GPUs under the stand-in of NVML. Returns the file that holds its values."""

    def make(count: int, **values: str) -> Path:
        links = ("nvlink", "p2p", "field.16")  # the stand-in reads all of its file for every call
        healthy = {key: value for key, value in stand_in.healthy(1).items() if not any(part in key for part in links)}
        healthy |= {"count": str(count)} | {f"gpu.{gpu}.busid": bdf(gpu) for gpu in range(count)}
        path = stand_in.write(tmp_path / "node.nvml", healthy | values)
        log = tmp_path / "kmsg"
        log.touch()
        for name, value in (
            ("FAKE_NVML", path),
            ("LD_LIBRARY_PATH", driver),
            ("PYTHONPATH", SOURCES),
            ("WATCH", WATCH.format(log=str(log))),
        ):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(guard, "WATCH", (sys.executable, "-c", os.environ["WATCH"]))
        return path

    return make


def bdf(gpu: int) -> str:
    """Where `node` puts a GPU."""
    return f"0000:{gpu + 1:02x}:00.0"


def gpus(document: StressDoc) -> dict[str, StressGpu]:
    return {gpu.bdf: gpu for gpu in document.gpus}


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    assert what()


def alive(pid: int) -> bool:
    """True where that process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# Worker's behaviour -> what the document says, whether phase 0 has a result.
TROUBLE = {
    "die@1": ("found the end of the worker in the middle of the phase: signal SIGKILL", True),
    "exit": ("found the end of the worker in the middle of the phase: exit code 3", False),
    "die@start": ("found the end of the worker before it was ready: signal SIGKILL", False),
    "garbage": ("expected lines of JSON, found 'Segmentation fault", False),
    "half@1": ("found its end (exit code 0) in the middle of one", True),
    "flood": ("expected lines of at most 1048576 bytes, found a longer one", False),
    "words": ("found a flood of them", False),
    "claims": ("expected GPU 0000:", False),
    "leave": ("in the middle of the phase: exit code 0", False),
    "close@1": ("found that it closed its output", True),
    "problem": ("no memory on this GPU", False),
    "lie": ("phase 0 (gemm): bf16: expected every element of ", False),
}


def test_each_trouble_costs_its_own_gpu_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that die, lie or drown us beside healthy ones: one line each, and the healthy ones finish."""
    node(len(TROUBLE) + 2)
    at_of = {word: bdf(at) for at, word in enumerate(TROUBLE)}
    good = [bdf(len(TROUBLE)), bdf(len(TROUBLE) + 1)]
    failing = {good[1]: "failed@1"}
    monkeypatch.setenv("BEHAVE", json.dumps({at: word for word, at in at_of.items()} | failing))
    monkeypatch.setattr(hand, "DRAIN_S", 0.1)
    plan = Plan(phases=[GEMM, HBM], lead_s=0.1, sample_s=1.0)
    document = Crew(plan, (), worker=WORKER).run()
    found = gpus(document)
    assert not document.problem
    for word, (says, has_first) in TROUBLE.items():
        gpu = found[at_of[word]]
        assert says in gpu.problem, word
        assert "\n" not in gpu.problem
        assert (gpu.phases[0].gemm is not None, gpu.phases[0].problem == "") == (has_first, has_first), word
        assert gpu.phases[1].problem == gpu.problem, word
    assert found[at_of["exit"]].stderr == "cudaErrorIllegalAddress\n"
    for at in good:
        assert not found[at].problem
        assert found[at].phases[0].gemm is not None
    assert found[good[0]].phases[1].hbm is not None
    assert [phase.problem for phase in found[good[1]].phases] == ["", "CUDA_ERROR_OUT_OF_MEMORY"]
    assert [window.phase for window in document.windows] == [0, 1]


def test_what_the_watch_sees_decides(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MIG, a stranger and heat refuse a GPU before anything starts; heat, an Xid and a lost GPU stop it meanwhile."""
    strange = {"gpu.1.mig": "1", "gpu.2.process.0": "4711:1024", "gpu.3.temperature": "86"}
    values = node(7, **strange)
    monkeypatch.setenv("BEHAVE", "{}")
    monkeypatch.setenv("UNTIL", str(tmp_path / "enough"))
    cool = Phase(kind="cool", below_c=40.0, seconds=20.0)
    warm = Phase(kind="cool", below_c=20.0, seconds=0.05)
    crew = Crew(Plan(phases=[cool, GEMM, LONG, warm], sample_s=0.05, lead_s=0.05), (), worker=WORKER)
    windows = crew._windows

    def spoil() -> None:
        until(lambda: len(windows) == 2 and (crew._guard.counted.keys() >= {(bdf(0), crew._guard._marks)}))
        with values.open("a", encoding="utf-8") as more:
            more.write("gpu.4.xid=79\ngpu.5.temperature=86\ngpu.6.lost=1\ngpu.0.eccerrors.0.0=7\n")
        until(lambda: all(crew._members[bdf(at)]._stopped for at in (4, 5, 6)))
        until(lambda: crew._members[bdf(0)]._now.kept.taken)
        (tmp_path / "enough").touch()

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    document = crew.run()
    spoiler.join()
    found = [gpus(document)[bdf(at)] for at in range(7)]
    assert found[1].refused == "expected a whole GPU, found MIG enabled; disable it before the load"
    assert found[2].refused.startswith("expected nobody else on the GPU, found process 4711 (")
    assert found[3].refused.startswith("expected less than 86 °C (3 below slowdown) before the load, found 86 °C")
    for gpu in found[1:4]:
        assert gpu.ready is None
        assert {phase.problem for phase in gpu.phases} == {gpu.refused}
    stops = ("Xid 79", "86 °C, 3 below slowdown at 89 °C", "the GPU is lost (NVML: GpuIsLost)")
    for gpu, why in zip(found[4:], stops, strict=True):
        assert gpu.stopped is not None
        assert (gpu.stopped.why, gpu.stopped.phase) == (why, 2)
        assert [phase.problem for phase in gpu.phases[:2]] == ["", ""]
        assert gpu.phases[2].hbm is not None
        assert gpu.phases[2].hbm.cut
        assert all(why in phase.problem for phase in gpu.phases[2:])
        assert not gpu.problem
    assert [(xid.bdf, xid.xid) for xid in document.xids] == [(bdf(4), 79)]
    healthy = found[0]
    assert [phase.problem for phase in healthy.phases] == ["", "", "", ""]
    assert healthy.phases[0].cool is not None
    assert healthy.phases[0].cool.reached
    assert healthy.phases[3].cool is not None
    assert not healthy.phases[3].cool.reached
    assert document.windows[3].note == f"not down to 20 °C: {bdf(0)}"
    assert document.windows[1].end - document.windows[1].begin == pytest.approx(GEMM.seconds, abs=0.002)
    seen, window = healthy.phases[2].seen, document.windows[2]
    assert seen is not None
    assert seen.spans["power_w"].median == 74.54
    assert seen.reasons == {"0x1": seen.taken}
    assert all(t is not None and window.begin <= t <= window.end for t in seen.samples["t"])
    assert healthy.after["ecc_corrected_volatile"] - healthy.before["ecc_corrected_volatile"] == 7
    assert seen.counted == {"ecc_corrected_volatile": 7}


def test_a_phase_ends_when_all_know_enough(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """All GPUs stay under load until the last of them knows; one that dies is not waited for, one that is never sure
    keeps all of them for the whole time."""
    node(3)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(1): "die@1", bdf(2): "unsure@2"}))
    short = Phase(kind="gemm", format="bf16", seconds=30.0, within=0.01, least_s=0.1)
    whole = Phase(kind="gemm", format="bf16", seconds=0.4, within=0.01, least_s=0.1)
    copies = Phase(kind="hbm", kernel="copy", seconds=0.4, within=0.01, least_s=0.1)
    document = Crew(Plan(phases=[short, short, whole, copies], lead_s=0.05, sample_s=1.0), (), worker=WORKER).run()
    found = gpus(document)
    for at in (0, 2):
        one = found[bdf(at)]
        assert [phase.problem for phase in one.phases] == [""] * 4
        assert [phase.result and phase.result.enough for phase in one.phases[:2]] == [True, True]
        assert not any(phase.result is None or phase.result.cut for phase in one.phases)
    assert found[bdf(1)].phases[0].gemm is not None
    assert "in the middle of the phase: signal SIGKILL" in found[bdf(1)].problem
    lasted = [window.end - window.begin for window in document.windows]
    assert all(0.099 <= one < 20 for one in lasted[:2])
    assert lasted[2:] == [pytest.approx(0.4, abs=0.002)] * 2
    loads = [phase.result.seconds for one in (found[bdf(0)], found[bdf(2)]) for phase in one.phases if phase.result]
    assert min(loads[0], loads[4]) >= lasted[0] - 0.002


def test_who_begins_late_loses_that_phase_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is that of those in step; the worker goes on with its next phase."""
    node(3)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(1): "late@1"}))
    load = Phase(kind="gemm", format="bf16", seconds=0.1)
    document = Crew(Plan(phases=[load, load, load], lead_s=0.05, sample_s=0.1), (), worker=WORKER).run()
    found = gpus(document)
    assert [phase.problem for phase in found[bdf(0)].phases] == ["", "", ""]
    says = "expected the load to begin with the others, found it 1.2 s late"
    assert [phase.problem for phase in found[bdf(1)].phases] == ["", says, says]
    assert found[bdf(1)].phases[1].result is None
    assert not found[bdf(1)].problem
    window = document.windows[1]
    assert window.note == f"more than 1 s behind the first, not in step: {bdf(1)}"
    assert window.end - window.begin == pytest.approx(0.1, abs=0.002)


def test_a_result_that_proves_the_gpu_wrong_is_never_lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other numbers do not fit: whoever judges may doubt them, the error stands."""
    node(1)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(0): "wrong"}))
    (gpu,) = Crew(Plan(phases=[GEMM], lead_s=0.05), (), worker=WORKER).run().gpus
    assert gpu.phases[0].gemm is not None
    assert (gpu.phases[0].gemm.error_count, gpu.phases[0].gemm.checked) == (1, 64)


# Behaviour at the end -> what the document says of it.
AT_THE_END = {
    "stay": "expected its end within 0.5 s of being told, found none: it hangs",
    "segv": "expected its end in order when it was told to, found: signal SIGSEGV",
}


def test_an_end_out_of_order_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """All results are there, with the number of this engine; the worker hangs or breaks when it is told to end."""
    node(3)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(at): word for at, word in enumerate(AT_THE_END)}))
    monkeypatch.setattr(hand, "STOP_S", 0.5)
    document = Crew(Plan(phases=[GEMM], lead_s=0.05, sample_s=1.0), (), worker=WORKER).run()
    assert document.engine == ENGINE
    for gpu, says in zip(document.gpus, [*AT_THE_END.values(), ""], strict=True):
        assert gpu.problem == says
        assert gpu.phases[0].gemm is not None
        assert not gpu.phases[0].problem


def test_a_worker_that_sigkill_does_not_end_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs, and then the kernel holds it: the document says both."""
    node(1)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(0): "stay"}))
    monkeypatch.setattr(hand, "STOP_S", 0.2)
    killed = hand.children.gone
    monkeypatch.setattr(hand.children, "gone", lambda process, patience_s=1.0: killed(process, patience_s) and False)
    (gpu,) = Crew(Plan(phases=[GEMM], lead_s=0.05, sample_s=1.0), (), worker=WORKER).run().gpus
    assert gpu.problem.startswith("expected its end within 0.2 s of being told, found none: it hangs; process ")
    assert gpu.problem.endswith(" did not end on SIGKILL")


def test_what_a_worker_started_in_a_session_of_its_own_ends_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes a child of the crew when the worker is gone; children that were there before are left alone."""
    node(1)
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(0): "orphan"}))
    before = subprocess.Popen(["sleep", "62"])

    def sleeping(seconds: str) -> list[int]:
        words = f"sleep\0{seconds}\0".encode()
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == words]

    def read(path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError:
            return b""

    try:
        Crew(Plan(phases=[GEMM], lead_s=0.05, sample_s=1.0), (), worker=WORKER).run()
        assert sleeping("61") == []
        assert before.poll() is None
    finally:
        before.kill()
        before.wait()


@pytest.mark.parametrize(
    ("signum", "says"),
    [
        (
            signal.SIGKILL,
            "expected the watch over the GPUs to go on until its end, found that it ended: signal SIGKILL",
        ),
        (signal.SIGSTOP, "expected the watch over the GPUs to go on, found silence for 2 s: it hangs, or was stopped"),
    ],
)
def test_without_its_watch_the_load_ends_and_no_gpu_is_to_blame(
    node: Node, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals, says: str
) -> None:
    """Killed or stopped: what was to come says that nobody watched, and the watch is gone afterwards."""
    node(2)
    monkeypatch.setattr(guard, "SILENT_S", 2.0)
    crew = Crew(Plan(phases=[GEMM, LONG, GEMM], lead_s=0.05, sample_s=0.05), (), worker=WORKER)
    monkeypatch.setenv("UNTIL", "/nowhere")
    assert crew._guard.process is not None
    pid = crew._guard.process.pid

    def spoil() -> None:
        until(lambda: len(crew._windows) == 1 and crew._at == 1)
        os.kill(pid, signum)

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    document = crew.run()
    spoiler.join()
    assert document.watch_problem == document.log_problem == says
    for gpu in document.gpus:
        assert gpu.stopped is not None
        assert (gpu.stopped.why, gpu.stopped.gpu, gpu.stopped.phase) == ("nobody watched any more", False, 1)
        assert [phase.problem for phase in gpu.phases] == ["", *["nobody watched any more"] * 2]
        assert not gpu.problem
    assert not alive(pid)


def test_a_gpu_whose_temperature_is_lost_and_an_xid_of_an_unknown_gpu_end_the_load(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both through NVML: first one GPU alone is stopped, then the others; the Xid stands without an address."""
    values = node(3)
    unnamed = (
        "import itertools\nwatch.NvmlEvents.run.__globals__['_address'] = lambda _, n=itertools.count(): next(n)\n"
    )
    script = os.environ["WATCH"].replace("os._exit", f"{unnamed}os._exit")
    monkeypatch.setattr(guard, "WATCH", (sys.executable, "-c", script))
    monkeypatch.setattr(guard, "BLIND_S", 0.3)
    monkeypatch.setenv("UNTIL", "/nowhere")
    crew = Crew(Plan(phases=[LONG], lead_s=0.05, sample_s=0.05), (), worker=WORKER)

    def spoil(line: str) -> None:
        with values.open("a", encoding="utf-8") as more:
            more.write(line)

    def spoil_both() -> None:
        until(lambda: (now := crew._members[bdf(0)]._now if crew._at == 0 else None) and now.kept.taken > 2)
        spoil("gpu.0.error.temperature=999\n")
        until(lambda: crew._members[bdf(0)]._stopped)
        spoil("gpu.2.xid=79\n")

    spoiler = threading.Thread(target=spoil_both)
    spoiler.start()
    document = crew.run()
    spoiler.join()
    stops = [gpu.stopped for gpu in document.gpus]
    unknown = "Xid 79 of a GPU that the driver does not name"
    assert [(one.why, one.gpu) for one in stops if one] == [(guard.BLIND, True), (unknown, True), (unknown, True)]
    assert [(xid.bdf, xid.xid) for xid in document.xids] == [("", 79)]
    seen = document.gpus[0].phases[0].seen
    assert seen is not None
    assert seen.read["temperature_c"] < seen.read["reasons"] == seen.taken
    assert seen.gap_s["temperature_c"] > seen.gap_s["reasons"]
    assert seen.near_slowdown_s == 0.0


def test_a_latency_comes_through(node: Node) -> None:
    """What a worker says of a phase of kind "latency" stands in the document as its result, on every GPU."""
    node(2)
    document = Crew(Plan(phases=[Phase(kind="latency", limit_s=20.0)], lead_s=0.05), (), worker=WORKER).run()
    for gpu in document.gpus:
        found = gpu.phases[0].latency
        assert found is not None
        assert (found.host_ns, found.device_ns, found.cut) == ([1190.0] * 5, [350.0] * 5, False)
        assert gpu.phases[0].result is found


# --- the end of it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def start(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the agent with a long phase; leaves none behind."""
    started: list[subprocess.Popen[bytes]] = []

    def run(behave: dict[str, str], **environment: str) -> subprocess.Popen[bytes]:
        node(2)
        plan = msgspec.json.encode(Plan(phases=[Phase(kind="gemm", format="bf16", seconds=60.0)], lead_s=0.05)).decode()
        process = subprocess.Popen(
            [sys.executable, "-c", AGENT, "stress", plan],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "BEHAVE": json.dumps(behave), **environment},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def children(of: int) -> list[int]:
    """Processes whose parent that one is."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == of:
            found.append(int(stat.parent.name))
    return found


def loaded(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait until a phase has been announced, with what the GPUs show; its children then."""
    assert process.stderr is not None
    said: dict[str, object] = {}
    while not {"phase", "power_w"} <= said.keys():
        line = process.stderr.readline().decode()
        assert line.startswith(PROGRESS)
        said = json.loads(line.removeprefix(PROGRESS))
    assert (said["phase"], said["temperature_c"], said["power_w"]) == ("gemm bf16", [32, 32], [75, 75])
    return children(process.pid)


def test_what_is_known_is_printed_when_the_controller_dies(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """The end of a tied agent's stdin: workers report what they have, a silent one is killed, the document comes."""
    process = start({bdf(1): "stay"}, **{TIED: "1"})
    workers = loaded(process)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    out, _ = process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGKILL)
    envelope = msgspec.json.decode(out, type=Envelope)
    document = msgspec.json.decode(envelope.data, type=StressDoc)
    assert (envelope.probe, document.ended_early) == ("stress", True)
    first, second = document.gpus
    assert first.phases[0].gemm is not None
    assert first.phases[0].gemm.cut
    assert first.phases[0].problem == "told to end"
    assert "of being told, found none: it hangs" in second.problem
    assert not any(alive(pid) for pid in workers)


def test_it_runs_from_the_file_that_is_sent_to_a_node(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python without any package: the crew drives workers, and a real worker starts and says what it lacks. What
    comes is what the real msgspec reads; the file need be on no path of the children."""
    node(2)
    path = tmp_path / "agent.zip"
    path.write_bytes(agent_zip().data)
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(1): "garbage"}))
    plan = msgspec.json.encode(Plan(phases=[GEMM, HBM], lead_s=0.05, sample_s=0.02)).decode()

    def run(script: str) -> StressDoc:
        words = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{script}", "stress", plan]
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True)
        envelope = msgspec.json.decode(done.stdout, type=Envelope)
        return msgspec.json.decode(envelope.data, type=StressDoc)

    healthy, lying = run(AGENT).gpus
    assert [phase.problem for phase in healthy.phases] == ["", ""]
    assert healthy.phases[0].gemm is not None
    assert healthy.phases[0].gemm.sustained_tflops == 700.0
    assert healthy.phases[0].seen is not None
    assert "expected lines of JSON, found 'Segmentation fault" in lying.problem
    bare = "from pytest_gpuready.agent import __main__ as agent; sys.exit(agent.main(sys.argv[1:]))"
    lacking = run(bare)
    assert lacking.problem.startswith("expected the package cuda-bindings, found: ")
    assert "pip install 'pytest-gpuready[cuda13]'" in lacking.problem
    assert {gpu.problem for gpu in lacking.gpus} == {lacking.problem}


def test_nothing_outlives_a_crew_that_is_killed(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """SIGKILL of the crew: workers and watch are gone, also one that looks neither at its stdin nor at signals."""
    process = start({bdf(1): "hang"})
    pids = loaded(process)
    assert len(pids) == 3
    process.kill()
    until(lambda: not any(alive(pid) for pid in pids))


def test_a_plan_that_is_none_is_a_problem() -> None:
    """Nothing is started for it."""
    assert stress(["{}"]).problem.startswith("expected a plan as JSON, found ")


def test_it_has_the_node_alone() -> None:
    """No other command runs beside it, not even one of its own run."""
    assert "stress" in agent_main.PROBES
    assert "stress" not in SHARING


def test_grace_is_long_enough() -> None:
    """What the crew does when it is told to end fits into what a transport gives it, as both ends know it."""
    module = crew_module
    assert 2 * hand.STOP_S + 2 + 2 * module.COUNTERS_S + module.TOLD_END_S + 2 < stress_doc.STRESS_GRACE_S
    assert agent_main.STRESS_GRACE_S == stress_doc.STRESS_GRACE_S
