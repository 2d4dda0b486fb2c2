"""Where a limit comes from: a limit without a source cannot exist."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE_KINDS = ("datasheet", "contract", "baseline", "rule", "declared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a limit comes from. A limit without a source cannot exist.

    `rule` is a rule of this project, explained in `cite`; `baseline` needs `date` and `sample` (nodes or cards).
    """

    kind: str
    cite: str
    date: str = ""
    sample: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SOURCE_KINDS:
            raise ValueError(f"source.kind: expected one of {', '.join(SOURCE_KINDS)}, found {self.kind!r}")
        if not self.cite.strip():
            raise ValueError("source.cite: expected where the limit comes from, found nothing")
        if self.kind == "baseline" and not (self.date and self.sample):
            raise ValueError("source: a baseline needs date and sample")

    def __str__(self) -> str:
        said = f"{self.kind}: {self.cite}"
        if self.sample:
            said += f", {self.date}, n={self.sample}"
        return said
