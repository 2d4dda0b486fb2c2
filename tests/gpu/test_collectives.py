"""The sweep of collectives on real GPUs, one or more. By hand, on a machine with NVIDIA GPUs and the extra of its
driver: `pytest tests/gpu/test_collectives.py`.

NVLink multicast stays off (NCCL_NVLS_ENABLE=0 in every plan): a program that ends in the middle of it may leave its
host in need of repair, and here programs are ended in the middle.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.agent.collectives import leftovers
from pytest_gpuready.agent.collectives.sweep import Sweep
from pytest_gpuready.agent.cuda_driver import load
from pytest_gpuready.agent.pci import gpus
from pytest_gpuready.agent.stress.device import Gpu
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.busbw import COLLECTIVES
from pytest_gpuready.model.collectives_doc import Plan, RankWork, Step
from pytest_gpuready.model.collectives_shape import IN_PLACE, shape
from pytest_gpuready.parse.agent import collectives_doc

OFF = {"NCCL_NVLS_ENABLE": "0"}
MIB = 2**20
SWEEP = Plan(ops=list(COLLECTIVES), sizes_bytes=[8, 1024, MIB, 64 * MIB, 1024 * MIB], environment=OFF)


@pytest.fixture(scope="module")
def bdfs():
    found = [gpu.bdf for gpu in gpus()]
    assert found, "expected NVIDIA GPUs on the PCI bus, found none; these tests need one"
    return found


def command(plan, bdfs):
    return [sys.executable, "-m", "pytest_gpuready.agent", "collectives", msgspec.json.encode(plan).decode(), *bdfs]


def read(plan, bdfs, done, *, timed_out=False):
    """The document through the reader that refuses contradictions."""
    argv = ("python", *command(plan, bdfs)[1:])
    code, out, err = done
    result = CommandResult(
        command=Command(node="here", argv=argv, timeout_s=300.0),
        exit_code=code,
        stdout=out,
        stderr=err,
        started="2026-12-01T00:00:00Z",
        duration_s=1.0,
        timed_out=timed_out,
    )
    return collectives_doc(result)


def ran(plan, bdfs):
    done = subprocess.run(command(plan, bdfs), capture_output=True, text=True, timeout=280, check=False)
    return read(plan, bdfs, (done.returncode, done.stdout, done.stderr))


@pytest.fixture(scope="module")
def doc(bdfs):
    return ran(SWEEP, bdfs)


def test_every_collective_runs_and_is_right(doc, bdfs):
    """All sizes of all five are rows, every element of every result was compared, none is wrong."""
    assert doc.problem == ""
    assert doc.nranks == len(bdfs)
    assert {row.op for row in doc.rows} == set(COLLECTIVES)
    for row in doc.rows:
        halves = [half for half in (row.out_of_place, row.in_place) if half]
        assert [half.wrong for half in halves] == [0] * len(halves), row
    expected = len(COLLECTIVES) * len(SWEEP.sizes_bytes)
    assert len(doc.rows) + len(doc.left_out) == expected
    assert all(one.asked_bytes <= 1024 for one in doc.left_out)


def test_large_sizes_are_faster_than_small_ones(doc, bdfs):
    """At 1 GiB algbw is above 1 GB/s, however the GPUs are wired, and far above that at 8 bytes; with one rank busbw is
    0 by definition."""
    rows = {(row.op, row.asked_bytes): row for row in doc.rows}
    for op in COLLECTIVES:
        large = rows[op, 1024 * MIB]
        assert large.out_of_place.algbw_gb_per_s > 1.0
        assert large.min_us <= large.p50_us <= large.max_us
        if len(bdfs) == 1:
            assert large.out_of_place.busbw_gb_per_s == 0.0
    assert rows["all_reduce", 8].out_of_place.time_us < rows["all_reduce", 1024 * MIB].out_of_place.time_us


def test_nccl_said_what_it_did(doc, bdfs):
    """Each rank's log came back, bounded; between ranks the algorithm of every all_reduce is named in it."""
    assert any("NCCL version" in line for rank in doc.ranks for line in rank.log)
    for rank in doc.ranks:
        assert rank.log_problem == ""
        assert 0 < len(rank.log) <= 800
    if len(bdfs) > 1:
        assert all(row.algorithms for row in doc.rows if row.op == "all_reduce")


def test_nvlinks_carried_it(doc, bdfs):
    """With NVLink between GPUs the links counted what the collective moved at least; errors did not grow."""
    for rank in doc.ranks:
        assert [one.op for one in rank.traffic] == list(COLLECTIVES)
        for traffic in rank.traffic:
            if traffic.problem or len(bdfs) == 1:
                continue
            sent = [link.counters["data_tx"] for link in traffic.links if "data_tx" in link.counters]
            row = next(row for row in doc.rows if (row.op, row.size_bytes) == (traffic.op, traffic.size_bytes))
            assert sum(b - a for a, b in sent) * 1024 > row.iterations * row.size_bytes / len(bdfs), traffic.op
            for name in ("replay", "recovery", "crc"):
                assert all(a == b for a, b in (link.counters.get(name, (0, 0)) for link in traffic.links)), name


def test_bfloat16_is_exact_too(bdfs):
    """The same check in the other datatype."""
    plan = Plan(ops=["all_reduce", "reduce_scatter"], sizes_bytes=[64 * MIB], datatype="bfloat16", environment=OFF)
    found = ran(plan, bdfs)
    assert found.problem == ""
    assert [row.out_of_place.wrong for row in found.rows] == [0, 0]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_is_named(bdfs, signum):
    """In the middle of the sweep: the rank is named, no process and no segment is left, and the next sweep runs."""
    long = Plan(ops=["all_reduce"], sizes_bytes=[8, *[MIB * 2**at for at in range(11)]], environment=OFF, op_s=20.0)
    long = msgspec.structs.replace(long, iterations=1000, small_iterations=1000, size_s=600.0)
    segments = leftovers.there()
    with subprocess.Popen(command(long, bdfs), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "all_reduce" not in process.stderr.readline():
            assert process.poll() is None
        ranks = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if b"collectives.rank\0" in path.read_bytes()
        ]
        assert len(ranks) == len(bdfs)
        os.kill(max(ranks), signum)
        out, err = process.communicate(timeout=120)
    found = read(long, bdfs, (process.returncode, out, err))
    bad = next(rank for rank in found.ranks if rank.pid == max(ranks))
    assert found.failed_rank == bad.rank
    assert ("SIGKILL" if signum == signal.SIGKILL else "it hangs") in found.problem
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert leftovers.there() == segments
    assert ran(msgspec.structs.replace(SWEEP, ops=["all_reduce"], sizes_bytes=[MIB]), bdfs).problem == ""


def test_told_to_end_it_prints_what_is_known(bdfs):
    """SIGTERM in the middle: a document within the grace, exit code 0."""
    long = msgspec.structs.replace(SWEEP, iterations=1000, small_iterations=1000, size_s=600.0)
    with subprocess.Popen(command(long, bdfs), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "all_reduce" not in process.stderr.readline():
            assert process.poll() is None
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 20
    found = read(long, bdfs, (process.returncode, out, err))
    assert (found.problem, found.ended_early) == ("told to end", True)


# From here on this process itself holds a GPU: what is behind would find it there, rightly.


class Silent:
    """STAND-IN for NCCL whose collectives do nothing, or spoil one bit of what a true copy would be."""

    rank, nranks = 0, 1

    def __init__(self, gpu, spoil_at=None):
        self._gpu, self._spoil_at = gpu, spoil_at

    def barrier(self, address):
        pass

    def trouble(self):
        return ""

    def run(self, op, send, receive, count):
        if self._spoil_at is None:
            return
        if send != receive:
            self._gpu.copy(receive, send, count * 4)
        self._gpu.set_bytes(receive + 4 * self._spoil_at, 0x01, 1)


@pytest.fixture(scope="module")
def gpu(bdfs):
    opened = Gpu(load(), bdfs[0])
    opened.open()
    return opened


def step(op, size):
    return Step(number=1, op=op, asked_bytes=size, iterations=2, warmup=1, patience_s=30.0)


@pytest.mark.parametrize("op", COLLECTIVES)
def test_an_untouched_output_is_found(gpu, op):
    """On the GPU, where NCCL does nothing every element is wrong, however large the size; but what lies in place."""
    work = RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=3, makes_id=True)
    sweep = Sweep(gpu, Silent(gpu), work)
    sweep.allocate(256 * MIB)
    found = sweep.run(step(op, 256 * MIB))
    assert found.out_of_place.wrong == 64 * MIB
    assert found.wrong[0].found == "nan"
    assert (found.in_place is None) == (op not in IN_PLACE)


def test_one_flipped_byte_among_many_is_found(gpu):
    """One byte of one element in 256 MiB: one wrong element, with its index; expected and found differ."""
    work = RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=3, makes_id=True)
    sweep = Sweep(gpu, Silent(gpu, spoil_at=54_321_987), work)
    sweep.allocate(256 * MIB)
    found = sweep.run(step("all_reduce", 256 * MIB))
    size = shape("all_reduce", 256 * MIB, 1, "float32")
    assert (found.out_of_place.wrong, found.size_bytes) == (1, size.size_bytes)
    assert found.wrong[0].first_index == 54_321_987
    assert found.wrong[0].expected != found.wrong[0].found
    assert json.loads(found.wrong[0].expected) > 0
