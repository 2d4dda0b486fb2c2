"""One rank's work: memory for the largest size, then one size of one collective after the other, checked and timed.

The order in a step is that of nccl-tests, but the check comes first: data in, poisoned output, one run out of place and
every element compared, the same in place; then a barrier, warm-up, and the iterations between two events out of place
and in place; at last single iterations out of place, an event after each. Before each of these a barrier on the stream,
so that the first event of a rank does not come long before the last rank is there.

The GPU is used through the methods of `stress.device.Gpu`, NCCL through those of `nccl.Communicator`.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from pytest_gpuready.agent.collectives import kernels
from pytest_gpuready.agent.collectives.nccl import NcclError, WaitingError
from pytest_gpuready.agent.collectives.pattern import Weights, element, seed_of, weights
from pytest_gpuready.model.collectives_doc import RankWork, Step, StepHalf, StepResult, WrongSeen
from pytest_gpuready.model.collectives_shape import IN_PLACE, REDUCING, WIDTHS, Shape, shape

POLL_S, ASK_S = 0.0002, 0.1
"""Between two looks at an event, and between two questions to NCCL whether something went wrong."""

EAGER_S = 0.003
"""So long is looked without a pause: most waits are that short."""

BLOCK, BLOCKS_OF_A_SM = 256, 16
POISON = 0xFF
"""In every byte: no number in either datatype."""

SMALL_BYTES = 256
"""Memory of the barrier and of a report."""


class Sweep:
    """A rank in its communicator. `say` is told at which part of a step it is."""

    def __init__(self, gpu: Any, comm: Any, work: RankWork, say: Callable[[str], None] = lambda _: None) -> None:
        self._gpu, self._comm, self._work, self._say = gpu, comm, work, say
        self._source = kernels.source(work.datatype)
        self._width = WIDTHS[work.datatype]
        self._patience_s = 60.0
        self._send = self._receive = self._largest = 0
        self._small = gpu.allocate(SMALL_BYTES)
        self._report = gpu.allocate(SMALL_BYTES)
        gpu.zero(self._small, SMALL_BYTES)

    def allocate(self, largest_bytes: int) -> None:
        """Two buffers of so many bytes, once.

        Raises: CudaError.
        """
        self._send, self._receive = self._gpu.allocate(largest_bytes), self._gpu.allocate(largest_bytes)
        self._largest = largest_bytes
        for buffer in (self._send, self._receive):
            self._gpu.zero(buffer, largest_bytes)
        self._patience_s = 60.0
        self._wait("the buffers")

    def run(self, step: Step) -> StepResult:
        """One size of one collective.

        Raises: CudaError, NcclError.
        """
        self._patience_s = step.patience_s
        work = self._work
        size = shape(step.op, step.asked_bytes, work.nranks, work.datatype)
        if not 0 < size.size_bytes <= self._largest:
            raise NcclError(f"expected a size up to {self._largest} bytes that can be run, found {step.asked_bytes}")
        places = (False, True) if step.op in IN_PLACE else (False,)
        wrong: list[WrongSeen] = []
        counts: list[int | None] = [None, None]
        if work.check:
            for in_place in places:
                self._say("check in place" if in_place else "check")
                seen = self._checked(step, size, in_place)
                wrong += [seen] if seen else []
                counts[in_place] = seen.count if seen else 0
        self._say("warm-up")
        self._together()
        for _ in range(step.warmup):
            self._once(step.op, size, False)
        self._wait("the warm-up")
        halves = []
        for in_place in places:
            self._say("time in place" if in_place else "time")
            time_us = self._timed(step, size, in_place)
            halves.append(StepHalf(time_us=time_us, wrong=counts[in_place]))
        self._say("single iterations")
        return StepResult(
            size_bytes=size.size_bytes,
            out_of_place=halves[0],
            in_place=halves[1] if len(halves) > 1 else None,
            times_us=self._single(step, size),
            wrong=wrong,
        )

    # --- what is run ------------------------------------------------------------------------------------------------

    def _once(self, op: str, size: Shape, in_place: bool) -> None:
        self._comm.run(op, *self._addresses(op, size, in_place), size.count)

    def _addresses(self, op: str, size: Shape, in_place: bool) -> tuple[int, int]:
        """Where the data is, and where the result goes."""
        if not in_place:
            return self._send, self._receive
        part = self._comm.rank * size.count * self._width
        return (
            self._receive + (part if op == "all_gather" else 0),
            self._receive + (part if op == "reduce_scatter" else 0),
        )

    def _together(self) -> None:
        self._comm.barrier(self._small)

    # --- time -------------------------------------------------------------------------------------------------------

    def _timed(self, step: Step, size: Shape, in_place: bool) -> float:
        """Microseconds of one iteration, the mean over all of them."""
        send, receive = self._addresses(step.op, size, in_place)
        run, op, count = self._comm.run, step.op, size.count
        self._together()
        first = self._gpu.mark()
        for _ in range(step.iterations):
            run(op, send, receive, count)
        last = self._gpu.mark()
        self._wait("the iterations")
        seconds: float = self._gpu.seconds_between(first, last)
        self._gpu.forget(first)
        self._gpu.forget(last)
        return seconds / step.iterations * 1e6

    def _single(self, step: Step, size: Shape) -> list[float]:
        """Microseconds of each iteration."""
        self._together()
        marks = [self._gpu.mark()]
        for _ in range(step.iterations):
            self._once(step.op, size, False)
            marks.append(self._gpu.mark())
        self._wait("the single iterations")
        times = [round(self._gpu.seconds_between(a, b) * 1e6, 3) for a, b in pairwise(marks)]
        for mark in marks:
            self._gpu.forget(mark)
        return times

    def _wait(self, what: str) -> None:
        """Until everything queued is done.

        Raises: CudaError; NcclError where NCCL tells of trouble; WaitingError where nothing happens for too long.
        """
        mark, begun = self._gpu.mark(), time.monotonic()
        asked = begun
        while not self._gpu.passed(mark):
            now = time.monotonic()
            if now - asked > ASK_S:
                asked = now
                if trouble := self._comm.trouble():
                    raise NcclError(f"{what}: expected NCCL to go on, found {trouble}")
            if now - begun > self._patience_s:
                raise WaitingError(
                    f"{what}: expected an end within {self._patience_s:.1f} s, found it still under way: "
                    "it waits for another rank, or the path between them is dead"
                )
            if now - begun > EAGER_S:
                time.sleep(POLL_S)
        self._gpu.forget(mark)

    # --- the check --------------------------------------------------------------------------------------------------

    def _checked(self, step: Step, size: Shape, in_place: bool) -> WrongSeen | None:
        """Run it once on known data; None where every element is as it has to be."""
        op, work, gpu = step.op, self._work, self._gpu
        known = weights(work.nranks, work.datatype, summed=op in REDUCING)
        seed = seed_of(work.seed, step.number, in_place)
        send, receive = self._addresses(op, size, in_place)
        gpu.set_bytes(self._receive, POISON, size.size_bytes if in_place else size.receive_bytes)
        base = 0 if op in REDUCING else work.rank * (size.send_bytes // self._width)
        self._kernel("fill", size.send_bytes // self._width, 1, send)(
            seed, base, known.high_a, known.high_b, known.of(work.rank)
        )
        self._together()
        self._once(op, size, in_place)
        gpu.set_bytes(self._report, 0xFF, 16)
        gpu.zero(self._report, 8)
        from_ = Origin.of(op, work, size, known)
        self._kernel("check", from_.count, from_.blocks, receive)(
            *(seed, from_.base, from_.stride, from_.first, known.cycle, known.high_a, known.high_b),
            *(from_.many, known.total, self._report),
        )
        self._wait("the check")
        count, first = struct.unpack("<QQ", gpu.read(self._report, 16))
        if not count:
            return None
        found = gpu.read(receive + first * self._width, self._width)
        return WrongSeen(
            op=op,
            size_bytes=size.size_bytes,
            in_place=in_place,
            count=count,
            first_index=first,
            expected=str(from_.element(seed, first, known)),
            found=f"{_value(found):.9g}",
        )

    def _kernel(self, name: str, count: int, blocks: int, address: int) -> Callable[..., None]:
        across = max(1, min(-(-count // BLOCK), self._gpu.sms * BLOCKS_OF_A_SM))

        def launch(*arguments: int) -> None:
            grid = (across, blocks)
            self._gpu.kernel(self._source, name, grid, BLOCK, address, count, *arguments).launch()

        return launch


class Origin:
    """Where the elements of a result come from: blocks of `count`, block y from rank first + y, whose data began at
    base + y·stride of the whole; `many` ranks are added where it is a sum, else 0."""

    def __init__(self, count: int, *, blocks: int = 1, base: int = 0, stride: int = 0, first: int = 0, many: int = 0):
        self.count, self.blocks, self.base, self.stride = count, blocks, base, stride
        self.first, self.many = first, many

    @classmethod
    def of(cls, op: str, work: RankWork, size: Shape, known: Weights) -> Origin:
        """The result of this rank."""
        count, n, rank = size.count, work.nranks, work.rank
        if op == "all_reduce":
            return cls(count, many=n)
        if op == "reduce_scatter":
            return cls(count, base=rank * count, many=n)
        if op == "all_gather":
            return cls(count, blocks=n, stride=count)
        if op == "alltoall":
            return cls(count, blocks=n, base=rank * count, stride=n * count)
        before = (rank - 1) % n
        return cls(count, base=before * count, first=before)

    def element(self, seed: int, place: int, known: Weights) -> int:
        """What has to stand there."""
        block, i = divmod(place, self.count)
        index = self.base + block * self.stride + i
        if self.many:
            return element(seed, index, known, many=self.many, weight=known.total)
        return element(seed, index, known, many=1, weight=known.of(self.first + block))


def _value(raw: bytes) -> float:
    """An element as a number; bfloat16 is the upper half of a float32."""
    return float(ctypes.c_float.from_buffer_copy(raw if len(raw) == 4 else b"\0\0" + raw).value)
