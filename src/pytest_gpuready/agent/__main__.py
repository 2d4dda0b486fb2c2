"""`python -m pytest_gpuready.agent PROBE [BDF...]`: one line of JSON on stdout, and nothing else there.

The real stdout is kept aside and file descriptor 1 points to stderr while the probe works: a library that prints
cannot spoil the document. Exit code 0 means that a document was printed, also one that reports a problem.

Where the controller gives a ticket (`agent.lease`), nothing is touched before the node is taken for its run; code 75
and one line on stderr mean that another run has it. `lease release` and `lease renew` print nothing: the run has ended,
or lets the node wait for its next command.

Here only the standard library is imported: an import of anything else may hang on a broken machine or file system, and
until `tie_to_controller` ran nothing would end this process with the one that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_gpuready.model.agent_doc import Wire

TIED = "GPUREADY_TIED"
"""As in `model.agent_words`, which cannot be imported before the process is tied."""
AROUND_GRACE_S = 20.0
"""As in `model.agent_doc`."""
STRESS_GRACE_S = 20.0
"""As in `model.stress_doc`."""
COLLECTIVES_GRACE_S = 20.0
"""As in `model.collectives_doc`."""
USAGE = (
    "expected 'node', 'nvml', 'copies BDF', 'copies-together BDF...', 'stress PLAN [BDF...]', "
    "'collectives PLAN [BDF...]', 'after LEVEL' or 'around BDF,... -- WORD...'"
)
LOADED_LEVELS = ("2", "3", "4")
"""Levels that have a load to look back at."""


def _node(_: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.node import node  # noqa: PLC0415 - each probe loads only what it needs

    return node()


def _nvml(_: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.nvml import nvml  # noqa: PLC0415 - see above

    return nvml()


def _copies(bdfs: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.copies import copies  # noqa: PLC0415 - see above

    return copies(bdfs[0])


def _together(bdfs: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.copies import together  # noqa: PLC0415 - see above

    return together(tuple(bdfs))


def _after(_: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.after import after  # noqa: PLC0415 - see above

    return after()


def _around(arguments: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.around import around  # noqa: PLC0415 - see above

    return around(arguments)


def _stress(arguments: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.stress.crew import stress  # noqa: PLC0415 - see above

    return stress(arguments)


def _collectives(arguments: Sequence[str]) -> Wire:
    from pytest_gpuready.agent.collectives.crew import collectives  # noqa: PLC0415 - see above

    return collectives(arguments)


# Probe -> what runs it, fewest and most arguments.
PROBES: dict[str, tuple[Callable[[Sequence[str]], Wire], int, int]] = {
    "node": (_node, 0, 0),
    "nvml": (_nvml, 0, 0),
    "copies": (_copies, 1, 1),
    "copies-together": (_together, 1, 64),
    "around": (_around, 3, 4096),
    "after": (_after, 1, 1),
    "stress": (_stress, 1, 65),
    "collectives": (_collectives, 1, 65),
}


def boot_id(proc: Path = Path("/proc")) -> str:
    """What the kernel calls this boot; "" where it does not say."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def tie_to_controller(grace_s: float = 0.0) -> None:
    """End with whoever started us: where the transport says so, the end of stdin is the end of our process group.

    With a grace we are told first (SIGTERM): a probe that has a child of its own ends it as it has to be ended.
    """
    if os.environ.pop(TIED, "") != "1":
        return

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        if grace_s:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_s)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def main(argv: Sequence[str]) -> int:
    """Run one probe and print its document. 0: printed; 2: called wrongly."""
    graces_s = {"around": AROUND_GRACE_S, "stress": STRESS_GRACE_S, "collectives": COLLECTIVES_GRACE_S}
    tie_to_controller(graces_s.get("".join(argv[:1]), 0.0))
    from pytest_gpuready.errors import LeaseError  # noqa: PLC0415 - only now: see above
    from pytest_gpuready.model.agent_words import DEADLINE, LEASE  # noqa: PLC0415 - see above

    ticket, deadline = os.environ.pop(LEASE, ""), os.environ.pop(DEADLINE, "")

    probe, *arguments = argv or [""]
    run, fewest, most = PROBES.get(probe, (None, 0, 0))
    unknown = probe == "after" and not set(arguments) <= set(LOADED_LEVELS)
    about_lease = bool(ticket) and probe == "lease" and arguments in (["release"], ["renew"])
    if not about_lease and (run is None or unknown or not fewest <= len(arguments) <= most):
        print(f"gpuready agent: {USAGE}, found {' '.join(argv)!r}", file=sys.stderr)
        return 2
    if not ticket:
        _print(probe, arguments)
        return 0
    from pytest_gpuready.agent.lease import MUTE, REFUSED, SAYS, renew_by, take_by  # noqa: PLC0415 - see above

    try:
        if about_lease and arguments == ["renew"]:
            renew_by(ticket, boot=boot_id())
            return 0
        held = take_by(ticket, word=probe, deadline=deadline, boot=boot_id())
    except LeaseError as error:
        print(f"{SAYS}{error}", file=sys.stderr)
        return REFUSED
    if held.mute:
        print(MUTE, file=sys.stderr)
    if about_lease:
        held.free()
        return 0
    try:
        _print(probe, arguments)
    finally:
        held.end()
    return 0


def _print(probe: str, arguments: Sequence[str]) -> None:
    """Run the probe and print its document on the real stdout."""
    from pytest_gpuready.agent.machine import hostname  # noqa: PLC0415 - see above
    from pytest_gpuready.model.agent_doc import encode  # noqa: PLC0415 - see above

    run = PROBES[probe][0]
    if probe == "after":  # what was seen after one level is no answer about another
        probe = f"after-{arguments[0]}"
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    line = encode(probe=probe, host=hostname(), boot_id=boot_id(), data=run(arguments)) + b"\n"
    with os.fdopen(out, "wb") as stream:
        stream.write(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
