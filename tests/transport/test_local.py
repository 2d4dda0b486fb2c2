"""`transport.local`: deadlines, groups and bounds, with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport.local import Local

GRACE_S = 0.3  # the wait before SIGKILL and for a pipe that somebody else holds is the same wait, only shorter


def run(script: str, *, timeout_s: float = 20.0, transport: Local | None = None) -> CommandResult:
    return (transport or Local(grace_s=GRACE_S)).run(
        Command(node="here", argv=("sh", "-c", script), timeout_s=timeout_s)
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
        f"argv = ('sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 300')\n"
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
