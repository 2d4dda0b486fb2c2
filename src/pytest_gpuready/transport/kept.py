"""The controller's end of a kept command: what is sent to the node for it, and what came back, read line by line.

The remote shell sees one fixed line. Everything else (the keeper's source, the words of the command, the agent) goes
through stdin: no shell ever reads the words, and the line is the same for sh, csh and fish.
"""

from __future__ import annotations

import base64
import datetime
import math
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import LostError, StoppedError
from pytest_gpuready.transport.agent_environment import agent_environment
from pytest_gpuready.transport.agent_zip import OLDEST, AgentZip
from pytest_gpuready.transport.keeper import CHUNK, FLUSH_S
from pytest_gpuready.transport.progress_lines import ProgressLines
from pytest_gpuready.transport.rubbish import KEPT_BYTES, begins_as_answer, is_answer, shortened

KILL_AFTER_S = 5
"""What `timeout -k` leaves a keeper that itself hangs."""

INTERRUPTED = "the run was interrupted"
"""Why one no longer waits for a command, where the person pressed Ctrl-C."""

SLACK_S = 5.0
"""What starting and the way back may take beyond all other deadlines."""

NOISE_BYTES = 262_144
"""What may come from a node beside the command's own output: banners, warnings, a login shell that talks."""

SSH_FAILED = 255
"""What ssh itself exits with where there is no connection, or no longer."""

ANY_LENGTH = (CHUNK, "")
"""What a keeper says in one line where the way back carries lines of any length."""

LINE_BYTES = 65_536
"""Bytes of a line that a keeper says; a longer one is garbage."""

_SHOWN = 200
_KEPT_NOISE = 4096
_SOURCE = (Path(__file__).parent / "keeper.py").read_text(encoding="utf-8")
_BOOT = "import io;exec(io.BufferedReader(io.FileIO(0,closefd=False),1).read({size}))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One command as it is sent to any number of nodes: the line for the remote shell and what follows on stdin."""

    word: str
    python: str
    line: str
    stdin: bytes
    budget_s: float
    """By when a node that was reached has said the end of it, whatever happens to the command."""


def request(
    command: Command,
    *,
    python: str,
    agent: AgentZip | None,
    patience_s: float,
    max_bytes: int,
    environment: Mapping[str, str] | None = None,
    shape: tuple[int, str] = ANY_LENGTH,
) -> Request:
    """How a node is asked for this command; an agent command carries the agent and is given the environment.

    `shape` is what the way back can carry: bytes of output in one line, and what each line ends with.
    """
    word = f"gpuready-{secrets.token_hex(8)}"
    is_agent = command.argv[0] == PYTHON
    argv = (python, *command.argv[1:]) if is_agent else command.argv
    limits = (command.timeout_s, command.grace_s, patience_s, max_bytes)
    variables = agent_environment(command, environment or {})
    carry = (len(agent.data), agent.sha256, OLDEST) if is_agent and agent else None
    # ascii: words that are no text travel as the surrogates that the node turns back into the same bytes.
    call = (
        f"\nmain({word!a}, {argv!a}, limits={limits!r}, environment={variables!a}, carry={carry!r}, shape={shape!a})\n"
    )
    source = (_SOURCE + call).encode("utf-8")
    ends_s = command.timeout_s + command.grace_s + 2 * patience_s
    words = ["timeout", "-k", str(KILL_AFTER_S), str(math.ceil(ends_s + FLUSH_S + SLACK_S)), python, "-I", "-S", "-c"]
    return Request(
        word=word,
        python=python,
        line=f"exec {shlex.join([*words, _BOOT.format(size=len(source))])}",
        stdin=source + (agent.data if carry and agent else b""),
        budget_s=ends_s + SLACK_S,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Kept:
    """One command on one node while it runs, from what the transport hears of it.

    `garbled` says what cannot be the answer of a keeper, "" as long as all can.
    """

    command: Command
    request: Request
    max_bytes: int
    said: Callable[[dict[str, object]], None]
    login: str = "ssh"
    """How a person logs in there."""
    picked_at: float | None = None
    ended_at: float | None = None
    """When the node said the end of it."""
    started: str = ""
    running: bool = False
    garbled: str = ""
    done: bool = False
    _stdout: bytearray = field(default_factory=bytearray)
    _stderr: bytearray = field(default_factory=bytearray)
    _noise: bytearray = field(default_factory=bytearray)
    _noise_bytes: int = 0
    _heard: dict[bytes, int] = field(default_factory=lambda: {b"o": 0, b"e": 0})
    _end: list[bytes] | None = None
    _failed: str | None = None
    _lines: ProgressLines | None = None

    def pick(self) -> None:
        """The transport turns to this node now."""
        self.picked_at = time.monotonic()
        self.started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")

    def hear(self, line: bytes, *, aside: bool) -> None:
        """A line of what the node sent, `aside` where it came on ssh's own stderr."""
        word = self.request.word.encode("ascii") + b" "
        if aside or not line.startswith(word) or self._end is not None:
            self._hear_noise(line)
            return
        kind, *words = line[len(word) :].split(b" ")
        try:
            self._take(kind, words)
        except (ValueError, IndexError):  # binascii.Error is a ValueError
            self.garbled = self.garbled or f"a line that no keeper says: {shown(line[len(word) :])!r}"

    def _take(self, kind: bytes, words: list[bytes]) -> None:
        if kind == b"start":
            self.running = True
            self._lines = ProgressLines(self.said)
        elif kind in (b"o", b"e"):
            piece = base64.b64decode(words[0], validate=True)
            buffer = self._stdout if kind == b"o" else self._stderr
            if kind == b"e" and self._lines:
                piece = self._lines.feed(piece)
            self._heard[kind] += len(piece)
            if self._heard[kind] > self.max_bytes:
                raise ValueError("more than any keeper sends")
            buffer += piece
            if len(buffer) > 2 * KEPT_BYTES and self.command.argv[0] == PYTHON:
                if kind == b"e":
                    del buffer[:-KEPT_BYTES]
                elif not begins_as_answer(buffer):
                    del buffer[KEPT_BYTES + 1 :]  # one more says that there was more
        elif kind == b"failed":
            self._failed = base64.b64decode(words[0], validate=True).decode("utf-8", errors="replace")
        elif kind == b"end":
            code, late, cut, seconds, unkillable, told_by = words
            _ = (code == b"-" or int(code), int(late), int(cut), int(unkillable), int(told_by))
            if not 0 <= float(seconds) < math.inf:
                raise ValueError("no time that a command takes")
            self._end = words
            self.ended_at = time.monotonic()
        else:
            raise ValueError("unknown word")

    def _hear_noise(self, line: bytes) -> None:
        self._noise_bytes += len(line) + 1
        self._noise += line[:_KEPT_NOISE] + b"\n"
        del self._noise[:-_KEPT_NOISE]
        if self._noise_bytes > NOISE_BYTES:
            self.garbled = self.garbled or f"more than {NOISE_BYTES} bytes that are not the command's"

    def outcome(self, code: int | None, why: str) -> CommandResult | TransportError:
        """What came of it, to be asked for once; `code` is what the way to the node ended with, `why` what ended the
        wait for it ("" where it ended)."""
        try:
            return self._outcome(code, why)
        finally:  # a fan-out holds every node of it until the last has ended
            self._stdout, self._stderr = bytearray(), bytearray()

    def _outcome(self, code: int | None, why: str) -> CommandResult | TransportError:
        node = self.command.node
        if self.garbled:
            return TransportError(f"{node}: expected the answer of a keeper, found {self.garbled}; log in and look")
        if self._failed is not None:
            return TransportError(f"{node}: {self._not_started(self._failed)}")
        if self._end is not None:
            return self._ended(self._end)
        if why == INTERRUPTED:
            return StoppedError(f"{node}: {why}")
        return self.without_end(code, why)

    def without_end(self, code: int | None, why: str) -> TransportError:
        """What is known of a command whose end nobody said; `code` is ssh's own."""
        node = self.command.node
        noise = shown(bytes(self._noise).strip().rpartition(b"\n")[2])
        found = why or f"ssh ended with code {code}"
        if self.running:
            return LostError(
                f"{node}: expected to hear how {shown_word(self.command)} ended, found "
                f"{found}{': ' if noise else ''}{noise}; see whether the node is up",
                self._result(None),
            )
        if why or code == SSH_FAILED:
            todo = f"see that `{self.login} {node} true` works"
            return TransportError(f"{node}: expected to log in by ssh, found {noise or found}; {todo}")
        return TransportError(
            f"{node}: expected {self.request.python} and timeout (coreutils) there, found {noise or found}; "
            "install them or name another Python"
        )

    def _ended(self, end: list[bytes]) -> CommandResult | TransportError:
        late, told_by = int(end[1]), int(end[5])
        if late or not told_by:
            return self._result(end)
        # It may have ended well in its grace: what it had done until then is still not all of it.
        return LostError(
            f"{self.command.node}: expected {shown_word(self.command)} to end by itself, found it ended by signal "
            f"{told_by} from outside; see who ended it there",
            self._result(end),
        )

    def _not_started(self, why: str) -> str:
        failed = shown(why.encode("utf-8", errors="replace"))
        if self.command.argv[0] == PYTHON:
            return f"expected {self.request.python} to start the agent, found {failed}; name another Python"
        return f"expected to start {shown_word(self.command)}, found {failed}; install it or correct PATH"

    def _result(self, end: list[bytes] | None) -> CommandResult:
        """The result; without an end what was heard until now."""
        stderr = bytes(self._stderr) + (self._lines.rest() if self._lines else b"")
        code, late, cut, seconds, unkillable, told_by = end or (b"-", b"0", b"0", b"0", b"0", b"0")
        if int(cut):
            stderr += f"\noutput beyond {self.max_bytes} bytes was cut and the command ended".encode()
        given_up = int(unkillable)
        result = CommandResult(
            command=self.command,
            exit_code=None if int(late) or given_up or int(told_by) or code == b"-" else int(code),
            stdout=self._stdout.decode("utf-8", errors="replace"),
            stderr=stderr.decode("utf-8", errors="replace"),
            started=self.started,
            duration_s=float(seconds) if end else round(time.monotonic() - (self.picked_at or time.monotonic()), 4),
            timed_out=bool(int(late)),
            unkillable=f"process {given_up} did not end on SIGKILL" if given_up else "",
        )
        if self.command.argv[0] != PYTHON or len(self._stdout) <= KEPT_BYTES or is_answer(self._stdout):
            return result
        return shortened(result)


def shown_word(command: Command) -> str:
    """The first word of a command, to show it."""
    return repr(shown(command.argv[0].encode("utf-8", errors="replace")))


def shown(text: bytes) -> str:
    """What somebody else wrote, fit for one line of ours."""
    plain = "".join(c if c.isprintable() else "?" for c in text[: 4 * _SHOWN].decode("utf-8", errors="replace"))
    return plain[:_SHOWN]
