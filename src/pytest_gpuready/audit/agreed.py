"""The profile of an audit, by name or file; what is wrong with it is one line."""

from __future__ import annotations

from pytest_gpuready.errors import ProfileError
from pytest_gpuready.model import Profile
from pytest_gpuready.profiles import load


def agreed(name_or_path: str) -> Profile:
    """The profile of this name or file.

    Raises:
        ProfileError: one line: there is none, or the first thing that is wrong with it and how many more there are.
    """
    try:
        return load(name_or_path)
    except ProfileError as error:
        first, *more = str(error).splitlines() or [""]
        rest = f" (and {len(more)} more: python -m pytest_gpuready.profiles lists them)" if more else ""
        raise ProfileError(f"--profile {first}{rest}") from error
