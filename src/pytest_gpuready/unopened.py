"""How pytest ends where the acceptance run cannot be opened: with one line, said once, and an exit code of ours.

`pytest.exit` at the start of a session writes its message twice, the class in front of it. pytest's own usage errors
are written once, but have one exit code only: ours lies in the stash until `pytest_cmdline_main` ends.
"""

from __future__ import annotations

import sys

import pytest

CODE: pytest.StashKey[int] = pytest.StashKey()
"""The exit code that belongs to the run that could not be opened; there is none where it could."""


def unopened(config: pytest.Config, why: str, code: int) -> pytest.UsageError:
    """What to raise where the run cannot be opened; the session ends with this line and this exit code."""
    config.stash[CODE] = code
    return pytest.UsageError(f"gpuready: {why}")


def end(config: pytest.Config, error: pytest.UsageError) -> int | None:
    """Say on stderr why the run was not opened, and return the exit code; None where this error is another one."""
    code = config.stash.get(CODE, None)
    if code is not None:
        print(error, file=sys.stderr, flush=True)
    return code
