"""Recorded runs of dcgmi 4.6.0 as the agent would print them, and a node that they may be about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_gpuready.model import Command, CommandResult, Dcgm, Gpu, Node, Part, Slot
from pytest_gpuready.model.agent_doc import AroundDoc, WatchDoc, encode

RUNS = Path(__file__).parent / "data" / "dcgm" / "4.6.0"
DRIVER = "580.159.04"
BOOT = "c0ffee00-0000-4000-8000-000000000001"


def dcgm_node(gpus: int = 1, *, serials: Sequence[str] = ("1650000000000",), pci_id: str = "10de:2335", **more) -> Node:
    """A node of so many H200s, GPU i at bus 0x19 + i; `more` are fields of the node."""
    slots = tuple(
        Slot(
            part=Part(node="node01", index=i),
            gpu=Gpu(
                bdf=f"0000:{0x19 + i:02x}:00.0",
                pci_id=pci_id,
                serial=serials[i] if i < len(serials) else "",
                on_bus=True,
            ),
        )
        for i in range(gpus)
    )
    more = {
        "driver": DRIVER,
        "nvlink": False,
        "dcgm": Dcgm(path="/usr/bin/dcgmi", root=True, host_engine=True),
        "dcgm_none": "",
        "boot_id": BOOT,
        **more,
    }
    return Node(name="node01", slots=slots, **more)


def around(
    command: Command,
    stdout: str,
    *,
    stderr: str = "",
    exit_code: int | None = 0,
    watch: dict[str, WatchDoc] | None = None,
    **more,
) -> CommandResult:
    """The result of an agent that ran dcgmi as its child."""
    more.setdefault("watch_problem", "made by hand: what is not here was not watched")
    more = {"seconds": 5000.0, **more}
    words = list(command.argv[command.argv.index("--") + 1 :])
    document = AroundDoc(argv=words, exit_code=exit_code, stdout=stdout, stderr=stderr, watch=watch or {}, **more)
    printed = encode(probe="around", host="node01", boot_id=BOOT, data=document).decode()
    return CommandResult(
        command=command,
        exit_code=0,
        stdout=printed,
        stderr="",
        started="2026-11-30T10:00:00.000+00:00",
        duration_s=4.0,
    )


def recorded(run: str) -> tuple[str, str, int]:
    """stdout, stderr and exit code of a recorded run."""
    folder = RUNS / run
    read = [folder / name for name in ("stdout", "stderr", "exit_code.txt")]
    out, err, code = (path.read_text() for path in read)
    return out, err, int(code)
