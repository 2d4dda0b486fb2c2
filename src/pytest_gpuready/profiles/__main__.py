"""`python -m pytest_gpuready.profiles FILE|NAME`: what is wrong with a profile, or one line that it loads."""

from __future__ import annotations

import argparse
import sys

from pytest_gpuready.errors import ProfileError
from pytest_gpuready.profiles import load


def main(arguments: list[str] | None = None) -> int:
    """0 where the profile loads, 1 where it does not."""
    parser = argparse.ArgumentParser(prog="python -m pytest_gpuready.profiles", description="Check a profile.")
    parser.add_argument("profile", metavar="FILE|NAME", help="a file ending in .yaml, or the name of a shipped profile")
    try:
        profile = load(parser.parse_args(arguments).profile)
    except ProfileError as wrong:
        sys.stdout.write(f"{wrong}\n")
        return 1
    count = len(profile.clauses)
    sys.stdout.write(f"{profile.name} {profile.version} loads: {count} clauses, sha256 {profile.sha256}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
