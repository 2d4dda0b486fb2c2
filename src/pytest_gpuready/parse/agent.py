"""What the agent printed -> its document, or one line that says why there is none.

The agent speaks to us from a machine that may be broken: the output is bounded in size, must be exactly one JSON
document of our protocol, and no field more or less than that says, and must not contradict itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import CommandResult
from pytest_gpuready.model.agent_doc import (
    PROTOCOL,
    AfterDoc,
    AroundDoc,
    CopiesDoc,
    Envelope,
    GpuDoc,
    KernelLog,
    NodeDoc,
    NvmlDoc,
    PciGpu,
    TogetherDoc,
    WatchDoc,
    Wire,
)
from pytest_gpuready.model.collectives_doc import CollectivesDoc
from pytest_gpuready.model.stress_doc import StressDoc
from pytest_gpuready.parse.agent_sense import around_contradiction, contradiction
from pytest_gpuready.parse.collectives_sense import collectives_contradiction
from pytest_gpuready.parse.stress_sense import stress_contradiction

LARGEST = 16 * 2**20
SHOWN = 80
IN_GRACE = ("around", "stress", "collectives")
"""Probes that print what they know when they are told to end."""
MOST_GPUS = 256
"""As many as a site file may declare on one node."""

Document = TypeVar("Document", bound=Wire)
Listing = TypeVar("Listing", NodeDoc, NvmlDoc)


class _Head(msgspec.Struct):
    """The two fields that every protocol version has; the rest is not looked at."""

    gpuready_agent: int
    probe: str


def node_doc(result: CommandResult) -> NodeDoc:
    """The document of the probe "node". Raises: ToolError, ParseError."""
    return _bounded(result, _data(result, "node", NodeDoc))


def nvml_doc(result: CommandResult) -> NvmlDoc:
    """The document of the probe "nvml". Raises: ToolError, ParseError."""
    return _bounded(result, _data(result, "nvml", NvmlDoc))


def _bounded(result: CommandResult, document: Listing) -> Listing:
    """The document, unless it lists more GPUs than any node has: then all that follows from it would take for ever."""
    if len(document.gpus) > MOST_GPUS:
        raise ParseError(
            f"{result.command.shown} on {result.command.node}: expected at most {MOST_GPUS} GPUs, found "
            f"{len(document.gpus)}; run the command on the node by hand"
        )
    return document


def copies_doc(result: CommandResult) -> CopiesDoc:
    """The document of the probe "copies". Raises: ToolError, ParseError."""
    return _data(result, "copies", CopiesDoc)


def together_doc(result: CommandResult) -> TogetherDoc:
    """The document of the probe "copies-together". Raises: ToolError, ParseError."""
    return _data(result, "copies-together", TogetherDoc)


def after_doc(result: CommandResult, level: int) -> AfterDoc:
    """The document of the probe "after-N" of this level. Raises: ToolError, ParseError."""
    return _data(result, f"after-{level}", AfterDoc)


def around_doc(result: CommandResult) -> AroundDoc:
    """The document of the probe "around", the kernel log in every watch of it.

    It may have come after the deadline, in the grace of its command, if it says that it was ended early.
    Raises: ToolError, ParseError.
    """
    document = _data(result, "around", AroundDoc)
    wrong = around_contradiction(document, result.command.argv, late=result.timed_out)
    if wrong:
        raise ParseError(f"{_where(result)}: {wrong}; {_AGAIN}")
    watch = {
        bdf: msgspec.structs.replace(
            seen, log=[*seen.log, *document.log], log_problem=document.log_problem or seen.log_problem
        )
        for bdf, seen in document.watch.items()
    }
    return msgspec.structs.replace(document, watch=watch)


def stress_doc(result: CommandResult) -> StressDoc:
    """The document of the probe "stress"; it may have come in the grace of its command, if it was ended early.

    Raises: ToolError, ParseError.
    """
    document = _data(result, "stress", StressDoc)
    wrong = stress_contradiction(document, result.command.argv, late=result.timed_out)
    if wrong:
        raise ParseError(f"{_where(result)}: {wrong}; {_AGAIN}")
    return document


def collectives_doc(result: CommandResult) -> CollectivesDoc:
    """The document of the probe "collectives"; it may have come in the grace of its command, if it was ended early.

    Raises: ToolError, ParseError.
    """
    document = _data(result, "collectives", CollectivesDoc)
    wrong = collectives_contradiction(document, result.command.argv, late=result.timed_out)
    if wrong:
        raise ParseError(f"{_where(result)}: {wrong}; {_AGAIN}")
    return document


def envelope(result: CommandResult, probe: str) -> Envelope:
    """What stands around the document: host and boot. Raises: ToolError, ParseError."""
    where = _where(result)
    if probe in IN_GRACE:
        result = _in_its_grace(result)
    _ended_well(result, where)
    raw = result.stdout.encode("utf-8", "replace").strip()
    if len(raw) > LARGEST:
        raise ParseError(f"{where}: expected at most {LARGEST // 2**20} MiB, found {len(raw)} bytes; read its stderr")
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(
            f"{where}: expected one line of JSON, found {quote(result.stdout)} ({error}); {_AGAIN}"
        ) from error
    if head.gpuready_agent != PROTOCOL:
        raise ParseError(
            f"{where}: expected agent protocol {PROTOCOL}, found {head.gpuready_agent}; "
            "install the same version of pytest-gpuready on the node"
        )
    if head.probe != probe:
        raise ParseError(f"{where}: expected a document of probe {probe!r}, found {quote(head.probe)}; {_AGAIN}")
    try:
        return msgspec.json.decode(raw, type=Envelope)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(
            f"{where}: expected an agent envelope, found {quote(result.stdout)} ({error}); {_SAME}"
        ) from error


def quote(text: str) -> str:
    """The first 80 characters in quotes, control characters and anything beyond ASCII written as escapes."""
    shown = text[:SHOWN].encode("ascii", "backslashreplace").decode("ascii")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)
    return f"'{shown}'" + (" .." if len(text) > SHOWN else "")


_AGAIN = "run the command on the node by hand"
_SAME = "install the same version of pytest-gpuready on the node"


def _data(result: CommandResult, probe: str, kind: type[Document]) -> Document:
    around = envelope(result, probe)
    try:
        document = msgspec.json.decode(around.data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        found = quote(bytes(around.data).decode("utf-8", "replace"))
        raise ParseError(
            f"{_where(result)}: expected a {kind.__name__}, found {found} ({quote(str(error))}); {_SAME}"
        ) from error
    missing = _missing(msgspec.json.decode(around.data), kind)
    if missing:
        raise ParseError(f"{_where(result)}: expected {missing} in a {kind.__name__}, found none; {_SAME}")
    wrong = contradiction(document)
    if wrong:
        raise ParseError(f"{_where(result)}: {wrong}; {_AGAIN}")
    return document


# What an agent always says. A default in its place would be an answer that nobody gave: "no foreign setting",
# "no Xid", "no GPU", "no bridge above it".
_ALWAYS: dict[type[Wire], tuple[str, ...]] = {
    NodeDoc: ("gpus", "pci_visible", "driver_module", "nouveau", "virtual", "environment", "nccl_conf"),
    PciGpu: ("path",),
    KernelLog: ("complete", "lines", "problem"),
    NvmlDoc: ("problem", "driver", "gpus", "lost"),
    GpuDoc: ("nvlinks", "p2p_nvlink", "errors"),
    CopiesDoc: ("problem", "copies", "path"),
    WatchDoc: ("log", "log_problem", "phases"),
    TogetherDoc: ("problem", "gb_per_s"),
    AroundDoc: (
        "argv",
        "exit_code",
        "stdout",
        "stderr",
        "ended_early",
        "problem",
        "cut",
        "watch",
        "watch_problem",
        "log",
    ),
    AfterDoc: ("nvml", "log", "bus"),
    StressDoc: (),
    CollectivesDoc: (),
}
_INSIDE: dict[type[Wire], dict[str, type[Wire]]] = {
    NodeDoc: {"kernel_log": KernelLog, "gpus": PciGpu},
    NvmlDoc: {"gpus": GpuDoc},
    CopiesDoc: {"watch": WatchDoc, "log_after": KernelLog},
    TogetherDoc: {"log_after": KernelLog},
    AroundDoc: {"watch": WatchDoc},
    AfterDoc: {"nvml": NvmlDoc, "log": KernelLog, "bus": PciGpu},
}


def _missing(raw: Any, kind: type[Wire]) -> str:
    """The first field that must be said and is not ("gpus[].nvlinks"); "" where all are there."""
    for name in _ALWAYS[kind]:
        if name not in raw:
            return repr(name)
    for name, inner in _INSIDE.get(kind, {}).items():
        entries = raw.get(name)
        if kind is AroundDoc:
            entries = list(entries.values())
        entries = entries if isinstance(entries, list) else [entries]
        for entry in entries:
            missing = _missing(entry, inner) if entry is not None else ""
            if missing:
                return f"{missing} of {name!r}"
    return ""


def _in_its_grace(result: CommandResult) -> CommandResult:
    """A result that came after the deadline as if it had come in time, where it holds a whole document."""
    if result.timed_out and not result.unkillable:
        try:
            msgspec.json.decode(result.stdout.encode("utf-8", "replace"), type=_Head)
        except (msgspec.DecodeError, RecursionError):
            return result
        return dataclasses.replace(result, timed_out=False, exit_code=0)
    return result


def _where(result: CommandResult) -> str:
    return f"{result.command.shown} on {result.command.node}"


def _ended_well(result: CommandResult, where: str) -> None:
    """Raises ToolError unless the command ended by itself, in time, with 0."""
    last = _last_line(result.stderr)
    if result.unkillable:
        raise ToolError(
            f"{where}: expected an answer within {result.command.timeout_s:g} s, found a process that cannot be killed "
            f"({quote(result.unkillable)}), so the driver hangs; read the kernel log and reboot the node"
        )
    if result.timed_out:
        raise ToolError(
            f"{where}: expected an answer within {result.command.timeout_s:g} s, found none{last}; "
            "read the kernel log for NVRM lines, for the driver may hang"
        )
    if result.exit_code != 0:
        code = "no exit code" if result.exit_code is None else f"exit code {result.exit_code}"
        raise ToolError(f"{where}: expected exit code 0, found {code}{last}; {_AGAIN}")


def _last_line(stderr: str) -> str:
    lines = [line for line in stderr[-4096:].splitlines() if line.strip()]
    return f", last line on stderr {quote(lines[-1].strip())}" if lines else ""
