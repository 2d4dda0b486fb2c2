"""NCCL's log of a rank: bounded whatever is written, and its algorithms as they come."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuready.agent.collectives import log
from pytest_gpuready.agent.collectives.figures import algorithms
from pytest_gpuready.agent.collectives.log import NcclLog

HEAD = "node01:700:711 [0] NCCL "


def written(path: Path, *lines: str) -> NcclLog:
    path.write_text("".join(f"{HEAD}{line}\n" for line in lines))
    return NcclLog(path)


def test_a_call_is_told_once_it_is_written(tmp_path: Path) -> None:
    """Every look gives the calls since the last one, a line that is half written only when it is whole."""
    path = tmp_path / "0.log"
    found = NcclLog(path)
    assert found.take() == []
    with path.open("a", buffering=1) as out:
        out.write(f"{HEAD}INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}\n")
        assert found.take() == [("AllReduce", 8, "RING LL")]
        path.unlink()
        out.write(f"{HEAD}INFO AllGather: 1024 Bytes -> Algo NVLS")
        assert found.take() == []
        out.write(" proto SIMPLE channel{Lo..Hi}={0..15} cgaClusterSize 4\n")
        assert found.take() == [("AllGather", 1024, "NVLS SIMPLE")]
    found.close()
    assert len(found.lines) == 2


def test_the_barrier_is_no_algorithm_of_a_size() -> None:
    """Four bytes of AllReduce are the barrier; other functions are not this collective's."""
    calls = [("AllReduce", 4, "TREE LL"), ("AllReduce", 64, "RING LL"), ("AllGather", 64, "PAT SIMPLE")]
    assert algorithms("all_reduce", calls) == ["RING LL"]
    assert algorithms("all_gather", calls) == ["PAT SIMPLE"]
    assert algorithms("sendrecv", calls) == []


def test_what_is_kept_is_bounded_and_tells(tmp_path: Path) -> None:
    """Of a million bytes of log the first lines stay, every warning up to a bound, each telling line once whatever its
    channel; the rest is counted."""
    lines = [f"INFO {at} of no use" for at in range(1000)]
    lines += [f"INFO Channel {at:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM" for at in range(24)]
    lines += [f"INFO Channel {at:02d}/0 : 1[1] -> 0[0] via SHM/direct/direct" for at in range(24)]
    lines += ["INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"] * 5000
    lines += [f"INFO AllReduce: {size} Bytes -> Algo RING proto LL" for size in range(16, 1016)]
    lines += [f"WARN number {at}" for at in range(1000)]
    found = written(tmp_path / "0.log", *lines)
    calls = found.take()
    found.close()
    assert len(calls) == 6000
    assert found.lines[: log.FIRST] == [f"{HEAD}{line}" for line in lines[: log.FIRST]]
    later = found.lines[log.FIRST :]
    assert len([line for line in later if " via " in line]) == 2
    assert any("SHM/direct" in line for line in later)
    assert len([line for line in later if "Algo" in line]) == log.TELLING - 2
    assert len([line for line in later if "WARN" in line]) == log.WARNINGS
    assert found.last_warning == "number 999"
    assert found.left_out == len(lines) - len(found.lines)


def test_all_lines_together_are_bounded(tmp_path: Path) -> None:
    """However long the lines are, they take no more than their room, and warnings have a room of their own."""
    long = "y" * 390
    lines = [f"INFO comm 0x{at} {long}" for at in range(1000)] + [f"WARN {at} {long}" for at in range(1000)]
    found = written(tmp_path / "0.log", *lines)
    found.take()
    found.close()
    warned = [line for line in found.lines if "WARN" in line]
    others = [line for line in found.lines if "WARN" not in line]
    assert log.ROOM - log.LONGEST < sum(map(len, others)) <= log.ROOM
    assert log.ROOM_OF_WARNINGS - log.LONGEST < sum(map(len, warned)) <= log.ROOM_OF_WARNINGS
    assert found.left_out == 2000 - len(found.lines)


def test_lines_are_bounded_and_plain(tmp_path: Path) -> None:
    """A line of a megabyte is cut, control characters are replaced, and a call with a number of a hundred digits is one
    that can be told."""
    path = tmp_path / "0.log"
    digits = b"9" * 100
    path.write_bytes(b"x" * 2**20 + b"\n\x1b[31mred\n\xff\xfe\nAllReduce: " + digits + b" Bytes -> Algo A proto B\n")
    found = NcclLog(path)
    ((function, moved, how),) = found.take()
    assert (function, len(str(moved)), how) == ("AllReduce", 18, "A B")
    assert [len(line) for line in found.lines[:1]] == [log.LONGEST]
    assert found.lines[1] == "?[31mred"


def test_a_warning_is_read_as_nccl_writes_it(tmp_path: Path) -> None:
    """An empty line before it, the time and the place in the source around it; its last words are what is told."""
    where = "[2026-12-01 03:03:22] node01:700:700 [0] init.cc:3099 (ncclCommInitRankScalable) NCCL WARN "
    path = tmp_path / "0.log"
    path.write_text(f"{HEAD}INFO cudaDriverVersion 13000\n\n{where}Cuda failure 'no device'\n")
    found = NcclLog(path)
    found.take()
    found.close()
    assert found.last_warning == "Cuda failure 'no device'"
    assert (len(found.lines), found.left_out) == (2, 0)


def test_no_log_is_said(tmp_path: Path) -> None:
    """Where NCCL wrote none, the rank says so."""
    found = NcclLog(tmp_path / "none")
    found.open()
    found.close()
    assert found.problem == "expected NCCL to write its log, found No such file or directory"
