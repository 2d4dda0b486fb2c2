"""`dcgmi discovery -l` and `dcgmi health`: the list of GPUs and what the watches say of them.

The health table of an incident follows its JSON and was not recorded itself.
"""

from __future__ import annotations

import sys
from typing import Any

from .documents import written
from .scenario import Scenario

NO_ENGINE = "Error: Unable to connect to host engine. Host engine connection invalid/disconnected."
_WIDE = "+--------+----------------------------------------------------------------------+"
_HEALTH = "+---------------------------+----------------------------------------------------------+"


def reachable(words: list[str], scenario: Scenario) -> bool:
    """Whether a host engine answers; says so as dcgmi does where none does."""
    host = words[words.index("--host") + 1] if "--host" in words[:-1] else "localhost"
    local = host in ("localhost", "127.0.0.1")
    if host in scenario.hosts or (local and scenario.host_engine in ("running", "paused")):
        return True
    sys.stdout.write(f"Error: unable to establish a connection to the specified host: {host}\n{NO_ENGINE}\n")
    return False


def discovery(words: list[str], scenario: Scenario) -> int:
    """Prints the list; exit 0 also without any GPU."""
    if not reachable(words, scenario):
        return 235
    s = "" if scenario.count == 1 else "s"
    lines = [f"{scenario.count} GPU{s} found (Active).", *_entities("GPU")]
    for gpu in range(scenario.count):
        lines += [
            f"| {gpu:<7}| {'Name: ' + scenario.name:<69}|",
            f"|        | {'PCI Bus ID: ' + scenario.bus_ids[gpu]:<69}|",
            f"|        | {f'Device UUID: GPU-00000000-0000-0000-0000-{gpu:012d}':<69}|",
            _WIDE,
        ]
    lines += [] if scenario.count else [_WIDE]
    lines += ["0 NvSwitches found.", "+-----------+", "| Switch ID |", "+-----------+", "+-----------+"]
    if not scenario.old:
        lines += ["0 ConnectX found.", "+----------+", "| ConnectX |", "+----------+", "+----------+"]
    lines += ["0 CPUs found.", *_entities("CPU"), _WIDE]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _entities(kind: str) -> list[str]:
    return [_WIDE, f"| {kind} ID | {'Device Information':<69}|", _WIDE]


def health(words: list[str], scenario: Scenario) -> int:
    """Sets watches (-s) or prints what they say (-c); exit 0 whatever that is."""
    if not reachable(words, scenario):
        return 235
    if "-s" in words:
        sys.stdout.write("Health monitor systems set successfully.\n")
        return 0
    incidents: dict[str, Any] = scenario.health.get("gpus", {})
    overall = str(scenario.health.get("overall", "Failure" if incidents else "Healthy"))
    if "-j" in words:
        body: dict[str, Any] = {"Overall Health": {"value": overall}}
        if incidents:
            body["GPU"] = {"children": {str(gpu): _tree(systems) for gpu, systems in incidents.items()}}
        sys.stdout.write(written({"body": body, "header": ["Health Monitor Report"]}) + "\n")
        return 0
    lines = [_HEALTH, f"| {'Health Monitor Report':<85}|", _HEALTH.replace("-", "=")]
    lines.append(_row("Overall Health", overall))
    lines += [_row("GPU", "")] if incidents else []
    for gpu, systems in incidents.items():
        lines += [_row(f"-> {gpu}", _worst(systems)), _row("   -> Errors", "")]
        for system, found in systems.items():
            lines.append(_row(f"      -> {system}", found.get("health", "Failure")))
            lines += [_row("", line) for line in found.get("lines", [])]
    sys.stdout.write("\n".join([*lines, _HEALTH]) + "\n")
    return 0


def _row(name: str, said: str) -> str:
    return f"| {name:<26}| {said:<57}|"


def _worst(systems: dict[str, Any]) -> str:
    return "Failure" if any(one.get("health", "Failure") == "Failure" for one in systems.values()) else "Warning"


def _tree(systems: dict[str, Any]) -> dict[str, Any]:
    errors = {
        system: {"overflow": list(found.get("lines", [])), "value": found.get("health", "Failure")}
        for system, found in systems.items()
    }
    return {"children": {"Errors": {"children": errors}}, "value": _worst(systems)}
