"""Tests that need NVRTC (`pip install cuda-core nvidia-cuda-nvrtc`, 58 MB) and no GPU: `pytest tests/nvrtc`.

`pytest tests` leaves them out, so that nobody takes a skip for a pass. Where they are named and NVRTC is missing, they
fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True (leave out) unless this folder or a file in it was asked for by name."""
    asked = [Path(config.invocation_params.dir, str(word).split("::")[0]) for word in config.invocation_params.args]
    named = any(path.resolve() == HERE or HERE in path.resolve().parents for path in asked)
    return None if named else True
