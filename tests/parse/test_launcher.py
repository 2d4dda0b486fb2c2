"""Launchers' messages: each kind to an event that names node, rank, signal and reason where the text does."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.launcher import Event, Launcher


def events(text: str) -> list[Event]:
    launcher = Launcher()
    for line in text.splitlines():
        launcher.take(line)
    return launcher.close()


RULE = "-" * 74
KILLED = (
    "mpirun noticed that process rank 13 with PID 60417 on node hx-c0-02.cluster.local exited on signal 7 (Bus error)."
)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_sentence_may_be_wrapped_anywhere(width: int) -> None:
    """Rank, node and signal are found whatever the width of the terminal."""
    (event,) = events("\n".join([RULE, *textwrap.wrap(KILLED, width, break_long_words=False), RULE]))
    assert (event.rank, event.signal, event.node, event.reason) == (13, 7, "hx-c0-02.cluster.local", "Bus error")


TOLD = (
    ("srun: error: n3: task 5: Exited with exit code 3", ("ended badly", "n3", 5, 3, "Exited with exit code 3")),
    ("srun: error: n3: tasks 0-7: Killed", ("ended badly", "n3", None, None, "Killed")),
    ("srun: error: Node failure on n9", ("node failed", "n9", None, None, "")),
    (
        "srun: error: Unable to allocate resources: Requested nodes are busy",
        ("not allocated", "", None, None, "Requested nodes are busy"),
    ),
    (
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE LOG ***",
        ("cancelled", "n1", None, None, "NODE FAILURE"),
    ),
    (
        "slurmstepd: error: execve(): ./all_reduce_perf: No such file or directory",
        ("not executed", "", None, None, "./all_reduce_perf: No such file or directory"),
    ),
    (
        "ssh: Could not resolve hostname n8: Name or service not known",
        ("ssh", "n8", None, None, "Name or service not known"),
    ),
    (
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
        ("aborted", "", 3, 1, ""),
    ),
    (
        f"{RULE}\nprterun detected that one or more processes exited with non-zero status, thus causing\nthe job to be "
        "terminated. The first process to do so was:\n\n   Process name: [prterun-n1-77@1,9]\n   Exit code:    3\n",
        ("ended badly", "", 9, 3, ""),
    ),
    (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 4 PID 99 RUNNING AT n2\n"
        "=   KILLED BY SIGNAL: 9 (Killed)\n",
        ("ended badly", "n2", 4, None, "Killed"),
    ),
    ("There are not enough slots available in the system to satisfy", ("not launched", "", None, None, "")),
)


@pytest.mark.parametrize(("text", "told"), TOLD)
def test_messages(text: str, told: tuple[object, ...]) -> None:
    """Slurm, Open MPI, PRRTE, Hydra and ssh, each in its own words: kind, node, rank, exit code, reason."""
    (event,) = events(text)
    assert (event.kind, event.node, event.rank, event.exit_code, event.reason) == told


def test_a_step_and_its_job_are_one_event() -> None:
    """STEP and JOB lines of one cancellation are one, and the step is kept."""
    tail = "ON n1 CANCELLED AT 2026-02-25T07:58:10 DUE TO TIME LIMIT ***"
    (event,) = events(f"slurmstepd: error: *** JOB 11 {tail}\nslurmstepd: error: *** STEP 11.0 {tail}\n")
    assert (event.step, event.reason) == ("11.0", "TIME LIMIT")


def test_news_is_no_event() -> None:
    """An allocation that was waited for, and results, are no trouble."""
    assert events("srun: job 7 queued and waiting for resources\nsrun: job 7 has been allocated resources\nn1\n") == []


@given(
    st.lists(
        st.one_of(st.sampled_from([RULE, *KILLED.split(" on "), "srun: error: x", "*** STEP 1 ON"]), st.text()),
        max_size=30,
    )
)
def test_any_lines_are_read(lines: list[str]) -> None:
    """Nothing raises, and no event is without its text."""
    assert all(event.text for event in events("\n".join(lines)))
