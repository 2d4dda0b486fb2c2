"""Runs ON the node, beside every command that is sent there: the node's end of `transport.kept`.

It is sent as text with each command and needs only Python 3.8 and its standard library; nothing of it stays. The
command runs in a session of its own, under its deadline, its output bounded, and it is told to end (SIGTERM, its
grace, SIGKILL) at its deadline, when it is asked for, and when the controller dies: stdin is open as long as it lives.
What the command started ends with it, also what has left its session.

What it says, line by line, each beginning with the word that the controller chose for this command:

    WORD start                                 the command runs
    WORD o BASE64, WORD e BASE64               a piece of its stdout, of its stderr
    WORD end CODE LATE CUT SECONDS UNKILLABLE SIGNAL
                                               CODE as Python sees it; flags 0 or 1; process id that survived or 0;
                                               the signal by which somebody else told us to end, or 0
    WORD failed BASE64                         it could not be started, and why

Only such lines are the command's: whatever a login shell prints around them is noise. On stdin it hears "stop" (end
with grace) and "kill" (end now), a line each.
"""

from __future__ import annotations

import binascii
import io
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    # What signal adds to it are enumerations; to import them takes a third of the time of a whole keeper.
    import _signal as signal

CHUNK = 32768
HELD = 1048576
"""Bytes that may wait for the controller to read them; beyond, the command has to wait as it would for a pipe."""

FLUSH_S = 10.0
"""How long the controller may take to read what is left when the command has ended."""

NOEXEC_SEAL = 8
"""Of memfd_create: nobody executes the file. Hardened kernels (vm.memfd_noexec) want to hear it."""

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class FailedError(Exception):
    """The command could not be started."""


class Keeper:
    """One command from its start to its end."""

    def __init__(self, word: str, argv: tuple[str, ...], limits: tuple[float, float, float, int]) -> None:
        self.word = word.encode("ascii")
        self.argv = argv
        self.timeout_s, self.grace_s, self.patience_s, self.max_bytes = limits
        self.tell_all = True
        self.piece = CHUNK
        self.tail = b""
        self.told_by = 0
        self.out = bytearray(b"\n")
        self.heard = b""
        self.streams: dict[int, bytes] = {}
        self.room: dict[int, int] = {}
        self.late = self.cut = self.gone = self.stop = False
        self.code: int | None = None
        self.told_at: float | None = None
        self.ended_at: float | None = None
        self.begin = time.monotonic()

    # --- the command --------------------------------------------------------------------------------------------------

    def start(self, environment: dict[str, str]) -> None:
        """Start the command in a session of its own. Raises FailedError."""
        (in_r, in_w), (out_r, out_w), (err_r, err_w), (fail_r, fail_w) = [os.pipe() for _ in range(4)]
        mark = f"{self.word.decode()}.{os.getpid()}"
        self.mark = b"GPUREADY_KEPT=" + mark.encode()
        env = {**os.environ, **environment, "GPUREADY_KEPT": mark}
        self.begin = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for number, end in enumerate((in_r, out_w, err_w)):
                    os.dup2(end, number)
                for signum in (signal.SIGPIPE, signal.SIGXFSZ, *SIGNALS, signal.SIGCHLD):
                    signal.signal(signum, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.execvpe(self.argv[0], self.argv, env)  # noqa: S606 - a list of words, as everywhere
            except OSError as error:
                os.write(fail_w, (os.strerror(error.errno or 0)).encode())
            except ValueError as error:
                os.write(fail_w, str(error).encode())
            finally:
                os._exit(127)
        for end in (in_r, out_w, err_w, fail_w):
            os.close(end)
        why = os.read(fail_r, 4096)
        os.close(fail_r)
        if why:
            os.waitpid(self.pid, 0)
            raise FailedError(why.decode("utf-8", "replace"))
        self.stdin = in_w  # stays open: its end tells an agent that we have died
        for end, name in ((out_r, b"o"), (err_r, b"e")):
            os.set_blocking(end, False)
            self.streams[end], self.room[end] = name, self.max_bytes

    def keep(self) -> None:
        """Pass on what it prints until it has ended, then end what is left of it and say how it went."""
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.wake = wake_r
        self.say(b"start")
        while self.goes_on():
            self.turn(self.wait_s())
        seconds = time.monotonic() - self.begin
        unkillable = self.end_all()
        self.reap()
        self.drain()
        code = "-" if self.code is None else str(self.code)
        how = (code.encode(), self.late, self.cut, seconds, unkillable, self.told_by)
        self.say(b"end %s %d %d %.4f %d %d" % how)

    def goes_on(self) -> bool:
        """False where there is nothing left to wait for; tells the command to end where it is time for that."""
        now = time.monotonic()
        self.reap()
        if self.cut:
            return False
        if self.told_at is None:
            late = now >= self.begin + self.timeout_s
            if self.code is None and (late or self.stop or self.gone):
                self.late = late
                self.told_at = now
                self.signal_it(signal.SIGTERM)
        if self.ended_at is None:
            return self.told_at is None or now < self.told_at + self.grace_s
        # Pipes that are still open are held by somebody whom the command started and left behind.
        return bool(self.streams) and now < self.until()

    def reap(self) -> None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self.ended_at = time.monotonic()

    def until(self) -> float:
        """The moment at which the waiting that is going on ends."""
        if self.told_at is not None:
            return self.told_at + self.grace_s
        return self.begin + self.timeout_s if self.ended_at is None else self.ended_at + self.patience_s

    def wait_s(self) -> float:
        return max(0.0, self.until() - time.monotonic())

    def signal_it(self, signum: int) -> None:
        """Signal the group; of an agent only the agent, which tells its own child: it must not hear it twice."""
        send(os.killpg if self.tell_all else os.kill, self.pid, signum)

    # --- what it started ----------------------------------------------------------------------------------------------

    def end_all(self) -> int:
        """End whatever is left, politely unless it was told before. Returns 0 or who survived SIGKILL."""
        asked = self.told_at is not None or self.cut
        if not asked and not self.family(group_only=True):
            return 0
        left = set()  # type: set[int]
        for signum in (signal.SIGKILL,) if asked else (signal.SIGTERM, signal.SIGKILL):
            patience = time.monotonic() + self.patience_s
            told = set()  # type: set[int]
            while time.monotonic() < patience:
                left = self.family(group_only=not asked)
                if not left:
                    return 0
                for pid in left - told if signum == signal.SIGTERM else left:
                    told.add(pid)
                    send(os.kill, pid, signum)
                time.sleep(0.01)
                self.reap()
        return min(left)

    def family(self, group_only: bool) -> set[int]:
        """Who is alive of the command's group; or of its session, its descendants, and whoever bears its mark."""
        if group_only:
            try:
                os.killpg(self.pid, 0)
            except OSError:
                return set()
        parents, found, others = {}, set(), []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                with io.FileIO(f"/proc/{entry.name}/stat") as stream:
                    state, parent, group, session = stream.readall().rpartition(b")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            pid = int(entry.name)
            if state in b"ZX":
                continue
            parents[pid] = int(parent)
            if int(group) == self.pid or (int(session) == self.pid and not group_only):
                found.add(pid)
            else:
                others.append(pid)
        if group_only:
            return found
        for pid in others:
            if parents[pid] != 2 and self.is_marked(pid):
                found.add(pid)
        grown = True
        while grown:
            more = {pid for pid in others if parents[pid] in found or parents[pid] == self.pid} - found
            found |= more
            grown = bool(more)
        return found

    def is_marked(self, pid: int) -> bool:
        try:
            with io.FileIO(f"/proc/{pid}/environ") as stream:
                return self.mark in stream.readall().split(b"\0")
        except OSError:
            return False

    # --- the controller -----------------------------------------------------------------------------------------------

    def say(self, words: bytes) -> None:
        if not self.gone:
            self.out += self.word + b" " + words + self.tail + b"\n"

    def hear_signal(self, signum: int) -> None:
        """Somebody else wants us to end: a time limit, an operator, a machine that goes down."""
        self.stop = True
        if self.told_at is None and self.ended_at is None:
            self.told_by = signum

    def turn(self, wait_s: float) -> None:
        """Wait for output, for the controller or for the end of the command, and pass on what there is."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if not self.gone:
            poll.register(0, select.POLLIN)
        if self.out and not self.gone:
            poll.register(1, select.POLLOUT)
        if len(self.out) < HELD or self.gone:
            for end in self.streams:
                poll.register(end, select.POLLIN)
        for end, _ in poll.poll(int(wait_s * 1000) + 1):
            if end == self.wake:
                os.read(end, 4096)
            elif end == 0:
                self.hear()
            elif end == 1:
                self.flush()
            elif end in self.streams:
                self.read(end)

    def read(self, end: int) -> bool:
        """Pass on a piece of a stream. Returns False where there is none now."""
        try:
            piece = os.read(end, CHUNK)
        except BlockingIOError:
            return False
        if not piece:
            del self.streams[end]
            os.close(end)
            return False
        room = self.room[end]
        self.room[end] = room - len(piece)
        self.cut = self.cut or len(piece) > room
        for start in range(0, min(room, len(piece)), self.piece):
            part = piece[start : min(room, start + self.piece)]
            self.say(self.streams[end] + b" " + binascii.b2a_base64(part, newline=False))
        return not self.cut

    def drain(self) -> None:
        """Take what the ended command has left in its pipes."""
        for end in list(self.streams):
            while self.read(end):
                pass

    def hear(self) -> None:
        """What the controller asks for; its end is the end of the command."""
        try:
            piece = os.read(0, 4096)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.gone = True
            return
        *lines, self.heard = (self.heard + piece).split(b"\n")
        self.heard = self.heard[-16:]
        if b"kill" in lines:
            self.grace_s = 0.0
        self.stop = self.stop or b"kill" in lines or b"stop" in lines

    def flush(self) -> None:
        try:
            del self.out[: os.write(1, self.out)]
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True

    def finish(self) -> None:
        """Wait until the controller has read the rest."""
        give_up = time.monotonic() + FLUSH_S
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        while self.out and not self.gone and time.monotonic() < give_up:
            poll.poll(200)
            self.flush()


def send(how: Callable[[int, int], None], whom: int, signum: int) -> None:
    """Send a signal to a process or a group that may have ended."""
    try:  # noqa: SIM105 - an import that only this would need
        how(whom, signum)
    except OSError:
        pass


def received(size: int) -> bytes:
    """Exactly so many bytes of stdin: what follows them is for later."""
    whole = io.BufferedReader(io.FileIO(0, closefd=False), 1).read(size)
    if len(whole) < size:
        os._exit(1)  # the controller died while it sent
    return whole


def carried(size: int, digest: str, oldest: tuple[int, int]) -> str:
    """Path of a file in memory that holds the bytes on stdin: nobody else can write it, and it ends with us.

    Raises FailedError where the bytes are not those that were sent, or this Python is too old for them.
    """
    import hashlib  # noqa: PLC0415 - only who carries something needs it

    whole = received(size)
    if sys.version_info < oldest:
        raise FailedError(f"Python {sys.version.split()[0]}, older than {oldest[0]}.{oldest[1]}")
    name = "gpuready-" + digest[:16]
    try:
        handle = os.memfd_create(name, os.MFD_CLOEXEC | NOEXEC_SEAL)
    except OSError:  # a kernel before 6.3
        handle = os.memfd_create(name)
    with io.FileIO(handle, "r+", closefd=False) as stream:
        view = memoryview(whole)
        while view:
            view = view[stream.write(view) :]
        stream.seek(0)
        found = hashlib.sha256(stream.readall()).hexdigest()
    if found != digest:
        raise FailedError(f"an agent with sha256 {found[:16]}.. instead of {digest[:16]}..")
    return f"/proc/{os.getpid()}/fd/{handle}"


def main(
    word: str,
    argv: tuple[str, ...],
    *,
    limits: tuple[float, float, float, int],
    environment: dict[str, str],
    carry: tuple[int, str, tuple[int, int]] | None = None,
    shape: tuple[int, str] = (CHUNK, ""),
) -> None:
    """Keep one command. `limits`: timeout, grace and patience in seconds, bytes of a stream. An agent is carried.

    `shape` is how many bytes of output one line carries, and what each line ends with.
    """
    keeper = Keeper(word, argv, limits)
    keeper.piece, keeper.tail = shape[0], shape[1].encode("ascii")
    keeper.tell_all = carry is None
    for signum in SIGNALS:
        signal.signal(signum, lambda number, _: keeper.hear_signal(number))
    try:
        if carry:
            environment = {**environment, "PYTHONPATH": carried(*carry)}
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        keeper.start(environment)
        keeper.keep()
    except (FailedError, OSError) as error:
        keeper.say(b"failed " + binascii.b2a_base64(str(error).encode("utf-8", "replace"), newline=False))
    keeper.finish()
    os._exit(0)
