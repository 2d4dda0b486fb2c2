"""Prometheus text metrics -> samples. Numbers may be integers, decimals or with an exponent; labels are kept.

The format has no end mark (OpenMetrics has `# EOF`): a last line without its end, or a family that is announced and
has no sample, shows that the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

SAMPLES_AT_MOST = 200_000

_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?[ \t]+"
    r"(?P<value>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|[-+]?Inf|NaN)"
    r"(?:[ \t]+-?\d+(?:\.\d+)?)?(?: # .*)?[ \t]*$"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_FAMILY = re.compile(r"^# (?:HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*)(?: |$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number with its labels."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Samples of the asked prefixes, in order; lines that are none of the format; whether the text was cut."""

    samples: tuple[Sample, ...]
    malformed: tuple[str, ...]
    cut: bool
    families: int

    def named(self, *names: str) -> list[Sample]:
        """Samples of these names."""
        return [s for s in self.samples if s.name in names]


def parse_prometheus(lines: Iterable[str], prefixes: tuple[str, ...]) -> Metrics:
    """All samples whose name begins with one of the prefixes. `lines` keep their ends.

    Raises:
        ParseError: there is no sample at all, there are far too many, or one is there twice with two values.
    """
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    malformed: list[str] = []
    families: set[str] = set()
    waiting = ""
    seen = 0
    ended = True
    for raw in lines:
        line, ended = raw.rstrip("\r\n"), raw.endswith(("\n", "\r"))
        if not line.strip():
            continue
        if line.startswith("#"):
            if found := _FAMILY.match(line):
                waiting = found[1]
                families.add(waiting)
            continue
        sample = _sample(line)
        if sample is None:
            malformed += [line[:120]] if len(malformed) < 20 else []
            continue
        seen += 1
        waiting = ""
        if sample.name.startswith(prefixes):
            key = (sample.name, tuple(sorted(sample.labels.items())))
            if key in samples and samples[key].value != sample.value:
                raise ParseError(f"metrics: expected {sample.name} once with its labels, found two values; read again")
            samples[key] = sample
        if len(samples) > SAMPLES_AT_MOST:
            raise ParseError(
                f"metrics: expected at most {SAMPLES_AT_MOST} samples, found more; audit one server at once"
            )
    if not seen:
        raise ParseError("metrics: expected samples 'name{labels} value', found none; read the metrics again")
    return Metrics(
        samples=tuple(samples.values()),
        malformed=tuple(malformed),
        cut=bool(waiting) or not ended,
        families=len(families),
    )


def _sample(line: str) -> Sample | None:
    found = _SAMPLE.match(line)
    if not found:
        return None
    labels: dict[str, str] = {}
    text, at = found["labels"] or "", 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if not label or label[1] in labels:
            return None
        labels[label[1]] = label[2]
        at = label.end()
    return Sample(name=found["name"], labels=labels, value=float(found["value"]))
