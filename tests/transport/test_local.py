"""`transport.local`: deadlines, groups and bounds, with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import local as local_module
from pytest_gpuready.transport.local import Local

GRACE_S = 0.3  # the wait before SIGKILL and for a pipe that somebody else holds is the same wait, only shorter


def run(script: str, *, timeout_s: float = 20.0, transport: Local | None = None) -> CommandResult:
    return (transport or Local(grace_s=GRACE_S)).run(
        Command(node="here", argv=("sh", "-c", script), timeout_s=timeout_s, grace_s=GRACE_S)
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_output_and_exit_code_are_kept() -> None:
    """Both streams and the exit code come back as they were."""
    result = run("echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code, result.timed_out) == ("out\n", "err\n", 7, False)


def test_the_deadline_ends_the_whole_group_and_keeps_what_was_printed(tmp_path: Path) -> None:
    """A command that hangs is ended with the children it started, and its output until then is kept."""
    result = run(f"echo early; sleep 300 & echo $! > {tmp_path}/child; wait", timeout_s=1.0)
    assert result.timed_out
    assert result.exit_code is None
    assert result.stdout == "early\n"
    assert wait_gone(int((tmp_path / "child").read_text()))


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """SIGKILL follows where SIGTERM is ignored."""
    result = run(f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done", timeout_s=0.5)
    assert result.timed_out
    assert result.unkillable == ""
    assert wait_gone(int((tmp_path / "pid").read_text()))


def test_a_child_left_behind_with_the_pipe_does_not_hang_the_run(tmp_path: Path) -> None:
    """A command that ends and leaves a child holding stdout returns soon, and the child is ended."""
    result = run(f"sleep 300 & echo $! > {tmp_path}/child; echo done", timeout_s=60.0)
    assert (result.stdout, result.exit_code, result.timed_out) == ("done\n", 0, False)
    assert result.duration_s < 60
    assert wait_gone(int((tmp_path / "child").read_text()))


def test_endless_output_is_bounded() -> None:
    """A command that prints without end is cut at the bound and ended; the result says so."""
    result = run("while :; do echo 0123456789012345678901234567890123456789; done", transport=Local(max_bytes=100_000))
    assert len(result.stdout) == 100_000
    assert "cut" in result.stderr
    assert not result.timed_out


def test_a_missing_tool_is_one_line() -> None:
    """A tool that is not there is a TransportError that names it and says what to do."""
    with pytest.raises(TransportError, match=r"node01: expected to start 'no-such-tool', found No such file.*install"):
        Local().run(Command(node="node01", argv=("no-such-tool",), timeout_s=5))


def test_python_is_this_interpreter() -> None:
    """argv[0] 'python' stands for the interpreter that has the agent."""
    result = Local().run(Command(node="here", argv=("python", "-c", "import sys; print(sys.executable)"), timeout_s=20))
    assert result.stdout.strip() == sys.executable


def test_bytes_that_are_not_text_do_not_break_it() -> None:
    """Invalid UTF-8 is replaced, not raised."""
    assert run(r"printf '\377\376x'").stdout.endswith("x")


def test_ctrl_c_ends_the_child_too(tmp_path: Path) -> None:
    """An interrupted controller leaves no child behind."""
    script = (
        "from pytest_gpuready.transport.local import Local\n"
        "from pytest_gpuready.model import Command\n"
        # The child says who it is when its parent knows it too: before that, a busy machine shows the test more.
        f"argv = ('sh', '-c', 'sleep 0.3; echo $$ > {tmp_path}/pid; sleep 300')\n"
        f"Local(grace_s={GRACE_S}).run(Command(node='n', argv=argv, timeout_s=200))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # nohup and & ignore it for their children
    )
    end = time.monotonic() + 30
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert wait_gone(int((tmp_path / "pid").read_text()))


# --- the grace --------------------------------------------------------------------------------------------------------

SLOW_TO_END = "trap 'sleep 0.2; echo last; exit 3' TERM; echo first; while :; do sleep 0.05; done"
"""Says something on SIGTERM, a moment later, and ends by itself."""


def patient(script: str, **other: float) -> Command:
    """A command that has all the time it wants to end."""
    return Command(node="here", argv=("sh", "-c", script), **{"timeout_s": 20.0, "grace_s": 20.0, **other})


def test_what_is_printed_in_the_grace_is_kept() -> None:
    """At the deadline a command is told to end; what it says then belongs to the result, which still is late."""
    result = Local().run(patient(SLOW_TO_END, timeout_s=0.4))
    assert (result.stdout, result.timed_out, result.exit_code) == ("first\nlast\n", True, None)


def test_the_grace_has_an_end(tmp_path: Path) -> None:
    """A command that goes on printing through its grace is killed, and what it printed until then is kept."""
    script = f"trap 'echo told' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    result = Local().run(patient(script, timeout_s=0.4, grace_s=0.4))
    assert (result.stdout, result.timed_out, result.unkillable) == ("told\n", True, "")
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_group_that_the_leader_left_has_the_grace_too() -> None:
    """The command ends on SIGTERM at once, its child a moment later: what the child says in the grace is kept."""
    result = Local(grace_s=0.05).run(patient(f"({SLOW_TO_END}) & sleep 300", timeout_s=0.4))
    assert result.stdout == "first\nlast\n"


def test_stop_tells_the_command_and_keeps_what_it_says() -> None:
    """Stopped from another thread, a command ends in its grace, by itself, and is not late."""
    local, results = Local(), []
    thread = threading.Thread(target=lambda: results.append(local.run(patient(SLOW_TO_END))))
    thread.start()
    while not any(child.stdout for child in local._running):
        time.sleep(0.01)
    local.stop()
    thread.join(30)
    assert [(r.stdout, r.exit_code, r.timed_out) for r in results] == [("first\nlast\n", 3, False)]


def test_too_much_output_has_no_grace(tmp_path: Path) -> None:
    """A command beyond the bound is killed at once: it is not told, and nothing more of it is read."""
    script = f"trap 'echo told > {tmp_path}/told' TERM; while :; do echo 0123456789012345678901234567890123456789; done"
    result = Local(max_bytes=10_000).run(patient(script))
    assert len(result.stdout) == 10_000
    assert not (tmp_path / "told").exists()


INTERRUPTED = """
import sys, threading, os, signal, time, pathlib
from pytest_gpuready.model import Command
from pytest_gpuready.transport import Interrupted
from pytest_gpuready.transport import local as local_module
from pytest_gpuready.transport.local import Local

signal.signal(signal.SIGINT, signal.default_int_handler)
presses, script, mark = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])

def press():
    for _ in range(presses):
        while not (mark.exists() and local._running):
            time.sleep(0.01)
        mark.unlink()
        os.kill(os.getpid(), signal.SIGINT)

local = Local()
threading.Thread(target=press, daemon=True).start()
try:
    local.run(Command(node="n", argv=("sh", "-c", script), timeout_s=60, grace_s=60))
except Interrupted as stop:
    print("kept", repr(stop.result.stdout), stop.result.exit_code, stop.result.timed_out)
except KeyboardInterrupt:
    print("killed")
"""


def interrupted(presses: int, script: str, mark: Path) -> str:
    argv = [sys.executable, "-c", INTERRUPTED, str(presses), script, str(mark)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_ctrl_c_keeps_what_is_printed_in_the_grace(tmp_path: Path) -> None:
    """Ctrl-C tells the command to end; what it says then comes with the interrupt."""
    script = f"trap 'echo last; exit 3' TERM; touch {tmp_path}/mark; while :; do sleep 0.05; done"
    assert interrupted(1, script, tmp_path / "mark") == "kept 'last\\n' 3 False"


def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    """Who presses Ctrl-C again does not wait for the grace, and nothing is left behind."""
    script = (
        f"trap 'touch {tmp_path}/mark' TERM; echo $$ > {tmp_path}/pid; touch {tmp_path}/mark; "
        "while :; do sleep 0.05; done"
    )
    assert interrupted(2, script, tmp_path / "mark") == "killed"
    assert wait_gone(int((tmp_path / "pid").read_text()))


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_handed_over_and_left_out_of_stderr() -> None:
    """Lines of progress reach the listener with their command; the other lines stay, in their order."""
    heard: list[tuple[Command, dict[str, object]]] = []
    command = patient("""echo a >&2; echo 'gpuready-progress {"s": 5.0, "power_w": [1, 2]}' >&2; echo b >&2""")
    result = Local(progress=lambda *said: heard.append(said)).run(command)
    assert result.stderr == "a\nb\n"
    assert [said for said in heard if said[1]] == [(command, {"s": 5.0, "power_w": [1, 2]})]


def test_a_command_that_says_nothing_is_heard_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener is told again and again that a silent command still runs."""
    monkeypatch.setattr(local_module, "ALIVE_S", 0.0)
    heard: list[dict[str, object]] = []
    Local(progress=lambda _command, said: heard.append(said)).run(patient("sleep 0.3"))
    assert len(heard) > 1
    assert not any(heard)
