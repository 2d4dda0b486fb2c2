"""What all tests share: the garbage collector leaves alone what is there to stay."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end, so nobody looks through them again for garbage.

    Each run of pytest in pytest collects garbage twice when it ends: a fifth of a second in a process of thousands of
    tests, and nothing where only what that run made is looked through.
    """
    gc.collect()
    gc.freeze()
