"""One rank's work: what is filled, run, compared and timed, with the real kernels on the CPU and ranks as threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_gpuready.agent.collectives.nccl import NcclError, WaitingError
from pytest_gpuready.agent.collectives.sweep import Sweep
from pytest_gpuready.model.busbw import COLLECTIVES
from pytest_gpuready.model.collectives_doc import RankWork, Step, StepResult
from pytest_gpuready.model.collectives_shape import IN_PLACE, shape
from tests.agent.collectives.stand_in_gpu import Board, Comm, Gpu

Spoil = Callable[[str, int, int], None]
SIZE = 1536


def step(op: str, number: int = 0, size: int = SIZE) -> Step:
    return Step(number=number, op=op, asked_bytes=size, iterations=4, warmup=2, patience_s=5.0)


def swept(
    steps: list[Step], nranks: int, datatype: str = "float32", spoil: Spoil | None = None, check: bool = True
) -> list[list[StepResult]]:
    """What each rank says of these steps; the last rank's results are spoilt."""
    board = Board(nranks)

    def one(rank: int) -> list[StepResult]:
        comm = Comm(board, rank, datatype, spoil if rank == nranks - 1 else None)
        work = RankWork(rank=rank, nranks=nranks, datatype=datatype, check=check, seed=7, makes_id=rank == 0)
        sweep = Sweep(Gpu(), comm, work)
        sweep.allocate(2 * SIZE)
        return [sweep.run(one) for one in steps]

    with ThreadPoolExecutor(nranks) as pool:
        return list(pool.map(one, range(nranks)))


@pytest.mark.parametrize("datatype", ["float32", "bfloat16"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 8])
def test_a_right_result_has_no_wrong_element(nranks: int, datatype: str) -> None:
    """Every collective, out of place and in place, however many ranks, in both datatypes: what was computed plainly is
    what the closed form says."""
    steps = [step(op, at) for at, op in enumerate(COLLECTIVES)]
    for results in swept(steps, nranks, datatype):
        for one, op in zip(results, COLLECTIVES, strict=True):
            assert one.out_of_place.wrong == 0
            assert (one.in_place.wrong if one.in_place else None) == (0 if op in IN_PLACE else None)
            assert one.wrong == []
            assert one.size_bytes == shape(op, SIZE, nranks, datatype).size_bytes


def flip(at: int) -> Spoil:
    """One bit of one element is another."""

    def spoil(op: str, receive: int, width: int) -> None:
        place = receive + at * width
        bits = ctypes.string_at(place, 1)[0] ^ 1
        ctypes.memset(place, bits, 1)

    return spoil


@pytest.mark.parametrize("op", COLLECTIVES)
def test_one_flipped_bit_is_found(op: str) -> None:
    """The lowest bit of one element on one rank: one wrong element, its place, what had to be and what was there."""
    *others, last = swept([step(op)], 3, spoil=flip(5))
    assert [one.wrong for (one,) in others] == [[], []]
    (result,) = last
    assert result.out_of_place.wrong == 1
    seen = result.wrong[0]
    assert (seen.op, seen.count, seen.first_index, seen.in_place) == (op, 1, 5, False)
    assert 0 < abs(float(seen.expected) - float(seen.found)) < 0.002
    assert len(result.wrong) == (2 if op in IN_PLACE else 1)


@pytest.mark.parametrize("op", COLLECTIVES)
def test_an_untouched_output_is_found(op: str) -> None:
    """A collective that writes nothing leaves poison: every element of the result is wrong."""

    def forget(op: str, receive: int, width: int) -> None:
        size = shape(op, SIZE, 2, "float32")
        ctypes.memset(receive, 0xFF, size.receive_bytes)

    (_, (result,)) = swept([step(op)], 2, spoil=forget)
    assert result.out_of_place.wrong == shape(op, SIZE, 2, "float32").receive_bytes // 4
    assert result.wrong[0].found == "nan"


class Lazy(Comm):
    """A communicator whose calls do nothing at all; `found` is what the output held at each."""

    def __init__(self, board: Board, rank: int, datatype: str) -> None:
        super().__init__(board, rank, datatype)
        self.found: list[bytes] = []

    def run(self, op: str, send: int, receive: int, count: int) -> None:
        self.calls.append(op)
        self.found.append(ctypes.string_at(receive, shape(op, SIZE, 2, "float32").receive_bytes))

    def barrier(self, address: int) -> None:
        self.calls.append("barrier")


@pytest.mark.parametrize("op", COLLECTIVES)
def test_a_collective_that_does_nothing_is_found(op: str) -> None:
    """Also where the data of the step before lies there: the whole output is poisoned before each check."""
    board = Board(1)
    work = RankWork(rank=0, nranks=2, datatype="float32", check=True, seed=7, makes_id=True)
    gpu, comm = Gpu(), Lazy(board, 0, "float32")
    comm.nranks = 2
    sweep = Sweep(gpu, comm, work)
    sweep.allocate(SIZE)
    for number in (0, 1):
        comm.found.clear()
        result = sweep.run(step(op, number))
        assert set(comm.found[0]) == {0xFF}
        assert result.out_of_place.wrong == shape(op, SIZE, 2, "float32").receive_bytes // 4
        if result.in_place:  # a rank's own part of an all_gather lies where it has to
            assert result.in_place.wrong == shape(op, SIZE, 2, "float32").receive_bytes // 4 // (
                2 if op == "all_gather" else 1
            )


def test_the_first_of_many_is_told() -> None:
    """Where a thread of the kernel finds several, and others too, it is the first element that is told."""
    size = 2 * 2 * 16 * 256 * 4  # every thread of the stand-in's grid has two elements

    def forget(op: str, receive: int, width: int) -> None:
        ctypes.memset(receive + 12, 0xFF, size - 12)

    work = RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=7, makes_id=True)
    sweep = Sweep(Gpu(), Comm(Board(1), 0, "float32", forget), work)
    sweep.allocate(size)
    result = sweep.run(step("sendrecv", size=size))
    assert (result.wrong[0].count, result.wrong[0].first_index) == (size // 4 - 3, 3)


def test_parts_in_the_wrong_order_are_found() -> None:
    """The right bytes of the right ranks in each other's place: all of both parts are wrong."""

    def swap(op: str, receive: int, width: int) -> None:
        part = shape(op, SIZE, 3, "float32").count * width
        one, two = ctypes.string_at(receive, part), ctypes.string_at(receive + part, part)
        ctypes.memmove(receive, two + one, 2 * part)

    for op in ("all_gather", "alltoall"):
        *_, (result,) = swept([step(op)], 3, spoil=swap)
        part = shape(op, SIZE, 3, "float32").count
        assert 0.9 * 2 * part < (result.out_of_place.wrong or 0) <= 2 * part


def test_a_rank_that_is_left_out_of_a_sum_is_found() -> None:
    """Half of the sum instead of all of it: no element is right."""

    def halve(op: str, receive: int, width: int) -> None:
        values = (ctypes.c_float * (SIZE // 4)).from_address(receive)
        for at, value in enumerate(values):
            values[at] = value - 1.0

    *_, (result,) = swept([step("all_reduce")], 3, spoil=halve)
    assert result.out_of_place.wrong == SIZE // 4
    assert result.in_place is not None
    assert result.in_place.wrong == SIZE // 4


def test_time_is_the_mean_between_two_events() -> None:
    """The stand-in's clock goes on by 1 us with each event: four iterations between two events are 0.25 us each, single
    ones 1 us; before each batch and before the warm-up all ranks meet."""
    ((result,),) = swept([step("all_reduce")], 1)
    assert result.out_of_place.time_us == pytest.approx(0.25)
    assert result.times_us == [1.0] * 4
    board = Board(1)
    comm = Comm(board, 0, "float32")
    sweep = Sweep(Gpu(), comm, RankWork(rank=0, nranks=1, datatype="float32", check=False, seed=1, makes_id=True))
    sweep.allocate(SIZE)
    unchecked = sweep.run(step("alltoall"))
    assert unchecked.out_of_place.wrong is None
    meet, run = ["barrier"], ["alltoall"]
    assert comm.calls == meet + run * 2 + meet + run * 4 + meet + run * 4


def test_where_it_is_is_said() -> None:
    """Each part of a step is told before it begins."""
    said: list[str] = []
    work = RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=1, makes_id=True)
    sweep = Sweep(Gpu(), Comm(Board(1), 0, "float32"), work, said.append)
    sweep.allocate(SIZE)
    sweep.run(step("all_reduce"))
    assert said == ["check", "check in place", "warm-up", "time", "time in place", "single iterations"]


def test_what_cannot_be_run_is_refused() -> None:
    """A size beyond the buffers, or of no element for each rank, is an error and no row."""
    work = RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=1, makes_id=True)
    sweep = Sweep(Gpu(), Comm(Board(1), 0, "float32"), work)
    sweep.allocate(SIZE)
    for size in (2 * SIZE, 8):
        with pytest.raises(NcclError, match=f"expected a size up to {SIZE} bytes that can be run, found {size}"):
            sweep.run(step("alltoall", size=size))


class Stuck(Gpu):
    """A GPU whose queue does not go on once it is told so."""

    stuck = False

    def passed(self, event: int) -> bool:
        return not self.stuck


class Troubled(Comm):
    """NCCL that has something to say about it."""

    said = ""

    def trouble(self) -> str:
        return self.said


@pytest.mark.parametrize(("said", "kind"), [("", WaitingError), ("remote error; NCCL says: closed", NcclError)])
def test_nothing_is_waited_for_without_end(said: str, kind: type[Exception]) -> None:
    """A queue that stands still is an error: NCCL's own where it names one, else that it waits for another."""
    gpu, comm = Stuck(), Troubled(Board(1), 0, "float32")
    comm.said = said
    sweep = Sweep(gpu, comm, RankWork(rank=0, nranks=1, datatype="float32", check=True, seed=1, makes_id=True))
    sweep.allocate(SIZE)
    gpu.stuck = True
    late = Step(number=0, op="all_reduce", asked_bytes=8, iterations=2, warmup=1, patience_s=0.2)
    with pytest.raises(
        kind, match=said or "the check: expected an end within 0.2 s, found it still under way"
    ) as raised:
        sweep.run(late)
    assert type(raised.value) is kind
