"""`ibstat` and `ibstatus` -> ports. States are told by name, so both tools give the same rows.

A line that the text does not hold is None in the row: a port that was cut off is a row that lacks something. The rate
is the number; the technology beside it ("4X EDR") is a label that older kernels get wrong. Newer `ibstat` prints an
effective speed too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

PORTS_AT_MOST = 4096
GBIT_AT_MOST = 100_000

ACTIVE, DOWN, INITIALIZING, ARMED = "Active", "Down", "Initializing", "Armed"
LINK_UP = "LinkUp"
_STATES = {"down": DOWN, "init": INITIALIZING, "initializing": INITIALIZING, "armed": ARMED, "active": ACTIVE}
_PHYSICAL = {
    "sleep": "Sleep",
    "polling": "Polling",
    "disabled": "Disabled",
    "training": "Training",
    "portconfigurationtraining": "Training",
    "linkup": LINK_UP,
    "linkerrorrecovery": "LinkErrorRecovery",
    "phytest": "PhyTest",
    "phy test": "PhyTest",
    "nop state change": "No state change",
}
_CA = re.compile(r"^(?:CA|iWARP RNIC|Router|Switch):? '([^'\s]{1,64})'\s*$")
_PORT = re.compile(r"^\s*Port (\d{1,3}):\s*$")
_STATUS = re.compile(r"^Infiniband device '([^'\s]{1,64})' port (\d{1,3}) status:\s*$")
_FIELD = re.compile(r"^\s*([A-Za-z_ ]{2,32}?)\s*:\s*(.*?)\s*$")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(?: Gb/sec)?(?: \((.{1,24})\))?")
_LID = re.compile(r"0x[0-9a-fA-F]{1,4}|\d{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IbPort:
    """One port of one adapter. `layer` is "InfiniBand" or "Ethernet"; None is what the text does not say."""

    device: str
    port: int
    state: str | None
    physical: str | None
    rate_gbit: float | None
    effective_gbit: float | None
    label: str
    layer: str | None
    sm_lid: int | None
    firmware: str
    declared_ports: int | None

    @property
    def whole(self) -> bool:
        """Nothing of what is judged is missing."""
        return None not in (self.state, self.physical, self.rate_gbit, self.layer)

    @property
    def name(self) -> str:
        """As people write it: "mlx5_0", with the port where it is not the first."""
        return self.device if self.port == 1 else f"{self.device}/{self.port}"


def parse_ib_ports(lines: Iterable[str]) -> tuple[IbPort, ...]:
    """Every port of an `ibstat` or `ibstatus`, in order.

    Raises:
        ParseError: there is no port, one is there twice, or a value is not one that the tools print.
    """
    rows: list[tuple[str, int, dict[str, str], dict[str, str]]] = []
    device, adapter = "", dict[str, str]()
    fields: dict[str, str] | None = None
    for line in lines:
        if found := _CA.match(line):
            device, adapter, fields = found[1], {}, None
        elif found := _STATUS.match(line):
            device, adapter, fields = found[1], {}, {}
            rows.append((device, int(found[2]), adapter, fields))
        elif device and (found := _PORT.match(line)):
            fields = {}
            rows.append((device, int(found[1]), adapter, fields))
        elif device and (found := _FIELD.match(line)):
            into = adapter if fields is None else fields
            name = found[1].strip().lower().replace("_", " ")
            if into.setdefault(name, found[2]) != found[2]:
                raise ParseError(f"ib ports: expected one {name!r} for {device}, found two; take the output again")
        if len(rows) > PORTS_AT_MOST:
            raise ParseError(f"ib ports: expected at most {PORTS_AT_MOST} ports, found more; audit the nodes apart")
    if not rows:
        raise ParseError('ib ports: expected "CA \'mlx5_0\'" or "Infiniband device ...", found none; run ibstat again')
    if len({(row[0], row[1]) for row in rows}) != len(rows):
        raise ParseError("ib ports: expected each port once, found one twice; audit the nodes apart")
    return tuple(_port(*row) for row in rows)


def _port(device: str, port: int, adapter: dict[str, str], fields: dict[str, str]) -> IbPort:
    rate, label = _rate(device, fields.get("rate"))
    layer = fields.get("link layer")
    return IbPort(
        device=device,
        port=port,
        state=_word(device, "state", fields.get("state"), _STATES),
        physical=_word(device, "physical state", fields.get("physical state", fields.get("phys state")), _PHYSICAL),
        rate_gbit=rate,
        effective_gbit=_rate(device, fields.get("effective speed"))[0],
        label=label,
        layer=_word(
            device, "link layer", layer, {"infiniband": "InfiniBand", "ib": "InfiniBand", "ethernet": "Ethernet"}
        ),
        sm_lid=_lid(fields.get("sm lid")),
        firmware=adapter.get("firmware version", ""),
        declared_ports=int(adapter["number of ports"]) if adapter.get("number of ports", "").isdecimal() else None,
    )


def _word(device: str, what: str, text: str | None, known: dict[str, str]) -> str | None:
    """One of the known words, with or without the number in front ("4: ACTIVE"); None where the line is not there."""
    if text is None or not text:
        return None
    word = known.get(re.sub(r"^\d{1,2}:\s*", "", text).strip().lower())
    if word is None:
        raise ParseError(f"ib ports: expected a {what} of {device}, found {text[:40]!r}; take the output again")
    return word


def _rate(device: str, text: str | None) -> tuple[float | None, str]:
    if text is None or not text:
        return None, ""
    found = _RATE.fullmatch(text)
    if not found or float(found[1]) > GBIT_AT_MOST:
        raise ParseError(f"ib ports: expected a rate of {device} in Gb/s, found {text[:40]!r}; take the output again")
    return float(found[1]), found[2] or ""


def _lid(text: str | None) -> int | None:
    if not text or not _LID.fullmatch(text):
        return None
    return int(text, 16 if text.startswith("0x") else 10)
