"""The crew's end of one rank: what it was asked, what it answered, and why it answers no more.

Nothing of a rank is believed because it came: an answer has to be the one that was asked for, of the type that it has
to be, with numbers that can be. The line that is not ends the rank.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_gpuready.agent.stress import answers, children
from pytest_gpuready.agent.stress.answers import WrongError
from pytest_gpuready.model.agent_doc import Wire
from pytest_gpuready.model.collectives_doc import Step, StepResult
from pytest_gpuready.model.collectives_shape import IN_PLACE

LARGEST = 2**18
"""Bytes of a line."""

TAIL = 2000
"""Bytes of its stderr that are kept, from the end."""

OWN_WORDS = 500
DRAIN_S = 0.5
"""How long its pipes are read when it has ended."""

STOP_S = 5.0
"""How long it has to leave the communicator and end."""

ID_HEX = 256
MOST_SAID = 16
"""Words that it may say in a step."""


class Here(Wire, frozen=True, kw_only=True):
    """Its first answer."""

    bdf: str
    name: str
    pid: int
    nccl_version: str
    packages: dict[str, str]
    start_s: float
    id: str


class Joined(Wire, frozen=True, kw_only=True):
    """It is in the communicator."""

    init_s: float
    free_bytes: int


class Hand:
    """One rank. Its pipes are read by somebody else, who feeds what comes and calls `look` every turn."""

    def __init__(self, rank: int, bdf: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.rank = rank
        self.bdf = bdf
        self.here: Here | None = None
        self.joined: Joined | None = None
        self.result: StepResult | None = None
        """Of the step that it was asked for last."""
        self.stage = ""
        """At which part of the step it is."""
        self.problem = ""
        self.own_words = False
        """True where `problem` is its own; else it died, hangs, or said what it should not."""
        self.waits = False
        """True where it says that it waits for something that does not come."""
        self.note = ""
        self.stopping = False
        self.process: subprocess.Popen[bytes] | None = None
        self._asked = ""
        self._largest = 0
        self._step: Step | None = None
        self._said = 0
        self._tail = bytearray()
        self._stderr = bytearray()
        self._pending = bytearray()
        self._open = False
        self._gone_at: float | None = None
        self._ended = self._closed = False
        try:
            self.process = children.start([*command, bdf], environment=environment)
        except OSError as error:
            self.problem = f"expected to start the process, found {error.strerror}"
            return
        self._open = True
        if self.process.stdin:
            os.set_blocking(self.process.stdin.fileno(), False)

    # --- what it is asked -------------------------------------------------------------------------------------------

    def ask(self, line: Mapping[str, Any], answer: str) -> None:
        """One line; it owes an answer of this name."""
        if self.over:
            return
        self._asked = answer
        if answer == "done":
            self._step, self.result, self.stage, self._said = line["step"], None, "", 0
        elif answer == "allocated":
            self._largest = line["largest"]
        self._tell(msgspec.json.encode(line))

    def stop(self) -> None:
        """Have it leave and end."""
        if not self.over:
            self.stopping = True
            self._tell(b'{"stop":true}')

    # --- how it stands ----------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True where nothing more comes from it."""
        return bool(self.problem) or self._ended

    @property
    def busy(self) -> bool:
        """True where it owes an answer."""
        return not self.over and bool(self._asked)

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    def look(self) -> None:
        """Whether it has ended, and whether its pipe has room again."""
        if self._ended or self.process is None:
            return
        self._push()
        if self.process.poll() is not None:
            now = time.monotonic()
            self._gone_at = now if self._gone_at is None else self._gone_at
            if not self._open or now > self._gone_at + DRAIN_S:
                self._end()

    def late(self, seconds: float) -> None:
        """The time to answer is over."""
        if self.busy:
            at = f", at {self.stage!r}" if self.stage else ""
            self.problem = f"expected an answer within {seconds:.1f} s, found none: it hangs{at}"

    def kill(self) -> None:
        """SIGKILL for whatever is left of it."""
        if self.process and not self._closed:
            children.kill(self.process)

    def close(self, patience_s: float) -> None:
        """Kill it and wait a moment for its end; once."""
        if self.process and not self._closed and not children.gone(self.process, patience_s):
            self.note = f"process {self.process.pid} did not end on SIGKILL"
        self._closed = True

    # --- what it says -----------------------------------------------------------------------------------------------

    def hear(self, piece: bytes) -> None:
        """Take what it printed; nothing is the end of it."""
        if not piece:
            self._open = False
        if self.over:
            return
        self._tail += piece
        while not self.over and (at := self._tail.find(b"\n")) >= 0:
            line = bytes(self._tail[:at])
            del self._tail[: at + 1]
            try:
                if len(line) > LARGEST:
                    raise WrongError(f"expected lines of at most {LARGEST} bytes, found a longer one")
                self._take(answers.decoded(line))
            except WrongError as wrong:
                self.problem = str(wrong)
        if len(self._tail) > LARGEST and not self.over:
            self.problem = f"expected lines of at most {LARGEST} bytes, found a longer one"

    def hear_error(self, piece: bytes) -> None:
        """Take what it printed on stderr."""
        self._stderr += piece
        del self._stderr[:-TAIL]

    def _take(self, line: dict[str, Any]) -> None:
        if isinstance(line.get("problem"), str):
            self.own_words, self.waits = True, line.get("waits") is True
            self.problem = answers.plain(line["problem"], OWN_WORDS) or "a failure without a word about it"
        elif "said" in line and self._asked == "done":
            self._said += 1
            if self._said > MOST_SAID:
                raise WrongError("expected a word at each part of the step, found a flood of them")
            self.stage = answers.plain(str(line.get("stage")), 40)
        elif not self._asked or self._asked not in line:
            raise WrongError(f"expected {self._asked or 'nothing'}, found {answers.plain(repr(line))}")
        else:
            getattr(self, f"_{self._asked}")(line)
            self._asked = ""

    def _here(self, line: dict[str, Any]) -> None:
        found = _decoded(line["here"], Here)
        if found.bdf != self.bdf or (self.process and found.pid != self.process.pid):
            raise WrongError(f"expected GPU {self.bdf}, found that {answers.plain(found.bdf)} was taken")
        if found.id and (len(found.id) != ID_HEX or set(found.id) - set("0123456789abcdef")):
            raise WrongError(f"expected a unique id of {ID_HEX} hexadecimal digits, found {answers.plain(found.id)!r}")
        _sane(found.start_s)
        self.here = found

    def _joined(self, line: dict[str, Any]) -> None:
        found = _decoded(line["joined"], Joined)
        _sane(found.init_s, found.free_bytes)
        self.joined = found

    def _allocated(self, line: dict[str, Any]) -> None:
        if line["allocated"] != self._largest:
            raise WrongError(f"expected {self._largest} bytes of memory, found {answers.plain(repr(line))}")

    def _done(self, line: dict[str, Any]) -> None:
        step = self._step
        assert step is not None
        if type(line["done"]) is not int or line["done"] != step.number:
            raise WrongError(f"expected the end of step {step.number}, found {answers.plain(repr(line['done']))}")
        found = _decoded(line.get("result"), StepResult)
        halves = [half for half in (found.out_of_place, found.in_place) if half is not None]
        _sane(*(half.time_us for half in halves), *found.times_us)
        _sane(*(half.wrong for half in halves if half.wrong is not None))
        if len(found.times_us) != step.iterations:
            raise WrongError(f"expected {step.iterations} single iterations, found {len(found.times_us)}")
        if (found.in_place is None) == (step.op in IN_PLACE):
            raise WrongError(f"expected {step.op} {'also ' if step.op in IN_PLACE else 'only out of '}in place")
        if min(half.time_us for half in halves) <= 0:
            raise WrongError("expected times above 0, found none")
        counts = {False: found.out_of_place.wrong or 0, True: (found.in_place and found.in_place.wrong) or 0}
        if any(one.count != counts[one.in_place] or one.op != step.op for one in found.wrong) or (
            sum(map(bool, counts.values())) != len(found.wrong)
        ):
            raise WrongError("expected a place for each count of wrong elements, found others")
        self.result = found

    # --- its end ----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        assert self.process is not None
        self._ended = True
        how = children.how_it_ended(self.process.returncode)
        if self.problem:
            return
        if not self.stopping:
            self.problem = f"expected an answer, found the end of its process: {how}"
        elif self.process.returncode:
            self.note = f"expected its end in order, found: {how}"

    def _tell(self, line: bytes) -> None:
        self._pending += line + b"\n"
        self._push()

    def _push(self) -> None:
        if not self._pending or self.process is None or self.process.stdin is None:
            return
        with contextlib.suppress(OSError):
            written = os.write(self.process.stdin.fileno(), self._pending)
            del self._pending[:written]


def _decoded(said: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(said), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError, OverflowError) as error:
        raise WrongError(f"expected {kind.__name__}, found {answers.plain(str(error))}") from error


def _sane(*numbers: float) -> None:
    if not all(math.isfinite(number) and 0 <= number < 2**63 for number in numbers):
        raise WrongError("expected numbers from 0 on, found others")
