"""Lines of a NCCL program's terminal -> table text and log messages, with a launcher's labels taken away.

Several processes write to one terminal: launchers put a label before every line and sometimes before every write
(`[0] `, `[1,0]<stdout>:`, ` 0: `), and NCCL's messages land in the middle of a table row. What belongs to the table is
joined again exactly as it was written; a message ends with its line, so the next line goes on where the row stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PENDING_AT_MOST = 4096
HOSTS_AT_MOST = 10_000

_LABEL = re.compile(
    r"""\s*(?:
      \[(?:\d+,)?(?P<tagged>\d+)\]<\w+>:
    | \[(?P<plain>\d+)\](?=\s|$)
    | \[[^\]\s]*@\d+,(?P<prte>\d+)\]<\w+>:
    | (?P<srun>\d{1,6}):(?=\s|$)
    | \[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?(?=\s)(?!\s*$)
    | \[pod/[^\]\s]+\](?=\s)
    | [\w.-]+\s+\|(?=\s)
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s\w{3}\s+\d+\s[\d:]{8}\s\d{4}<\w+>:
    )[ ]?""",
    re.VERBOSE,
)
_LABEL_BEGINS = frozenset("[0123456789MTWFS")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_INNER_LABEL = re.compile(r"\[\d+(?:,\d+)?\](?:<\w+>:)?(?P<blank>(?=\s|$))?")
_MESSAGE = re.compile(
    r"(?P<host>[^\s:\[\]]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+|unknown)\] "
    r"(?:(?P<file>\S+:\d+) |[\d.]+ )?NCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT|VERSION)\b ?(?P<text>.*)"
)
_VALUE_HEAD = re.compile(r"(?:N/A|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?=[A-Za-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One NCCL log message. `device` is the CUDA device of the writing rank, as the process counts (-1: unknown)."""

    host: str
    pid: int
    device: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A line that is no message: table, launcher or program. `label` is the rank in a launcher's label, or ""."""

    label: str
    text: str


def split(lines: Iterable[str]) -> Iterator[Message | Plain]:
    """Messages as they come, other lines once they are whole. Holds one unfinished line per label."""
    hosts: set[str] = set()
    pending: dict[str, str] = {}
    for raw in lines:
        line = _ANSI.sub("", raw) if "\x1b" in raw else raw
        label, line = _unlabelled(line)
        found = _MESSAGE.search(line) if " NCCL " in line else None
        if found is None:
            _learn(line, hosts)
            if label in pending:
                line = pending.pop(label) + line
            yield Plain(label=label, text=line)
            continue
        before, host = _before(line[: found.start()], found["host"], hosts)
        if before.strip() or label in pending:
            whole = pending.get(label, "") + before
            if len(pending) < PENDING_AT_MOST and len(whole) <= PENDING_AT_MOST:
                pending[label] = whole
        device = found["device"]
        yield Message(
            host=host,
            pid=int(found["pid"][:12]),
            device=int(device[:6]) if device != "unknown" else -1,
            level=found["level"],
            text=found["text"],
        )
    for label, rest in pending.items():
        yield Plain(label=label, text=rest)


def without_inner_labels(text: str) -> str:
    """A table row without the labels that a launcher put between the pieces it was written in."""
    return _INNER_LABEL.sub(lambda m: "" if m["blank"] is not None else " ", text) if "[" in text else text


def _unlabelled(line: str) -> tuple[str, str]:
    label = ""
    for _ in range(4):
        head = line.lstrip()[:1]
        if head not in _LABEL_BEGINS and "|" not in line[:80]:
            break
        found = _LABEL.match(line)
        if found is None:
            break
        rank = found["tagged"] or found["plain"] or found["prte"] or found["srun"]
        label = rank or label
        line = line[found.end() :]
    return label, line


def _learn(line: str, hosts: set[str]) -> None:
    """Hosts of the rank table: what stands before a message in the middle of a row is cut off by them."""
    if " on " in line and "Rank" in line and len(hosts) < HOSTS_AT_MOST:
        after = line.partition(" on ")[2].split(None, 1)
        if after:
            hosts.add(after[0])


def _before(prefix: str, token: str, hosts: set[str]) -> tuple[str, str]:
    """The table text in front of a message, and the host: a message in the middle of a row touches the row's text."""
    if token in hosts:
        return prefix, token
    if not prefix:
        if len(hosts) < HOSTS_AT_MOST:
            hosts.add(token)
        return prefix, token
    known = max((h for h in hosts if token.endswith(h)), key=len, default="")
    if known:
        return prefix + token[: -len(known)], known
    value = _VALUE_HEAD.match(token)
    if value:
        return prefix + value[0], token[value.end() :]
    return prefix, token
