"""The crew over all ranks of a node, with ranks that misbehave: the run ends, says for whom, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from pytest_gpuready.agent import __main__ as agent_main
from pytest_gpuready.agent.collectives import crew as crew_module
from pytest_gpuready.agent.collectives import leftovers
from pytest_gpuready.agent.collectives.crew import Crew, collectives
from pytest_gpuready.agent.stress import guard
from pytest_gpuready.model import collectives_doc
from pytest_gpuready.model.agent_doc import Envelope
from pytest_gpuready.model.collectives_doc import CollectivesDoc, Plan
from pytest_gpuready.transport.agent_zip import agent_zip

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "src"
RANK = (sys.executable, "-S", str(HERE / "fake_rank.py"))

# The watch with another kernel log: a file.
WATCH = """
import os, pathlib, sys
from pytest_gpuready.agent.stress import watch
os._exit(watch.main(sys.argv[1:], pathlib.Path({log!r})))
"""

# The agent with other ranks.
AGENT = f"""
import os, sys
from pytest_gpuready.agent import __main__ as agent
from pytest_gpuready.agent.collectives import crew
from pytest_gpuready.agent.stress import guard
guard.WATCH = (sys.executable, "-c", os.environ["WATCH"])
crew.Crew.__init__.__kwdefaults__["rank"] = {RANK!r}
sys.exit(agent.main(sys.argv[1:]))
"""

MIB = 2**20
PLAN = Plan(
    ops=["all_reduce", "alltoall"], sizes_bytes=[1024, MIB, 2 * MIB], iterations=4, small_iterations=8, size_s=60
)

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
            ("TMPDIR", tmp_path / "tmp"),
        ):
            monkeypatch.setenv(name, str(value))
        (tmp_path / "tmp").mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        monkeypatch.setattr(guard, "WATCH", (sys.executable, "-c", os.environ["WATCH"]))
        return path

    return make


def bdf(gpu: int) -> str:
    """Where `node` puts a GPU."""
    return f"0000:{gpu + 1:02x}:00.0"


def ran(document: CollectivesDoc) -> list[tuple[str, int]]:
    return [(row.op, row.asked_bytes) for row in document.rows]


def behave(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """What each rank does instead of the right thing."""
    monkeypatch.setenv("BEHAVE", json.dumps({bdf(at): word for at, word in enumerate(words)}))


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def clean(document: CollectivesDoc, tmp_path: Path) -> bool:
    """True where no process of the run lives and no file of it is left."""
    return not any(alive(rank.pid) for rank in document.ranks if rank.pid) and not list((tmp_path / "tmp").iterdir())


def test_a_sweep_of_healthy_ranks(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every size of every collective is a row by the formulas of nccl-tests; its algorithm comes from NCCL's log, which
    stands in the document; the ranks got only the variables that the plan hands over."""
    node(2)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("ENVIRONMENT", str(tmp_path / "environment"))
    plan = msgspec.structs.replace(PLAN, environment={"NCCL_NVLS_ENABLE": "0"})
    document = Crew(plan, (), rank=RANK).run()
    assert document.problem == ""
    assert ran(document) == [(op, size) for op in plan.ops for size in plan.sizes_bytes]
    assert [(rank.rank, rank.bdf, rank.nccl_version, rank.problem, rank.note) for rank in document.ranks] == [
        (0, bdf(0), "2.32.3", "", ""),
        (1, bdf(1), "2.32.3", "", ""),
    ]
    row = document.rows[2]
    assert (row.size_bytes, row.count, row.redop, row.iterations) == (2 * MIB, MIB // 2, "sum", 4)
    assert row.out_of_place.time_us == pytest.approx(2010.0)  # mean of 2000 and 2020
    assert (row.out_of_place.slowest_us, row.slowest_rank, row.out_of_place.wrong) == (2020.0, 1, 0)
    assert row.out_of_place.busbw_gb_per_s == row.out_of_place.algbw_gb_per_s == pytest.approx(2 * MIB / 2010.0 / 1e3)
    assert (row.min_us, row.p50_us, row.max_us) == (2020.0, 2021.0, 2023.0)
    assert row.algorithms == ["RING SIMPLE"]
    assert document.rows[0].iterations == 8
    assert document.rows[5].in_place is None
    assert document.rows[5].algorithms == []
    assert document.rows[5].out_of_place.busbw_gb_per_s == pytest.approx(2 * MIB / 2010.0 / 1e3 / 2)
    assert document.dropped == ["NCCL_ALGO", "NCCL_P2P_DISABLE"]
    for line in (tmp_path / "environment").read_text().splitlines():
        given = json.loads(line)
        assert given.pop("NCCL_DEBUG_FILE").startswith(str(tmp_path / "tmp"))
        assert given == {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": PLAN.debug}
    assert any("NCCL version 2.32.3" in line for line in document.ranks[1].log)
    assert [one.op for one in document.ranks[0].traffic] == ["all_reduce", "alltoall"]
    assert document.ranks[0].traffic[0].problem == "NVML gives no counter of any NVLink: NotSupported"
    assert clean(document, tmp_path)


# What rank 1 does, what rank 0 does meanwhile -> what the document says, rows before that.
TROUBLE = {
    "die@start": ("", "rank 1 (0000:02:00.0), the start: expected an answer, found the end of its process: signal", 0),
    "claims": ("", "the start: expected GPU 0000:02:00.0, found that 0000:ff:00.0 was taken", 0),
    "old": ("", "expected one version of NCCL, found 2.28.9, 2.32.3", 0),
    "problem@join": ("", "rank 1 (0000:02:00.0), joining the communicator: all_reduce of 2 elements: expected", 0),
    "die@2": (
        "hang@2",
        "all_reduce of 2097152 bytes: expected an answer, found the end of its process: signal SIGK",
        2,
    ),
    "exit@1": (
        "waits@1",
        "all_reduce of 1048576 bytes: expected an answer, found the end of its process: exit code 3",
        1,
    ),
    "hang@4": ("waits@4", "alltoall of 1048576 bytes: expected an answer within", 4),
    "garbage@0": ("hang@0", "all_reduce of 1024 bytes: expected lines of JSON, found 'Segmentation fault", 0),
    "flood@0": ("hang@0", "all_reduce of 1024 bytes: expected lines of at most 262144 bytes, found a longer one", 0),
    "lie@1": ("", "all_reduce of 1048576 bytes: expected numbers from 0 on, found others", 1),
    "few@1": ("", "all_reduce of 1048576 bytes: expected 8 single iterations, found 7", 1),
    "silent_wrong@1": ("", "expected a place for each count of wrong elements, found others", 1),
}


@pytest.mark.parametrize("word", list(TROUBLE))
def test_a_rank_in_trouble_ends_the_run(word: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies, hangs or lies is named with collective, size and reason, though the others wait or complain; rows
    before that stand, and no process and no file is left."""
    node(2)
    meanwhile, says, rows = TROUBLE[word]
    behave(monkeypatch, meanwhile, word)
    monkeypatch.setattr(crew_module, "SETTLE_S", 0.2)
    monkeypatch.setattr(crew_module, "AHEAD_S", 1.0)
    document = Crew(msgspec.structs.replace(PLAN, op_s=2.0), (), rank=RANK).run()
    assert says in document.problem
    assert "\n" not in document.problem
    assert document.failed_rank == (None if word == "old" else 1)
    assert len(document.rows) == rows
    assert ran(document) == [(op, size) for op in PLAN.ops for size in PLAN.sizes_bytes][:rows]
    if rows:
        assert (document.failed_op, document.failed_bytes) != ("", 0)
    assert clean(document, tmp_path)


def test_multicast_is_not_switched_on_again(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node has NVLink multicast off every rank has it off, and the document says so; a plan that wants it is
    refused before any rank is started."""
    node(2)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("ENVIRONMENT", str(tmp_path / "environment"))
    document = Crew(PLAN, (), rank=RANK).run()
    given = [json.loads(line)["NCCL_NVLS_ENABLE"] for line in (tmp_path / "environment").read_text().splitlines()]
    assert given == ["0", "0"]
    assert (document.kept, document.dropped) == ({"NCCL_NVLS_ENABLE": "0"}, [])
    wants = msgspec.structs.replace(PLAN, environment={"NCCL_NVLS_ENABLE": "2"})
    refused = Crew(wants, (), rank=RANK).run()
    assert refused.problem.startswith("expected NCCL_NVLS_ENABLE=0, as whoever runs this node has set it")
    assert [rank.pid for rank in refused.ranks] == [0, 0]


def test_what_nccl_warned_stands_beside_the_reason(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose NCCL refuses has its own words and the last warning of its log; one that died, its stderr."""
    node(2)
    behave(monkeypatch, "", "problem@3")
    document = Crew(PLAN, (), rank=RANK).run()
    assert document.problem.startswith("rank 1 (0000:02:00.0), alltoall of 1024 bytes: all_reduce of 2 elements")
    assert "; NCCL warns: Cuda failure 'an illegal memory access was encountered'" in document.problem
    assert document.ranks[1].problem == (
        "all_reduce of 2 elements: expected ncclSuccess, found UnhandledCudaError (1) and more"
    )
    behave(monkeypatch, "", "exit@0")
    document = Crew(PLAN, (), rank=RANK).run()
    assert document.ranks[1].stderr == "terminate called\n"


def test_all_ranks_that_wait_are_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rank waits in NCCL none of them is the culprit alone: the line names them all."""
    node(3)
    behave(monkeypatch, *["waits@0"] * 3)
    monkeypatch.setattr(crew_module, "SETTLE_S", 0.2)
    document = Crew(msgspec.structs.replace(PLAN, op_s=1.0), (), rank=RANK).run()
    assert "found it still under way (so do ranks 1, 2)" in document.problem


def test_wrong_results_are_rows(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that differ are counted in their row and placed at their rank; the sweep goes on."""
    node(2)
    behave(monkeypatch, "", "wrong@1")
    document = Crew(PLAN, (), rank=RANK).run()
    assert document.problem == ""
    assert [row.out_of_place.wrong for row in document.rows] == [0, 3, 0, 0, 0, 0]
    assert document.ranks[0].wrong == []
    (wrong,) = document.ranks[1].wrong
    assert (wrong.op, wrong.size_bytes, wrong.count, wrong.first_index, wrong.found) == ("all_reduce", MIB, 3, 7, "nan")


def test_sizes_that_do_not_fit_are_left_out_and_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU with the least free memory decides; a size that is too large, or too small to be shared, is no row."""
    node(2)
    behave(monkeypatch, "", "small")
    plan = Plan(ops=["alltoall"], sizes_bytes=[8, MIB, 2 * MIB])
    document = Crew(plan, (), rank=RANK).run()
    assert document.problem == ""
    assert document.largest_bytes == MIB
    assert ran(document) == [("alltoall", MIB)]
    assert [(one.asked_bytes, one.why[:24]) for one in document.left_out] == [
        (8, "less than 16 bytes for e"),
        (2 * MIB, "no memory for two buffer"),
    ]


def test_ranks_of_several_nodes_run_the_same(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of this node are those that the plan says, with the address of rank 0; their iterations are the plan's
    whatever they last, and a size for which there is no memory here is no size to leave out."""
    node(2)
    monkeypatch.setenv("ENVIRONMENT", str(tmp_path / "environment"))
    plan = msgspec.structs.replace(PLAN, comm="node01:5000", nranks=16, first_rank=8, size_s=0.1)
    document = Crew(plan, (), rank=RANK).run()
    assert (document.problem, document.nranks) == ("", 16)
    assert [rank.rank for rank in document.ranks] == [8, 9]
    assert [row.iterations for row in document.rows] == [8, 8, 4] * 2
    row = document.rows[2]
    assert row.out_of_place.busbw_gb_per_s == pytest.approx(row.out_of_place.algbw_gb_per_s * 2 * 15 / 16)
    given = json.loads((tmp_path / "environment").read_text().splitlines()[0])
    assert given["NCCL_COMM_ID"] == "node01:5000"
    behave(monkeypatch, "small")
    assert "expected memory for two buffers of 2097152 bytes, found" in Crew(plan, (), rank=RANK).run().problem


def test_a_slow_wire_gets_fewer_iterations(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a millisecond a MiB and a tenth of a second for each size, the larger size has fewer; the row says so."""
    node(1)
    document = Crew(msgspec.structs.replace(PLAN, size_s=0.1, iterations=20), (), rank=RANK).run()
    assert [row.iterations for row in document.rows[:3]] == [8, 8, 15]
    assert document.rows[0].out_of_place.busbw_gb_per_s == 0.0


def test_gpus_that_may_not_be_loaded_refuse_the_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger on one GPU, or MIG, and no rank is started at all; the line names the GPU."""
    for values, says in (
        ({"gpu.1.process.0": "4711:1024"}, "expected nobody else on the GPU, found process 4711"),
        ({"gpu.1.mig": "1"}, "expected a whole GPU, found MIG enabled"),
    ):
        node(2, **values)
        document = Crew(PLAN, (), rank=RANK).run()
        assert document.problem.startswith(f"GPU {bdf(1)}: {says}")
        assert [rank.pid for rank in document.ranks] == [0, 0]
        assert document.failed_rank == 1


def test_heat_ends_the_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that gets hot while the sweep runs ends it, and is named."""
    path = node(2)
    monkeypatch.setenv("STEP_S", "0.4")

    def heat() -> None:
        time.sleep(1.2)
        text = path.read_text().replace("gpu.1.temperature=", "gpu.9.temperature=")
        path.write_text(text + "\ngpu.1.temperature=95\n")

    threading.Thread(target=heat).start()
    document = Crew(msgspec.structs.replace(PLAN, sample_s=0.05), (), rank=RANK).run()
    assert document.problem.startswith(f"rank 1 ({bdf(1)}): stopped: 95 °C")


def test_told_to_end_it_says_what_is_known(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to the agent in the middle of a size: a document with the rows so far, exit code 0, nobody left."""
    node(2)
    behave(monkeypatch, "hang@2", "hang@2")
    words = [sys.executable, "-c", AGENT, "collectives", msgspec.json.encode(PLAN).decode()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"all_reduce 2097152" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    document = msgspec.json.decode(msgspec.json.decode(out, type=Envelope).data, type=CollectivesDoc)
    assert (document.problem, document.ended_early, len(document.rows)) == ("told to end", True, 2)
    assert (document.failed_op, document.failed_bytes) == ("all_reduce", 2 * MIB)
    assert clean(document, tmp_path)


def test_killed_it_takes_its_ranks_along(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL to the agent in the middle of a size: no rank lives on, and no file of its is left."""
    node(2)
    behave(monkeypatch, "hang@1", "hang@1")
    words = [sys.executable, "-c", AGENT, "collectives", msgspec.json.encode(PLAN).decode()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"all_reduce 1048576" not in process.stderr.readline():
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 4
        process.kill()
    end = time.monotonic() + 10
    while any(alive(int(pid)) for pid in children) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(alive(int(pid)) for pid in children)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_shared_memory_of_killed_ranks_is_removed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of NCCL that a rank left behind is gone after the run."""
    node(1)
    behave(monkeypatch, "segment@0")
    before = leftovers.there()
    document = Crew(PLAN, (), rank=RANK).run()
    assert "exit code 3" in document.problem
    assert leftovers.there() == before


def test_it_runs_as_one_file_without_packages(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's file on a Python without any package: the document is read by the real msgspec, and what the node
    lacks is one line with what to install."""
    node(2)
    path = tmp_path / "agent.zip"
    path.write_bytes(agent_zip().data)
    monkeypatch.delenv("PYTHONPATH")
    plan = msgspec.json.encode(PLAN).decode()

    def run(script: str) -> CollectivesDoc:
        start = f"import sys; sys.path.insert(0, {str(path)!r})"
        words = [sys.executable, "-S", "-c", f"{start}\n{script}", "collectives", plan]
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True)
        return msgspec.json.decode(msgspec.json.decode(done.stdout, type=Envelope).data, type=CollectivesDoc)

    whole = run(AGENT)
    assert (whole.problem, len(whole.rows), whole.plan) == ("", 6, PLAN)
    lacking = run("from pytest_gpuready.agent import __main__ as agent; sys.exit(agent.main(sys.argv[1:]))")
    says = "rank 0 (0000:01:00.0), the start: expected the package cuda-bindings, found: "
    assert lacking.problem.startswith(says)
    assert "pip install 'pytest-gpuready[cuda13]'" in lacking.problem
    assert "(so does rank 1)" in lacking.problem
    assert lacking.rows == []


def test_a_wrong_plan_is_one_line() -> None:
    """Nothing is started where the plan cannot be read."""
    assert collectives(["{"]).problem.startswith("expected a plan as JSON")


def test_the_grace_is_that_of_the_document() -> None:
    """The agent knows the same grace as whoever calls it."""
    assert agent_main.COLLECTIVES_GRACE_S == collectives_doc.COLLECTIVES_GRACE_S
