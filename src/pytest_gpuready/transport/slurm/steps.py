"""Many srun at a time in one thread: begins them, hears them, lets none of them and no node wait too long."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.transport.engine import KILL_S, Threaded
from pytest_gpuready.transport.kept import INTERRUPTED, SLACK_S
from pytest_gpuready.transport.local import ALIVE_S
from pytest_gpuready.transport.slurm.step import CLOSE_S, InStep, Place, Step

TICK_S = 0.1
AT_ONCE = 24
"""How many srun run at a time: each takes about 10 MB here and a place in Slurm's queue of messages."""

TRIES = 4
"""How often a step is begun, each time without the nodes that did not start."""

_CHUNK = 65536
_IN, _OUT, _ASIDE = 0, 1, 2

Group = tuple[Place, Sequence[InStep]]


class Steps(Threaded):
    """Commands on nodes of jobs; `ended` holds them as they end, None behind the last."""

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        start_s: float,
        suspects: set[str],
        progress: Callable[[Command, dict[str, object]], None],
    ) -> None:
        """Each group is one srun. `suspects` is kept: the nodes that did not start when last asked to."""
        super().__init__("gpuready-srun")
        self._waiting: deque[tuple[Group, int]] = deque((group, 1) for group in groups)
        self._all = [each for _, kept in groups for each in kept]
        self._start_s, self._suspects, self._progress = start_s, suspects, progress
        self._steps: dict[Step, int] = {}
        self._selector = selectors.DefaultSelector()
        self._told = self._killed = False
        self._alive_at = time.monotonic() + ALIVE_S

    @property
    def running(self) -> tuple[Command, ...]:
        """What runs now."""
        return tuple(each.command for step in list(self._steps) for each in step.active)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        why = "the fan-out ended before it"
        try:
            while self._waiting or self._steps:
                self._begin()
                self._hear()
                self._obey(time.monotonic())
                for step in list(self._steps):
                    self._tick(step, time.monotonic())
                self._tell_alive()
        except Exception as error:
            # Whatever breaks in here is a broken transport: it may not end as nodes that nobody hears of.
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            for step in self._steps:
                step.kill()
            for each in self._all:
                self._end(each, None, INTERRUPTED if self._stop_at or self._kill_at else why)
            self._selector.close()
            self.ended.put(None)

    def _begin(self) -> None:
        while self._waiting and len(self._steps) < AT_ONCE:
            (place, kept), tries = self._waiting.popleft()
            try:
                step = Step(place, {each.command.node: each for each in kept}, self._end)
            except TransportError as error:
                for each in kept:
                    self._end(each, None, str(error))
                continue
            self._steps[step] = tries
            for kind, pipe in enumerate(step.pipes):
                if kind != _IN:
                    self._selector.register(pipe, selectors.EVENT_READ, (step, kind))

    def _hear(self) -> None:
        for step in self._steps:
            self._listen_for_room(step)
        for key, _ in self._selector.select(TICK_S):
            step, kind = key.data
            if kind == _IN:
                try:
                    del step.out[: os.write(key.fd, step.out[:_CHUNK])]
                except BlockingIOError:
                    pass
                except OSError:
                    step.out.clear()  # it has ended, and its stderr says why
                continue
            piece = os.read(key.fd, _CHUNK)
            if piece:
                step.hear(piece, aside=kind == _ASIDE)
            else:
                self._selector.unregister(key.fd)
                step.open -= 1

    def _listen_for_room(self, step: Step) -> None:
        """Ask to be woken when there is room in its stdin, only where there is something to write."""
        if step.closed_at is not None:
            return
        pipe = step.pipes[_IN]
        asked = pipe in self._selector.get_map()
        if step.out and not asked:
            self._selector.register(pipe, selectors.EVENT_WRITE, (step, _IN))
        elif asked and not step.out:
            self._selector.unregister(pipe)

    def _end(self, each: InStep, code: int | None, why: str = "") -> None:
        """Hand over what came of one node, once."""
        if each.done:
            return
        each.done = True
        self.ended.put((each.command, each.outcome(code, why)))

    def _close(self, step: Step) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(step.pipes[_IN])
        step.close()

    def _tick(self, step: Step, now: float) -> None:
        if step.closed_at is None and step.went_at is None:
            self._start(step, now)
        elif step.closed_at is None:
            self._follow(step, now)
        if step.closed_at is not None:
            if step.exited:
                self._forget(step)
            elif now > step.closed_at + CLOSE_S:
                step.kill()
                if now > step.closed_at + 2 * CLOSE_S:
                    self._forget(step)

    def _forget(self, step: Step) -> None:
        for pipe in step.pipes[_OUT:]:
            with contextlib.suppress(KeyError):
                self._selector.unregister(pipe)
        if not step.exited:
            step.process.kill()
        for stream in (step.process.stdout, step.process.stderr):
            assert stream
            stream.close()
        step.process.wait(CLOSE_S)
        del self._steps[step]

    def _start(self, step: Step, now: float) -> None:
        """Let it go when all its nodes are there; where some do not come, begin again without them."""
        missing = step.missing
        if not missing and not step.exited:
            self._suspects.difference_update(step.kept)
            step.go()
            return
        if not step.exited and now < step.began_at + self._start_s:
            return
        tries = self._steps[step]
        named = {each.command.node: step.named(each.command.node) for each in step.active}
        bad = [each for each in missing if named[each.command.node]] or missing or step.active
        none = len(bad) == len(step.active)
        late = f"no word of it within {self._start_s:g} s" if not step.exited else "srun ended without it"
        for each in step.active if tries == TRIES else bad:
            node = each.command.node
            self._end(each, None, named[node] or step.complaint or late)
            if not none or len(bad) == 1:
                self._suspects.add(node)
        again = step.active
        self._close(step)
        step.kill()
        if again:
            self._waiting.appendleft(((step.place, again), tries + 1))

    def _follow(self, step: Step, now: float) -> None:
        """End the nodes that take too long, and the step when nobody is left."""
        assert step.went_at is not None
        for each in step.active:
            if each.garbled:
                self._end(each, None, each.garbled)
            elif step.exited:
                code = step.process.returncode
                node = each.command.node
                self._end(each, None, step.named(node) or step.complaint or f"srun ended with code {code}")
            elif not each.running and now > step.went_at + self._start_s:
                self._end(each, None, f"no start within {self._start_s:g} s")
            elif now > step.went_at + self._start_s * (not each.running) + each.request.budget_s + SLACK_S:
                self._end(each, None, step.named(each.command.node) or "no word of it after its deadline")
        if not step.active:
            self._close(step)

    def _tell_alive(self) -> None:
        now = time.monotonic()
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_S
            for step in self._steps:
                for each in step.active:
                    if each.running:
                        self._progress(each.command, {})

    def _obey(self, now: float) -> None:
        """Do what `stop` and `kill` ask for."""
        if self._stop_at is None and self._kill_at is None:
            return
        if not self._told:
            self._told = True
            self._waiting.clear()
            for step in self._steps:
                if step.went_at is None:
                    for each in step.active:
                        self._end(each, None, INTERRUPTED)
                    self._close(step)
                    step.kill()
                else:
                    step.out += b"stop\n"
            gone = {id(each) for step in self._steps for each in step.active}
            for each in self._all:
                if id(each) not in gone:
                    self._end(each, None, INTERRUPTED)
        if self._kill_at is not None and not self._killed:
            self._killed = True
            for step in self._steps:
                step.out += b"kill\n" if step.went_at is not None and step.closed_at is None else b""
        active = [each for step in self._steps for each in step.active]
        grace_s = max((each.command.grace_s for each in active), default=0.0)
        over = self._kill_at is not None and now > self._kill_at + KILL_S
        if over or (self._stop_at is not None and now > self._stop_at + grace_s + SLACK_S + KILL_S):
            for each in active:
                self._end(each, None, INTERRUPTED)
