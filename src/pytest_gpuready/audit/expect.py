"""What was expected of the machine, by name: `--expect KEY=VALUE`, or a case's `given`. An unknown key is an error."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.errors import GpuReadyError

COUNT, NUMBER, TEXT, BOOL, LIST, TIME, COUNT_OR_ALL = (
    "count",
    "number",
    "text",
    "true or false",
    "a list",
    "ISO time",
    "count or all",
)

VOCABULARY: dict[str, str] = {
    "expected_gpus": COUNT,
    "gpus_per_node": COUNT,
    "nodes": COUNT,
    "ranks": COUNT,
    "ranks_per_node": COUNT,
    "iterations": COUNT,
    "expected_model": TEXT,
    "required_tests": LIST,
    "requested_host": TEXT,
    "min_peak_busbw_gb_per_s": NUMBER,
    "require_correctness": BOOL,
    "require_gdr": BOOL,
    "expected_transport": TEXT,
    "expected_intra_node": TEXT,
    "rails_per_node": COUNT,
    "rail_gbit_per_s": NUMBER,
    "expected_nvlinks_per_gpu": COUNT,
    "expected_nvlinks_per_pair": COUNT,
    "expected_nvlink_pairs": LIST,
    "nvswitch": BOOL,
    "bare_metal": BOOL,
    "under_load": BOOL,
    "expected_mig": TEXT,
    "expected_pcie_gen": COUNT,
    "expected_pcie_width": COUNT,
    "expected_nics": LIST,
    "window_start": TIME,
    "max_corrected_per_run": COUNT,
    "max_replay_errors": COUNT,
    "max_recovery_errors": COUNT,
    "fabric": TEXT,
    "expected_ports": COUNT,
    "expected_rate_gbit_per_s": NUMBER,
    "max_symbol_errors": COUNT,
    "max_link_downed": COUNT,
    "max_effective_errors": COUNT,
    "min_rate_gbit_per_s": NUMBER,
    "max_retransmits": COUNT,
    "max_tokens": COUNT,
    "max_failures": COUNT,
    "gpus": COUNT_OR_ALL,
}
"""Key -> kind of value. Beside these, any sysctl name (dotted or slashed) takes a value, <=N or >=N."""

_UNITS = {"_gb_per_s": "GB/s", "_gbit_per_s": "Gb/s"}
_SYSCTL = re.compile(r"[a-z][a-z0-9_-]*([./][a-z0-9_*-]+)+")


class ExpectError(GpuReadyError):
    """An expectation is not one that this version knows, or its value is of another kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """An expectation that nobody gave: a profile promises it. `source` says which clause, and where that comes from."""

    key: str
    value: int | str | bool
    clause: str
    source: str


class Expectations:
    """What was expected; a key that was not given is None. Readers ask by name, so every use is checked here.

    What a profile promises is asked for by the same names. It is no question that the text has to answer: `keys` has
    only what was given, and a reader that finds a promise unanswered says nothing, or observed.
    """

    def __init__(self, values: Mapping[str, Any], *, source: str) -> None:
        """Check every key and value.

        Raises:
            ExpectError: a key is unknown, or its value is of another kind.
        """
        self.source = source
        self._values: dict[str, Any] = {}
        self._promised: dict[str, Promise] = {}
        for key, value in values.items():
            kind = VOCABULARY.get(key)
            if kind is None and not _SYSCTL.fullmatch(key):
                import difflib  # noqa: PLC0415 - for a mistake only

                near = difflib.get_close_matches(key, VOCABULARY, n=1)
                hint = f"did you mean {near[0]}?" if near else "see the documentation for the names"
                raise ExpectError(f"{source}: expected a known expectation, found {key!r}; {hint}")
            self._values[key] = _checked(key, value, kind or TEXT, source)

    def with_promises(self, promises: Iterable[Promise]) -> Expectations:
        """The same, and what is promised of anything that was not given."""
        both = copy.copy(self)
        both._promised = {p.key: p for p in promises if p.key not in self._values}
        return both

    def keys(self) -> tuple[str, ...]:
        """Names that were given."""
        return tuple(self._values)

    def given(self, key: str) -> Any:
        """What was given under this name, as it was given; None where it was not."""
        return self._values.get(key)

    def asked(self, key: str) -> bool:
        """Whether it was given: only then does a text that cannot answer it have to say so."""
        return key in self._values

    def source_of(self, key: str) -> str:
        """Where the expectation of this name comes from: who gave it, or the profile that promises it."""
        return self._promised[key].source if key in self._promised else self.source

    def told(self, key: str) -> str:
        """What was given under this name, to show: with the unit that the name ends with."""
        value = self._values[key]
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
        return f"{text} {unit}".strip()

    def sysctls(self) -> dict[str, str]:
        """Sysctl names that were given, with the expected value as text ("10", "<=10")."""
        return {k: str(v) for k, v in self._values.items() if k not in VOCABULARY}

    def number(self, key: str) -> float | None:
        """A number or count, or None."""
        value = self._of(key, COUNT, NUMBER)
        return float(value) if value is not None else None

    def count(self, key: str) -> int | None:
        """A count, or None."""
        value = self._of(key, COUNT)
        return int(value) if value is not None else None

    def text(self, key: str) -> str | None:
        """Text, a time, or a count-or-all as text; or None."""
        value = self._of(key, TEXT, TIME, COUNT_OR_ALL)
        return str(value) if value is not None else None

    def flag(self, key: str) -> bool | None:
        """True, False, or None where it was not given."""
        value = self._of(key, BOOL)
        return bool(value) if value is not None else None

    def list(self, key: str) -> list[Any] | None:
        """A list, or None."""
        value = self._of(key, LIST)
        return list(value) if value is not None else None

    def _of(self, key: str, *kinds: str) -> Any:
        if VOCABULARY[key] not in kinds:
            raise KeyError(f"{key} is {VOCABULARY[key]}, asked for as {kinds[0]}")
        promise = self._promised.get(key)
        return promise.value if promise else self._values.get(key)


def from_options(options: list[str]) -> Expectations:
    """From `--expect KEY=VALUE` words; a value is JSON where it reads as JSON, else text.

    Raises:
        ExpectError: a word has no `=`, a key has two values, or as in `Expectations`.
    """
    values: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise ExpectError(f"--expect: expected KEY=VALUE, found {option!r}; write --expect {option}=...")
        name, value = key.strip(), _json_or_text(text.strip())
        if name in values and values[name] != value:
            found = f"{str(values[name])[:80]!r} and {str(value)[:80]!r}"
            raise ExpectError(f"--expect {name}: expected one value, found {found}; give one of them")
        values[name] = value
    return Expectations(values, source="--expect")


def _json_or_text(text: str) -> Any:
    import json  # noqa: PLC0415 - only where something is expected

    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(key: str, value: Any, kind: str, source: str) -> Any:
    good = {
        COUNT: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        NUMBER: isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0,
        TEXT: isinstance(value, (str, int, float)) and not isinstance(value, bool),
        TIME: isinstance(value, str) or hasattr(value, "isoformat"),
        BOOL: isinstance(value, bool),
        LIST: isinstance(value, (list, tuple)),
        COUNT_OR_ALL: value == "all" or (isinstance(value, int) and not isinstance(value, bool)),
    }[kind]
    if not good:
        raise ExpectError(f"{source} {key}: expected {kind}, found {str(value)[:80]!r}; correct the value")
    return value.isoformat() if kind == TIME and hasattr(value, "isoformat") else value
