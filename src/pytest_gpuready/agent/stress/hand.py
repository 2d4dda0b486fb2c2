"""The crew's end of one worker: what it was told, what it answered, and why it answers no more.

Whatever goes wrong ends this worker and costs this GPU alone: its process group is killed, `problem` says why in one
line, and what it reported before stays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import time
from collections.abc import Sequence

import msgspec

from pytest_gpuready.agent.stress import answers, children
from pytest_gpuready.agent.stress.answers import Asked, LateError, WrongError
from pytest_gpuready.model.stress_doc import Phase, Ready, Result, Work

LARGEST = 2**20
"""Bytes of a line."""

KEPT = 4 * 2**20
"""Bytes of all results of a worker: whoever reads the document has to get it whole."""

TAIL = 2000
"""Bytes of its stderr that are kept, from the end."""

OWN_WORDS = 400
"""Signs of what it says about a failure."""

SAID_AT_ONCE, SAID_PER_S = 20, 5
STOP_S = 3.0
"""How long it has to end when it was told to; it promises one second."""

DRAIN_S = 0.5
"""How long its pipes are read when it has ended: who still holds them then was left behind by it."""


class Hand:
    """One worker. Its pipes are read by somebody else, who feeds what comes and calls `look` every turn."""

    def __init__(self, bdf: str, command: Sequence[str]) -> None:
        self.bdf = bdf
        self.ready: Ready | None = None
        self.problem = ""
        """Why it answers no more."""
        self.results: dict[int, Result] = {}
        self.failed: dict[int, str] = {}
        """Phase of the worker -> why it has no result, in its own words or ours."""
        self.done_at = 0.0
        """When the last phase was reported."""
        self.stopping = False
        self.knows = False
        """It has said that it knows enough in this phase."""
        self.process: subprocess.Popen[bytes] | None = None
        self._asked: Asked | None = None
        self._deadline = float("inf")
        self._late = ""
        self._pending = bytearray()
        self._tail = bytearray()
        self._searched = 0
        self._stderr = bytearray()
        self._open = False
        self._said, self._kept = 0, 0
        self._began = time.monotonic()
        self._gone_at: float | None = None
        self._ended = False
        self._closed = False
        try:
            self.process = children.start([*command, bdf])
        except OSError as error:
            self.problem = f"expected to start the worker, found {error.strerror}"
            return
        self._open = True
        if self.process.stdin:
            os.set_blocking(self.process.stdin.fileno(), False)

    # --- what it is told --------------------------------------------------------------------------------------------

    def give(self, work: Work, seconds: float) -> None:
        """The first line: all its phases. It has so many seconds to be ready."""
        self._tell(msgspec.json.encode({"work": work}))
        self._wait(seconds, f"expected it ready within {seconds:g} s, found no answer")

    def begin(self, number: int, phase: Phase, at: float) -> None:
        """Have it begin a phase at that moment."""
        self._asked = Asked(number=number, phase=phase, at=at)
        self.knows = False
        self._tell(msgspec.json.encode({"begin": number, "at": at}))
        most = phase.seconds + phase.grace_s if phase.seconds else phase.limit_s
        self._deadline = at + most
        self._late = f"expected the end of the phase within {most:g} s, found none: it hangs"

    def enough(self) -> None:
        """Have it end the phase and report it: all GPUs know enough."""
        if self._asked is None or self.stopping or self.over:
            return
        self._asked = dataclasses.replace(self._asked, enough=True)
        self._tell(msgspec.json.encode({"enough": self._asked.number}))
        most = min(self._asked.phase.grace_s, max(0.0, self._deadline - time.monotonic()))
        self._wait(most, f"expected the end of the phase within {most:.0f} s of being told, found none: it hangs")

    def disown(self, number: int, why: str) -> None:
        """The result of this phase does not count after all."""
        if self.results.pop(number, None) is not None:
            self.failed[number] = why

    def stop(self) -> None:
        """Have it end what it does, report that, and exit."""
        if self.stopping or self.over:
            return
        self.stopping = True
        self._tell(b'{"stop":true}')
        self._wait(STOP_S, f"expected its end within {STOP_S:g} s of being told, found none: it hangs")

    # --- how it stands ----------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True where nothing more comes from it."""
        return bool(self.problem) or self._ended

    @property
    def usable(self) -> bool:
        """True where it can be told to begin a phase."""
        return self.ready is not None and not self.over and not self.stopping

    @property
    def busy(self) -> bool:
        """True where it owes us an answer."""
        return not self.over and (self._asked is not None or self.ready is None)

    @property
    def stderr(self) -> str:
        """The end of what it printed there."""
        return self._stderr.decode("utf-8", "replace")

    def look(self) -> None:
        """What time alone brings: a deadline that passed, a process that ended, a pipe that has room again."""
        if self.over or self.process is None:
            return
        self._push()
        now = time.monotonic()
        if self.process.poll() is not None:
            # A pipe that is still open is held by somebody whom it left behind.
            self._gone_at = now if self._gone_at is None else self._gone_at
            if not self._open or now > self._gone_at + DRAIN_S:
                self._end()
        elif now > self._deadline:
            self._lose(self._late)

    def kill(self) -> None:
        """SIGKILL for whatever is left of it."""
        if self.process and not self._closed:
            children.kill(self.process)

    def close(self, patience_s: float = children.KILL_S) -> None:
        """Kill it and wait a moment for its end; once."""
        if self.process and not self._closed and not children.gone(self.process, patience_s):
            why = f"process {self.process.pid} did not end on SIGKILL"
            self.problem = f"{self.problem}; {why}" if self.problem else why
        self._closed = True

    # --- what it says -----------------------------------------------------------------------------------------------

    def hear(self, piece: bytes) -> None:
        """Take what it printed; nothing is the end of it."""
        if self.over:
            return
        if not piece:
            self._open = False
            if self.stopping:  # it goes, and what it had of the GPU may take its time
                return
            self._wait(
                min(DRAIN_S, max(0.0, self._deadline - time.monotonic())),
                "expected its end, found that it closed its output",
            )
            return
        self._tail += piece
        while not self.over and (at := self._tail.find(b"\n", self._searched)) >= 0:
            line = bytes(self._tail[:at])
            del self._tail[: at + 1]
            self._searched = 0
            if len(line) > LARGEST:
                break
            self._take(line)
        self._searched = len(self._tail)
        if len(self._tail) > LARGEST and not self.over:
            self._lose(f"expected lines of at most {LARGEST} bytes, found a longer one")
        if self.over:
            self._tail.clear()

    def hear_error(self, piece: bytes) -> None:
        """Take what it printed on stderr."""
        self._stderr += piece
        del self._stderr[:-TAIL]

    def _take(self, text: bytes) -> None:
        now = time.monotonic()
        try:
            line = answers.decoded(text)
            if "said" in line:
                self._said += 1
                if self._said > SAID_AT_ONCE + SAID_PER_S * (now - self._began):
                    raise WrongError("expected a word a second, found a flood of them")
                self.knows = answers.progress(line, self._asked, now) or self.knows
            elif "done" in line:
                self._kept += len(text)
                if self._kept > KEPT:
                    raise WrongError(f"expected results of at most {KEPT} bytes, found more")
                found = answers.result(line, self._asked, now)
                assert self._asked is not None
                self.results[self._asked.number] = found
                self._answered(now)
            elif "failed" in line:
                if self._asked is None or line["failed"] != self._asked.number:
                    raise WrongError("expected the failure of its own phase, found another")
                self.failed[self._asked.number] = _told(line)
                self._answered(now)
            elif "ready" in line and self.ready is None:
                self.ready = answers.ready(line["ready"], self.bdf)
                self._deadline = float("inf")
            elif "problem" in line:
                self._lose(_told(line))
            else:
                raise WrongError(f"expected an answer, found {answers.shown(text)}")
        except LateError as late:
            assert self._asked is not None
            self.failed[self._asked.number] = str(late)
            self._answered(now)
        except WrongError as wrong:
            self._lose(str(wrong))

    def _answered(self, now: float) -> None:
        self._asked = None
        self.done_at = now
        if not self.stopping:
            self._deadline = float("inf")

    # --- its end ----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        assert self.process is not None
        self._ended = True
        how = children.how_it_ended(self.process.returncode)
        if self._tail:
            self._lose(f"expected whole lines, found its end ({how}) in the middle of one")
        elif self._asked is not None or (self.ready is None and not self.stopping):
            when = "before it was ready" if self.ready is None else "in the middle of the phase"
            self._lose(f"expected an answer, found the end of the worker {when}: {how}")
        elif not self.stopping:
            self._lose(f"expected it to wait for its next phase, found its end: {how}")
        elif self.process.returncode:
            self._lose(f"expected its end in order when it was told to, found: {how}")

    def _lose(self, why: str) -> None:
        self.problem = self.problem or why
        if self.process:
            children.kill(self.process)

    def _wait(self, seconds: float, late: str) -> None:
        self._deadline, self._late = time.monotonic() + seconds, late

    def _tell(self, line: bytes) -> None:
        self._pending += line + b"\n"
        self._push()

    def _push(self) -> None:
        """Write what is pending, as far as there is room: a worker that does not read must not hold us."""
        if not self._pending or self.process is None or self.process.stdin is None:
            return
        with contextlib.suppress(OSError):
            written = os.write(self.process.stdin.fileno(), self._pending)
            del self._pending[:written]


def _told(line: dict[str, object]) -> str:
    """Its own words."""
    text = line.get("problem")
    return (
        answers.plain(text, OWN_WORDS)
        if isinstance(text, str) and text.strip()
        else "a failure without a word about it"
    )
