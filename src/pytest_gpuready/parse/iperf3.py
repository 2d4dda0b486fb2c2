"""iperf3 output -> one direction's rate each: JSON (`-J`, `--json-stream`) of 3.0 to 3.18, and the text of a client.

The rate that arrived (`sum_received`) is the measurement; what was sent may still lie in a buffer. A document with an
`error`, or without its `end`, has no result, whatever its intervals say. Retransmits are counted by the sender, on
Linux, for TCP.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.json_once import once

_TEXT_ROW = re.compile(
    r"\[\s*(?P<id>SUM|\d+)\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<from>\d+(?:\.\d+)?)-\s*(?P<to>\d+(?:\.\d+)?)\s+sec\s+"
    r"[\d.]+\s+\w+\s+(?P<rate>\d+(?:\.\d+)?)\s+(?P<unit>[KMGT]?bits)/sec(?:\s+(?P<retr>\d+)(?=\s))?"
    r"(?P<rest>.*?)\s+(?P<end>sender|receiver)\s*$"
)
_SCALE = {"bits": 1e-9, "Kbits": 1e-6, "Mbits": 1e-3, "Gbits": 1.0, "Tbits": 1e3}
_ERROR = re.compile(r"iperf3: (?:error|interrupt) - (.+)")
_VERSION = re.compile(r"iperf (\d+\.\d+\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction. None where the output does not say it; `lost_percent` for UDP only."""

    name: str
    rate_gbit_per_s: float | None
    sent_gbit_per_s: float | None
    retransmits: int | None
    seconds: float | None
    lost_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3:
    """A test: its flows, or the error that it ended with."""

    version: str
    protocol: str
    flows: tuple[Flow, ...]
    error: str = ""
    asked_seconds: float | None = None
    streams: int | None = None
    host: str = ""
    side: str = ""


def iperf3(text: str) -> Iperf3:
    """Read a test.

    Raises:
        ParseError: it is no output of iperf3, ends early or holds values of another kind.
    """
    if text.lstrip().startswith("{"):
        return _json(text)
    return _text(text.splitlines())


def _json(text: str) -> Iperf3:
    try:
        data = _streamed(text) if '"event"' in text.lstrip()[:20] else json.loads(text, object_pairs_hook=once)
        return _document(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ParseError(
            f"iperf3 JSON: expected a whole document with start and end, found {str(error)[:80]!r}; run it again"
        ) from error


def _streamed(text: str) -> dict[str, Any]:
    """`--json-stream`: one event a line; start and end are objects, an error is text."""
    events: dict[str, Any] = {}
    for line in text.splitlines():
        if line.strip():
            event = json.loads(line, object_pairs_hook=once)
            if event["event"] != "interval":
                events[str(event["event"])] = event["data"]
    return events


def _document(data: dict[str, Any]) -> Iperf3:
    start = data["start"] if "start" in data or not data.get("error") else {}
    end = data.get("end")
    error = str(data.get("error") or "").removeprefix("error - ").strip()
    if end is None and not error:
        raise ValueError("no end")
    test = start.get("test_start") or {}
    protocol = str(test.get("protocol") or "TCP").upper()
    flows = [] if not end else _flows(end, udp=protocol == "UDP")
    if not error and not flows:
        raise ValueError("an end without sums")
    connecting = start.get("connecting_to") or {}
    streams = test.get("num_streams")
    return Iperf3(
        version=str(start.get("version") or "").removeprefix("iperf ").strip(),
        protocol=protocol,
        flows=tuple(flows),
        error=error[:500],
        asked_seconds=_number(test["duration"]) if test.get("duration") else None,
        streams=int(streams) if isinstance(streams, int) else None,
        host=str(connecting.get("host") or "")[:200],
        side="server" if "accepted_connection" in start else "client",
    )


def _flows(end: dict[str, Any], *, udp: bool) -> list[Flow]:
    flows = []
    for name, suffix in (("", ""), ("reverse", "_bidir_reverse")):
        sent, received = end.get(f"sum_sent{suffix}"), end.get(f"sum_received{suffix}")
        total = end.get(f"sum{suffix}") if udp else None
        if received is None and sent is None and total is None:
            continue
        arrived = received if received is not None else total
        rate = None
        if arrived is not None and not (_zero(arrived) and not _zero(sent)):
            rate = _number(arrived["bits_per_second"]) / 1e9
            rate = _checked(arrived, rate)
        lost = (total or {}).get("lost_percent", (arrived or {}).get("lost_percent")) if udp else None
        retransmits = (sent or {}).get("retransmits")
        seconds = (arrived or sent or {}).get("seconds")
        flows.append(
            Flow(
                name=name,
                rate_gbit_per_s=rate,
                sent_gbit_per_s=_number(sent["bits_per_second"]) / 1e9 if sent else None,
                retransmits=_count(retransmits) if retransmits is not None else None,
                seconds=_number(seconds) if seconds is not None else None,
                lost_percent=_number(lost) if lost is not None else None,
            )
        )
    return flows


def _zero(part: dict[str, Any] | None) -> bool:
    """One end of a reversed test knows only its own side and writes zeros for the other."""
    return part is None or not part.get("bytes")


def _checked(part: dict[str, Any], rate: float) -> float:
    """The rate, if bytes and seconds say the same; UDP's jitter buffer and rounding stay below the margin."""
    size, seconds = part.get("bytes"), part.get("seconds")
    if isinstance(size, (int, float)) and isinstance(seconds, (int, float)) and seconds > 0:
        computed = size * 8 / seconds / 1e9
        if abs(computed - rate) > 0.05 * max(computed, rate):
            raise ValueError(f"{rate:g} Gbit/s beside {computed:g} from bytes and seconds")
    return rate


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} for a number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} for a count")
    return value


def _text(lines: Iterable[str]) -> Iperf3:
    """A client's text: the rows that say sender or receiver are the result; [SUM] where there are several."""
    rows: list[re.Match[str]] = []
    error = version = host = ""
    done = known = udp = False
    for line in lines:
        if found := _TEXT_ROW.search(line):
            rows.append(found)
        elif found := _ERROR.search(line):
            error = found[1].strip()[:500]
        elif found := _VERSION.match(line):
            version = found[1]
        elif "Connecting to host " in line:
            host = line.partition("Connecting to host ")[2].split(",")[0]
        udp = udp or "Total Datagrams" in line or "Lost/Total" in line
        done = done or line.startswith("iperf Done")
        known = known or "[ ID] Interval" in line or line.startswith(("Connecting to host", "Server listening"))
    if not (known or rows or error):
        raise ParseError("iperf3 text: expected rows of [ ID] Interval, found none; name the tool with --tool")
    if not error and not done:
        raise ParseError("iperf3 text: expected 'iperf Done.', found no end: the test was cut short")
    return Iperf3(
        version=version,
        protocol="UDP" if udp else "TCP",
        flows=tuple(_text_flows(rows)),
        error=error,
        host=host,
        side="client",
    )


def _text_flows(rows: list[re.Match[str]]) -> list[Flow]:
    flows = []
    for role, name in ((None, ""), ("TX-C", ""), ("RX-C", "reverse")):
        mine = [row for row in rows if row["role"] == role]
        streams = {row["id"] for row in mine}
        if "SUM" in streams:
            mine = [row for row in mine if row["id"] == "SUM"]
        elif len(streams) > 1:
            continue
        by_end = {row["end"]: row for row in mine}
        if not by_end:
            continue
        rates = {end: float(row["rate"]) * _SCALE[row["unit"]] for end, row in by_end.items()}
        sender = by_end.get("sender")
        flows.append(
            Flow(
                name=name,
                rate_gbit_per_s=rates.get("receiver"),
                sent_gbit_per_s=rates.get("sender"),
                retransmits=int(sender["retr"]) if sender is not None and sender["retr"] else None,
                seconds=max(float(row["to"]) - float(row["from"]) for row in by_end.values()),
            )
        )
    return flows
