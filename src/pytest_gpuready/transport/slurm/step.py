"""One srun: the same command on many nodes, one task each, and who of them said what.

Nothing is guessed. Each task first says its number, its node and its step in Slurm's own words; srun labels each line
with the number; a line of a number that has not said its node is nobody's. And nothing begins before all have said
so: srun ends a whole step where one node does not start, and then the others are asked again without that node.

srun passes lines of up to 1,024 bytes on as they are and cuts longer ones, and whatever is left when a task has ended,
into pieces with a label each. So a keeper's lines are short, and each ends with a full stop: what has none goes on in
the next piece of the same task.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError, TransportError
from pytest_gpuready.parse.hostlist import expand
from pytest_gpuready.transport import LostError
from pytest_gpuready.transport.kept import LINE_BYTES, Kept, Request, shown, shown_word
from pytest_gpuready.transport.slurm.commands import ask, environment, fold

SHAPE = (690, " .")
"""What a keeper says in one line: 920 signs of base64 and about 30 around them, and how it ends."""

END = SHAPE[1].encode("ascii")
KILLED = 128
"""A shell's exit code of what a signal ended, and more."""

CLOSE_S = 3.0
"""How long srun may take to end when all its tasks have, and once more when it is killed."""

_LINE_MOST = 1100
_SAID = 200
_KILLS = re.compile(r": tasks? [0-9,-]+: (Killed|Terminated)")
_LABEL = re.compile(rb" *(\d{1,7}): ?")

# It stays when Slurm ends the step with SIGTERM, so that the keeper has its grace: srun kills whoever is left behind.
_BOOT = (
    "trap : 1 2 15; unset SLURM_PTY_PORT; echo; "
    'echo "$0 at $SLURM_PROCID $SLURMD_NODENAME $SLURM_JOB_ID.$SLURM_STEP_ID ."; "$@"; echo "$0 bye $? ."'
)

_ALWAYS = (
    "--overlap",
    "--ntasks-per-node=1",
    "--label",
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--mem=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--chdir=/",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a step runs: the job that has the nodes, how many GPUs it holds on each of them, further words for srun."""

    job: str
    gpus: int
    options: tuple[str, ...]

    def words(self, nodes: Sequence[str], request: Request) -> list[str]:
        """The command line. No shell reads the words of the command."""
        there = shlex.split(request.line)
        assert there[0] == "exec"
        count = len(nodes)
        mine = [f"--jobid={self.job}", f"--nodes={count}", f"--ntasks={count}", f"--nodelist={fold(nodes)}"]
        if self.gpus:
            mine.append(f"--gres=gpu:{self.gpus}")  # a step of an exclusive job has none that it does not ask for
        return ["srun", *_ALWAYS, *mine, *self.options, "sh", "-c", _BOOT, request.word, *there[1:]]


class InStep(Kept):
    """A kept command in a step: like any other, but for what is said where its end was not heard of."""

    __slots__ = ()

    def without_end(self, code: int | None, why: str) -> TransportError:
        """What is known of it without an end; `code` is its task's, `why` what ended the wait for it."""
        node = self.command.node
        noise = shown(bytes(self._noise).strip().rpartition(b"\n")[2])
        found = why or noise or f"its task ended with code {code}"
        if code is not None and not self.running:
            return TransportError(
                f"{node}: expected {self.request.python} and timeout (coreutils) there, found {found}; "
                "install them or name another Python"
            )
        if self.running:
            return LostError(
                f"{node}: expected to hear how {shown_word(self.command)} ended, found {found}; "
                f"see `scontrol show node {node}`",
                self._result(None),
            )
        return TransportError(f"{node}: expected to start by srun, found {found}; see `scontrol show node {node}`")


class Step:
    """One srun from its start to its end. `ended` is told of each node once; nothing here waits."""

    def __init__(
        self, place: Place, kept: Mapping[str, InStep], ended: Callable[[InStep, int | None, str], None]
    ) -> None:
        self.place = place
        self.kept = dict(kept)
        self.request = next(iter(self.kept.values())).request
        self.out = bytearray()
        self.began_at = time.monotonic()
        self.went_at: float | None = None
        self.closed_at: float | None = None
        self.open = 2
        """How many of stdout and stderr have not ended."""
        self.said: deque[str] = deque(maxlen=_SAID)
        self._ended = ended
        self._word = self.request.word.encode("ascii")
        self._tasks: dict[int, InStep] = {}
        self._pending: dict[int, bytes] = {}
        self._tails = [b"", b""]
        self._step = ""
        self._killed = False
        words = self.place.words(list(self.kept), self.request)
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # srun ends a whole step where the connection to one node breaks, unless it thinks it serves a terminal.
                env={**environment(), "SLURM_PTY_PORT": "0"},
            )
        except OSError as error:
            raise TransportError(f"expected to start srun, found {error.strerror}; install slurm-client") from error
        self.pipes = [pipe.fileno() for pipe in (self.process.stdin, self.process.stdout, self.process.stderr) if pipe]
        """Our ends of its stdin, stdout and stderr."""
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
        for each in self.kept.values():
            each.pick()

    @property
    def active(self) -> list[InStep]:
        """Those that have not ended."""
        return [each for each in self.kept.values() if not each.done]

    @property
    def missing(self) -> list[InStep]:
        """Those that have not said where they are."""
        here = {id(each) for each in self._tasks.values()}
        return [each for each in self.active if id(each) not in here]

    @property
    def exited(self) -> bool:
        """True when srun has ended and all it said was heard."""
        return self.open == 0 and self.process.poll() is not None

    # --- what is said to it -------------------------------------------------------------------------------------------

    def go(self) -> None:
        """All are there: send them the command."""
        self.went_at = time.monotonic()
        self.out += self.request.stdin

    def close(self) -> None:
        """Nobody is waited for any more; tasks that are left see the end of their stdin."""
        self.closed_at = time.monotonic()
        self.out.clear()
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def kill(self) -> None:
        """End srun and what of the step is left on the nodes; call it again until `exited`."""
        if not self._killed:
            self._killed = True
            if self._step:
                with contextlib.suppress(TransportError):  # it may have ended by itself
                    ask("scancel", "--signal=KILL", self._step)
            self.process.terminate()  # with nothing to end srun takes its wish for a step back
        elif self.process.poll() is None:
            self.process.kill()

    # --- what it says -------------------------------------------------------------------------------------------------

    def hear(self, piece: bytes, *, aside: bool) -> None:
        """What srun printed, `aside` on its stderr."""
        *lines, tail = (self._tails[aside] + piece).split(b"\n")
        self._tails[aside] = tail[:LINE_BYTES]
        for line in lines:
            self._hear_line(line, aside)

    def _hear_line(self, line: bytes, aside: bool) -> None:
        label = _LABEL.match(line)
        if label is None:
            if aside and line:
                self._hear_srun(shown(line))
            return
        task, text = int(label[1]), line[label.end() :]
        each = self._tasks.get(task)
        if aside:
            if each and not each.done:
                each.hear(text, aside=True)
            elif not each:
                self.said.append(shown(text))
            return
        whole = self._whole(task, text, each)
        if whole is None:
            return
        kind, *words = whole[len(self._word) + 1 :].split(b" ")
        if kind == b"at":
            self._hear_where(task, [word.decode("ascii", errors="replace") for word in words])
        elif each and not each.done:
            if kind == b"bye":
                self._hear_bye(each, int(words[0]) if words and words[0].isdigit() else 255)
            else:
                each.hear(whole, aside=False)

    def _whole(self, task: int, text: bytes, each: InStep | None) -> bytes | None:
        """The whole line of ours, None as long as it is none."""
        before = self._pending.pop(task, b"")
        line = text if text.startswith(self._word) else before + text
        if not line or not (line.startswith(self._word) or self._word.startswith(line)) or len(line) > _LINE_MOST:
            if each and line and not each.done:
                each.hear(line, aside=True)
            return None
        if line.endswith(END) and len(line) > len(self._word):
            return line[: -len(END)]
        self._pending[task] = line
        return None

    def _hear_where(self, task: int, words: list[str]) -> None:
        number, node, step = words if len(words) == 3 else ("", "", "")
        each = self.kept.get(node)
        if number != str(task) or each is None or task in self._tasks or each in self._tasks.values():
            self.said.append(f"task {task} answered as task {number[:8]} on {node[:64]}, who was not asked for there")
            return
        self._tasks[task] = each
        if re.fullmatch(r"\d+\.\d+", step):
            self._step = step

    def _hear_bye(self, each: InStep, code: int) -> None:
        # Before the command was sent only a lack of what it needs ends a task by itself; what is killed then is killed
        # by srun, because another node did not start.
        if self.went_at is not None or code < KILLED:
            self._ended(each, code, "")

    def _hear_srun(self, line: str) -> None:
        self.said.append(line)
        failed = re.search(r"Node failure on (\S+)", line)
        if failed:
            with contextlib.suppress(ParseError):
                for node in expand(failed[1]):
                    if node in self.kept and not self.kept[node].done:
                        self._ended(self.kept[node], None, line)

    def named(self, node: str) -> str:
        """The last that srun said about this node but that it killed its task, "" where it said nothing."""
        for line in reversed(self.said):
            if _KILLS.search(line):
                continue
            for word in re.findall(r"[A-Za-z0-9._-]+(?:\[[0-9,-]+\][A-Za-z0-9._-]*)*", line):
                with contextlib.suppress(ParseError):
                    if word == node or ("[" in word and node in expand(word)):
                        return line
        return ""

    @property
    def complaint(self) -> str:
        """The last error that srun printed."""
        errors = [line for line in self.said if "error: " in line] or list(self.said)
        return errors[-1] if errors else ""
