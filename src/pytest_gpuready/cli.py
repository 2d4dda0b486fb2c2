"""`gpuready`: what can be done without pytest. Thin: each command parses its words and calls what does it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_gpuready import __version__
from pytest_gpuready.errors import GpuReadyError

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, 2 where it was called wrongly."""
    parser = argparse.ArgumentParser(prog="gpuready", description="GPU acceptance, beside pytest.")
    parser.add_argument("--version", action="version", version=f"pytest-gpuready {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, prog="gpuready")
    audit = commands.add_parser("audit", help="read outputs of tools and say what they prove and what not")
    audit.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR")
    audit.add_argument("--tool", default="", help="the tool that printed it, where its content does not tell")
    audit.add_argument("--expect", action="append", default=[], metavar="KEY=VALUE", help="what is expected")
    audit.add_argument("--profile", default="", metavar="NAME|FILE", help="what a profile promises is expected, too")
    audit.add_argument("--exit-code", type=int, default=None, metavar="N", help="how the tool ended")
    audit.add_argument("--format", choices=("text", "json"), default="text")
    words = parser.parse_args(arguments)
    try:
        return _audit(words)
    except GpuReadyError as error:
        print(f"gpuready: {error}", file=sys.stderr)
        return USAGE


def _audit(words: argparse.Namespace) -> int:
    from pytest_gpuready.audit.expect import from_options  # noqa: PLC0415 - each command loads only what it needs
    from pytest_gpuready.audit.report import exit_code, to_json  # noqa: PLC0415
    from pytest_gpuready.audit.run import audit  # noqa: PLC0415
    from pytest_gpuready.audit.show import text  # noqa: PLC0415

    expect, profile = from_options(words.expect), None
    if words.profile:
        from pytest_gpuready.audit.agreed import agreed  # noqa: PLC0415

        profile = agreed(words.profile)
    report = audit(words.paths, tool=words.tool, expect=expect, exit_code=words.exit_code, profile=profile)
    if words.format == "json":
        sys.stdout.write(to_json(report) + "\n")
    else:
        sys.stdout.write(text(report))
    return exit_code(report.outcome)


if __name__ == "__main__":
    sys.exit(main())
