"""`make accept`: accept this machine at its site file's level, else 2, or, where it has no NVIDIA GPU at all,
show a replay that says so.

A machine that shows any trace of NVIDIA hardware (driver, device node, `nvidia-smi`, any PCI function: also an NVSwitch
whose GPUs are gone), or for which a site file or a profile expects GPUs, is never answered with a replay: there the run
is a real one, whatever comes out of it. This module needs nothing but Python's own library: `--announce` says which of
the two it will be before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LEVEL = 2
"""What is accepted where neither the arguments nor the site file name a level."""
SITES = ("site.yaml", "site.yml")
_PLAIN = ("-o", "addopts=", "-p", "no:cacheprovider", "--tb=no", "-rN")  # the summary says it all
_REPLAY = "REPLAY: this machine has no NVIDIA GPU; a recorded node {} judged instead. This certifies NO HARDWARE."


def traces(root: Path = Path("/")) -> list[str]:
    """What on this machine says that NVIDIA hardware or its driver is, or should be, here."""
    found = [str(path) for path in (root / "proc/driver/nvidia", root / "sys/module/nvidia") if path.exists()]
    found += [str(path) for path in sorted((root / "dev").glob("nvidia*"))]
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            if (device / "vendor").read_text().strip() == "0x10de":
                found.append(str(device))
        except OSError:
            continue
    folders = [str(root / folder.lstrip("/")) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    tool = shutil.which("nvidia-smi", path=os.pathsep.join(folders))
    return [*found, *([tool] if tool else [])]


def _run(command: list[str], *, asked: bool, again: str) -> int:
    """Run pytest in a process of its own and wait for it; Ctrl-C reaches it too, and it ends with a certificate."""
    # What pytest finds in ini or PYTEST_ADDOPTS may expect hardware: a site file, and beside a replay that nobody asked
    # for a profile. The plug-in refuses the replay then.
    environment = {
        **os.environ,
        "GPUREADY_UNASKED_REPLAY": "site" if asked else "site, profile",
        "GPUREADY_DEFAULT_LEVEL": str(LEVEL),
        "GPUREADY_AGAIN": again,
    }
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def _again(arguments: Sequence[str], *, by_make: bool) -> str:
    """The command that asks the same again, as a person types it: neither a replay nor a recording made anew."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--gpuready-replay")
    parser.add_argument("--gpuready-record")
    left = parser.parse_known_args(list(arguments))[1]
    if not by_make:
        return shlex.join([sys.executable, "-m", "pytest_gpuready.accept", *left])
    given = shlex.quote(shlex.join(left)).replace("$", "$$")
    return f"make accept ARGS={given}" if left else "make accept"


def _written(page: Path) -> tuple[int, int] | None:
    """What tells one writing of a file from another; None where there is none."""
    return (page.stat().st_ino, page.stat().st_mtime_ns) if page.is_file() else None


def _given(arguments: Sequence[str], option: str) -> bool:
    return any(a == option or a.startswith(f"{option}=") for a in arguments)


def _out(arguments: Sequence[str]) -> str:
    """Where the run writes to: the last `--gpuready-out` among pytest's arguments, or the default."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--gpuready-out", default="gpuready-out")
    out: str = parser.parse_known_args(list(arguments))[0].gpuready_out
    return out


def main(arguments: Sequence[str], root: Path = Path("/")) -> int:
    """Run the suites as a person would; returns pytest's exit code."""
    hardware = traces(root)
    asked = _given(arguments, "--gpuready-replay")
    beside = next((name for name in SITES if os.path.lexists(name)), "")
    if not hardware and (beside or _given(arguments, "--gpuready-site")):
        hardware = ["a site file that expects GPUs"]
    if not hardware and not asked and _given(arguments, "--gpuready-profile"):
        hardware = ["a profile that expects GPUs"]
    first = f"gpuready: accepting this machine, found {hardware[0]}" if hardware else _REPLAY.format("is")
    if "--announce" in arguments:
        print(first, flush=True)
        return 0
    replay = [] if hardware else ["--gpuready-replay", "demo"]
    site = ["--gpuready-site", beside] if beside and not _given(arguments, "--gpuready-site") else []
    if asked and hardware:
        print(f"INCOMPLETE: expected to accept this machine, found a replay asked for while {hardware[0]} is here")
        return 20
    by_make = bool(os.environ.get("GPUREADY_ANNOUNCED"))
    if not by_make:
        print(first, flush=True)
    # The level of a site file counts: only where there is none is one asked for in words.
    level = [] if site or _given(arguments, "--gpuready-site") else ["-m", f"level{LEVEL}"]
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_gpuready.suites", *level, *_PLAIN]
    page = Path(_out(arguments), "certificate.html").resolve()
    before = _written(page)
    code = _run([*command, *replay, *site, *arguments], asked=asked, again=_again(arguments, by_make=by_make))
    written = _written(page) not in (None, before)
    print(f"certificate: {page}" if written else f"this run wrote no certificate to {page.parent}", flush=True)
    if not hardware and written:
        print(_REPLAY.format("was"), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
