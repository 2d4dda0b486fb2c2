"""Probe "around": a tool as the agent's child, with real children, real signals and a stand-in for the driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from pytest_gpuready.agent import __main__ as agent_main
from pytest_gpuready.agent import around as around_module
from pytest_gpuready.agent.around import around
from pytest_gpuready.model import Command
from pytest_gpuready.model.agent_doc import AROUND_GRACE_S, CHILD_GRACE_S, AroundDoc, Envelope
from pytest_gpuready.model.agent_words import PROGRESS, TIED
from pytest_gpuready.parse.agent import LARGEST, around_doc
from pytest_gpuready.transport.local import Local

SOURCES = Path(__file__).parents[2] / "src"

# The agent with shorter waits: NAME=SECONDS words come first.
AGENT = """
import sys
from pytest_gpuready.agent import __main__ as agent, around
argv = sys.argv[1:]
while "=" in argv[0]:
    name, seconds = argv.pop(0).split("=")
    setattr(agent if name == "AROUND_GRACE_S" else around, name, float(seconds))
sys.exit(agent.main(argv))
"""


class Agents:
    """Starts agents, in a group of their own, and leaves none behind."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *words: str,
        gpus: str = "-",
        waits: dict[str, float] | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), **(environment or {})}
        short = [f"{name}={seconds}" for name, seconds in (waits or {}).items()]
        process = subprocess.Popen(
            [sys.executable, "-c", AGENT, *short, "around", gpus, "--", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def __call__(self, *words: str, **other) -> AroundDoc:
        """The document of an agent that nobody disturbs."""
        return document(self.start(*words, **other))

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def document(process: subprocess.Popen[bytes]) -> AroundDoc:
    """What the agent printed in the end."""
    out, _ = process.communicate(timeout=60)
    envelope = msgspec.json.decode(out, type=Envelope)
    assert envelope.probe == "around"
    return msgspec.json.decode(envelope.data, type=AroundDoc)


def wait_for(path: Path) -> str:
    """The text of a file as soon as it has one."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} was never written")


def gone(pid: int) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def agents() -> Iterator[Agents]:
    running = Agents()
    yield running
    running.close()


# --- what it printed --------------------------------------------------------------------------------------------------


def test_streams_exit_code_and_words_are_as_they_were(agents: Agents) -> None:
    """Both streams and the exit code come back, and the child got its words one by one, whatever they hold."""
    words = ["a b", "", "--", "$(touch x)", "é\n'\"", "-r"]
    script = "import sys; print(sys.argv[1:]); print('e', file=sys.stderr); sys.exit(226)"
    doc = agents(sys.executable, "-c", script, *words, environment={"LC_ALL": "C.UTF-8"})
    assert (doc.stdout, doc.stderr, doc.exit_code) == (f"{words}\n", "e\n", 226)
    assert doc.argv == [sys.executable, "-c", script, *words]
    assert (doc.problem, doc.ended_early, doc.cut) == ("", False, False)
    assert doc.seconds > 0


def test_a_signal_is_an_exit_code_as_in_a_shell(agents: Agents) -> None:
    """A child that was killed by somebody has 128 and the signal."""
    assert agents("sh", "-c", "kill -9 $$").exit_code == 137


def test_a_child_that_cannot_be_started_is_a_problem(agents: Agents) -> None:
    """A tool that is not there has no exit code but a reason, and nothing was printed."""
    doc = agents("no-such-tool", "-x")
    assert doc.exit_code is None
    assert (
        doc.problem == "expected to start 'no-such-tool', found No such file or directory; install it or correct PATH"
    )


@pytest.mark.parametrize(
    "arguments",
    [("0000:19:00.0;id", "--", "touch"), ("", "--", "touch"), ("-", "touch", "x"), ("-", "--")],
)
def test_a_malformed_call_starts_nothing(arguments: tuple[str, ...]) -> None:
    """Addresses that are none, or no "--", are refused in the document."""
    doc = around(arguments)
    assert doc.exit_code is None
    assert "expected bus addresses or '-', then '--' and a command" in doc.problem


def test_the_child_does_not_see_what_is_ours(agents: Agents) -> None:
    """The child has our environment but for what the transport and the interpreter need."""
    doc = agents("env", environment={"GPUREADY_X": "1", "PYTHONSAFEPATH": "1", "DCGM_X": "1"})
    names = {line.partition("=")[0] for line in doc.stdout.splitlines()}
    assert {"PATH", "DCGM_X"} <= names
    assert not [name for name in names if name.startswith(("GPUREADY_", "PYTHON"))]


@pytest.mark.parametrize("sign", ["x", "\\0"])
def test_endless_output_is_cut_and_does_not_stop_the_child(agents: Agents, sign: str) -> None:
    """20 MB on each stream are read to the end; what is kept fits into the document that may pass."""
    script = (
        f"import sys; [s.write('{sign}' * 2**20) for _ in range(20) for s in (sys.stdout, sys.stderr)]; sys.exit(3)"
    )
    process = agents.start(sys.executable, "-c", script)
    out, _ = process.communicate(timeout=60)
    assert len(out) < LARGEST
    doc = msgspec.json.decode(msgspec.json.decode(out, type=Envelope).data, type=AroundDoc)
    assert (doc.cut, doc.exit_code) == (True, 3)
    assert len(doc.stdout) > 2**20


def test_who_holds_the_pipe_does_not_hold_the_agent(agents: Agents, tmp_path: Path) -> None:
    """A child that ends and leaves another one with its stdout is at its end."""
    doc = agents("sh", "-c", f"sleep 300 & echo $! > {tmp_path}/left; echo done", waits={"PIPES_S": 0.1})
    assert (doc.stdout, doc.exit_code) == ("done\n", 0)


# --- the end ----------------------------------------------------------------------------------------------------------


def saying(path: Path, on_term: str) -> tuple[str, ...]:
    """A child that does something on SIGTERM; it writes its process id when it is ready."""
    return ("sh", "-c", f"trap '{on_term}' TERM; echo $$ > {path}; while :; do sleep 0.05; done")


def counting(path: Path) -> tuple[str, ...]:
    """A child that counts for a while how often it is told to end, says it, and ends with 203."""
    script = (
        "import pathlib, signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        f"pathlib.Path({str(path)!r}).write_text('ready')\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.4)\n"
        "print('told', len(told))\n"
        "sys.exit(203)\n"
    )
    return (sys.executable, "-c", script)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_tells_the_child_once(agents: Agents, tmp_path: Path, signum: signal.Signals) -> None:
    """The child gets one SIGTERM however often the agent is told; what it says then is in the document."""
    process = agents.start(*counting(tmp_path / "ready"))
    wait_for(tmp_path / "ready")
    process.send_signal(signum)
    time.sleep(0.1)
    process.send_signal(signum)
    doc = document(process)
    assert (doc.stdout, doc.exit_code, doc.ended_early) == ("told 1\n", 203, True)
    assert process.returncode == 0


def test_a_child_that_ignores_it_is_killed(agents: Agents, tmp_path: Path) -> None:
    """When the grace is over the child is killed, and the document still holds what it printed."""
    process = agents.start(*saying(tmp_path / "pid", "echo no"), waits={"CHILD_GRACE_S": 0.3})
    pid = int(wait_for(tmp_path / "pid"))
    process.terminate()
    doc = document(process)
    assert (doc.exit_code, doc.ended_early, doc.stdout) == (137, True, "no\n")
    assert gone(pid)


def test_told_before_the_child_was_started_it_starts_none(
    agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType
) -> None:
    """An agent that still waits for its watch when it is told to end does not begin."""
    waits = {"START_S": 60, "TOLD_END_S": 0.2}
    hanging = nvml(tmp_path, driver, stand_in, hang="1")
    process = agents.start("touch", f"{tmp_path}/ran", gpus=stand_in.bdf(0), waits=waits, environment=hanging)
    assert process.stdout is not None
    wait_for(Path(f"/proc/{process.pid}/task/{process.pid}/children"))  # the watch runs, so the handlers stand
    process.terminate()
    doc = document(process)
    assert (doc.problem, doc.exit_code, doc.ended_early) == ("told to end before the command was started", None, True)
    assert not (tmp_path / "ran").exists()


def test_the_death_of_the_controller_ends_the_child_gently(agents: Agents, tmp_path: Path) -> None:
    """The end of stdin tells the child; it ends by itself."""
    child = saying(tmp_path / "pid", f"echo told > {tmp_path}/told; exit 0")
    process = agents.start(*child, environment={TIED: "1"})
    pid = int(wait_for(tmp_path / "pid"))
    assert process.stdin is not None
    process.stdin.close()
    assert wait_for(tmp_path / "told") == "told\n"
    assert gone(pid)
    assert process.wait(30) == 0


def test_the_death_of_the_controller_ends_the_child_in_any_case(agents: Agents, tmp_path: Path) -> None:
    """A child that ignores that its controller died goes with the whole group when the grace is over."""
    child = saying(tmp_path / "pid", f"echo told > {tmp_path}/told")
    process = agents.start(*child, environment={TIED: "1"}, waits={"AROUND_GRACE_S": 0.5})
    pid = int(wait_for(tmp_path / "pid"))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == -signal.SIGKILL
    assert (tmp_path / "told").exists()
    assert gone(pid)


def test_there_is_time_for_all_of_it_in_the_grace() -> None:
    """Grace of the child, SIGKILL, pipes and the watch together take less than the transport gives."""
    module = around_module
    assert CHILD_GRACE_S + module.KILL_S + module.PIPES_S + module.TOLD_END_S + 1 < AROUND_GRACE_S
    assert agent_main.AROUND_GRACE_S == AROUND_GRACE_S


def test_a_transport_that_is_stopped_still_gets_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport tells the agent and the agent its child, once; the document of the grace is one of an early end."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    argv = ("python", "-m", "pytest_gpuready.agent", "around", "-", "--", *counting(tmp_path / "ready"))
    local = Local()
    stopping = threading.Thread(target=lambda: (wait_for(tmp_path / "ready"), local.stop()))
    stopping.start()
    result = local.run(Command(node="node01", argv=argv, timeout_s=60, grace_s=AROUND_GRACE_S))
    stopping.join(60)
    doc = around_doc(result)
    assert (doc.stdout, doc.exit_code, doc.ended_early) == ("told 1\n", 203, True)


# --- the watch --------------------------------------------------------------------------------------------------------


def nvml(tmp_path: Path, driver: Path, stand_in: ModuleType, **values: str) -> dict[str, str]:
    """The environment of an agent on a node with two GPUs."""
    node = stand_in.healthy(2) | {f"gpu.{i}.busid": stand_in.bdf(i) for i in range(2)} | values
    return {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML": str(stand_in.write(tmp_path / "node.nvml", node))}


def test_every_gpu_is_watched(agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType) -> None:
    """Counters of before and after, samples and the phase of the tool for each GPU; one kernel log for all."""
    gpus = f"{stand_in.bdf(0)},{stand_in.bdf(1)}"
    doc = agents("sleep", "0.3", gpus=gpus, environment=nvml(tmp_path, driver, stand_in))
    assert doc.watch_problem == ""
    assert list(doc.watch) == gpus.split(",")
    for watch in doc.watch.values():
        assert watch.before["ecc_uncorrected_volatile"] == watch.after["ecc_uncorrected_volatile"] == 0
        assert watch.samples["power_w"][0] == 74.54
        [(name, start, end)] = watch.phases
        assert name == "tool"
        assert end - start >= 0.3
        assert watch.log == []


def test_a_gpu_that_nvml_does_not_know_is_absent(
    agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType
) -> None:
    """Of two GPUs one is watched; why the other one is not stands beside it."""
    doc = agents("true", gpus=f"{stand_in.bdf(1)},0000:ff:00.0", environment=nvml(tmp_path, driver, stand_in))
    assert list(doc.watch) == [stand_in.bdf(1)]
    assert doc.watch_problem == "NVML: NotFound (0000:ff:00.0)"


def test_without_nvml_the_child_runs_all_the_same(agents: Agents) -> None:
    """No NVML library: the output is there, no GPU is, and the reason stands in the document."""
    doc = agents("echo", "x", gpus="0000:19:00.0,0000:29:00.0")
    assert (doc.stdout, doc.exit_code, doc.watch) == ("x\n", 0, {})
    assert doc.watch_problem == "NVML: LibraryNotFound (0000:19:00.0, 0000:29:00.0)"


def test_nvml_that_hangs_costs_only_the_watch(
    agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType
) -> None:
    """NVML never comes back: the child was started, its output is there, and the agent ends."""
    waits = {"START_S": 0.3, "END_S": 1.0}
    hanging = nvml(tmp_path, driver, stand_in, hang="1")
    doc = agents("echo", "x", gpus=stand_in.bdf(0), waits=waits, environment=hanging)
    assert (doc.stdout, doc.exit_code, doc.watch) == ("x\n", 0, {})
    assert "NVML" in doc.watch_problem


def test_a_watch_that_was_killed_costs_only_itself(
    agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType
) -> None:
    """Somebody kills the watch: the child goes on, and the document says what is missing."""
    script = (
        f"for p in $(cat /proc/$PPID/task/$PPID/children); do [ $p = $$ ] || kill -9 $p; done; echo x > {tmp_path}/x"
    )
    doc = agents("sh", "-c", script, gpus=stand_in.bdf(0), environment=nvml(tmp_path, driver, stand_in))
    assert (doc.exit_code, doc.watch) == (0, {})
    assert doc.watch_problem == doc.log_problem == "expected what the watch saw, found its end with code -9"


def test_progress_is_said_while_the_child_runs(
    agents: Agents, tmp_path: Path, driver: Path, stand_in: ModuleType
) -> None:
    """Lines on stderr tell seconds since the start and lowest and highest readings, where they are known."""
    environment = nvml(tmp_path, driver, stand_in, **{"gpu.1.power": "698400", "gpu.1.temperature": "66"})
    script = f"until [ -e {tmp_path}/enough ]; do sleep 0.05; done"
    gpus = f"{stand_in.bdf(0)},{stand_in.bdf(1)}"
    process = agents.start("sh", "-c", script, gpus=gpus, waits={"PROGRESS_S": 0.1}, environment=environment)
    assert process.stderr is not None
    said: dict[str, object] = {}
    seconds = []
    while "power_w" not in said:
        line = process.stderr.readline().decode()
        assert line.startswith(PROGRESS)
        said = json.loads(line.removeprefix(PROGRESS))
        seconds.append(said["s"])
    (tmp_path / "enough").touch()
    assert (said["power_w"], said["temperature_c"]) == ([75, 698], [32, 66])
    assert seconds == sorted(seconds)
    assert document(process).exit_code == 0
