"""The certificate as a document, version 1: what `certificate.json` holds and what every page is drawn from.

`schema-1.json` beside this file is the JSON Schema of it, made from these types (a test keeps them equal).
Every clause of the profile up to the level asked for stands in it once per expected part, with a word for its
outcome; nothing here depends on which tests were collected. A thousand nodes make some hundred thousand of these cells,
so a cell leaves out what it has nothing to say about, and what the profile or the node says stands there once.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "gpuready-certificate/1"

OutcomeWord = Literal[
    "PASS",
    "MARGINAL",
    "FAIL",
    "NOT MEASURED",
    "NOT TESTED",
    "NOT APPLICABLE",
    "WAIVED",
    "UNSTABLE",
    "OBSERVED",
]

Judged = Literal["ACCEPTED", "REJECTED", "INCOMPLETE"]


class Doc(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all parts of the document."""


class WatchEntry(Doc, frozen=True, kw_only=True, gc=False):
    """What was watched on the part during the measurement: facts for people, series for plots.

    `limits` are the values that a series must not pass: column -> value; left out where nobody said one.
    """

    facts: dict[str, str] = {}
    times_s: list[float] = []
    series: dict[str, list[float]] = {}
    limits: dict[str, float] | msgspec.UnsetType = msgspec.UNSET


class PartEntry(Doc, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One clause on one part; what is empty is left out of the JSON.

    `line` is the one-line finding (set where the outcome is FAIL, NOT MEASURED or UNSTABLE, but for nodes of which
    nothing came at all: there the reason says it), `action` what to do.
    `neighbours` are rows for the comparison block of a finding: metric -> part name -> shown value. `log` are the last
    kernel-log lines about the part. Neighbours, log and watch are evidence that stands in the raw outputs, too: of one
    clause at most 144 failing and 144 other parts have them here.
    """

    part: str
    outcome: OutcomeWord
    shown: str = ""
    """The value as shown, without unit; "" where there is none."""
    value: float | int | str | None = None
    repeats: list[float | int | str] = []
    detail: str = ""
    conditions: str = ""
    margin_percent: float | None = None
    reason: str = ""
    expected: str = ""
    """The limit that the part broke as it was applied to it, with the median of its peers; "" where it is the clause's
    own."""
    line: str = ""
    action: str = ""
    evidence: list[str] = []
    watch: WatchEntry | None = None
    neighbours: dict[str, dict[str, str]] = {}
    log: list[str] = []

    @property
    def node(self) -> str:
        """The node it is, or is in."""
        return self.part.rpartition("/gpu")[0] or self.part

    @property
    def label(self) -> str:
        """For people: "node01" or "node01 GPU 3"."""
        node, slash, index = self.part.rpartition("/gpu")
        return f"{node} GPU {index}" if slash else self.part


class ClauseEntry(Doc, frozen=True, kw_only=True):
    """One clause of the profile with all its parts."""

    id: str
    sentence: str
    """What is promised, one sentence for the customer."""
    metric: str
    unit: str
    level: int
    gate: bool
    required: bool
    per: Literal["node", "gpu"]
    headline: str = ""
    """Short name; non-empty for the clauses of page one."""
    limit: str = ""
    """The limit as shown in ASCII, with sign and unit (">= 53.5 GB/s"); "" where the profile gives none."""
    at_least: float | None = None
    at_most: float | None = None
    equals: float | int | str | None = None
    uniform: bool = False
    marginal: float | None = None
    ceiling: float | None = None
    source_kind: str = ""
    source: str = ""
    peers: str = ""
    """What is promised against peers, in ASCII; "" where nothing is."""
    peers_source: str = ""
    not_applicable: str = ""
    parts: list[PartEntry]


class SuiteEntry(Doc, frozen=True, kw_only=True):
    """One suite: the clauses of one subject, in the order of the profile."""

    id: str
    title: str
    level: int
    gate: bool
    clauses: list[ClauseEntry]


class GpuEntry(Doc, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One expected GPU; what nobody could say is left out of the JSON."""

    part: str
    index: int
    present: bool
    bdf: str = ""
    pci_id: str = ""
    name: str = ""
    uuid: str = ""
    serial: str = ""
    module: str = ""
    part_number: str = ""
    vbios: str = ""
    inforom: str = ""
    memory_mib: int = 0
    pcie: str = ""
    """Link under load ("Gen5 x16"), or as found idle ("Gen5 x16, idle")."""
    nvlinks: str = ""


class NodeEntry(Doc, frozen=True, kw_only=True):
    """One expected node, with what its own clauses come to: the rule is that of the whole certificate.

    Its `verdict` has the basis in it, as that of the certificate has; whoever takes over single nodes reads that.
    """

    name: str
    verdict: str = ""
    judged: Judged = "INCOMPLETE"
    level_reached: int = 0
    outcomes: dict[str, int] = {}
    """How many of its cells have which outcome."""
    why: list[str] = []
    """Why it is not ACCEPTED, worst first, a few lines."""
    answered: bool = True
    """False where nothing came from it: nobody has seen its GPUs, and what its cells lack is no fault of them."""
    problem: str = ""
    """Why what it says of itself is not complete."""
    host: str = ""
    """What the machine calls itself; `name` is what the site file calls it."""
    system: str = ""
    system_serial: str = ""
    rack: str | msgspec.UnsetType = msgspec.UNSET
    """Left out where nobody said in which rack it stands."""
    kernel: str = ""
    boot_id: str = ""
    driver: str = ""
    cuda: str = ""
    virtual: str = ""
    gpus: list[GpuEntry]

    @property
    def place(self) -> str:
        """What finds the machine in the room: "rack R12, serial 4711"; "" where neither is known."""
        serial = f"serial {self.system_serial}" if self.system_serial else ""
        return ", ".join(filter(None, (f"rack {self.rack}" if self.rack else "", serial)))


class ProfileEntry(Doc, frozen=True, kw_only=True):
    """The profile that was applied."""

    name: str
    version: str
    title: str
    sha256: str
    notes: list[str] = []


class SiteEntry(Doc, frozen=True, kw_only=True):
    """The site file that was applied."""

    name: str
    sha256: str
    provider: str = ""
    customer: str = ""
    agreement: str = ""


class ExclusionEntry(Doc, frozen=True, kw_only=True):
    """A clause that was taken out, with its reason."""

    clause: str
    reason: str


class EvidenceEntry(Doc, frozen=True, kw_only=True, gc=False):
    """One raw output: the command that gave it, its size and digest; the file lies under `evidence/`.

    `command` is whole, the plan of the built-in engine in it; `says` is what it does, for people ("burn-in (level 4)").
    """

    sha256: str
    file: str
    command: str
    says: str = ""
    node: str
    exit_code: int | None = None
    size_bytes: int
    started: str
    duration_s: float


class Counts(Doc, frozen=True, kw_only=True):
    """How many clause x part cells have which outcome."""

    clauses: int
    cells: int
    outcomes: dict[str, int]


class Certificate(Doc, frozen=True, kw_only=True):
    """The whole certificate."""

    schema: Literal["gpuready-certificate/1"] = "gpuready-certificate/1"
    number: str
    """ "GR-" and twelve hexadecimal digits."""
    verdict: str = ""
    """The verdict as it stands everywhere: "ACCEPTED" is there only on basis hardware; a replay of the same says
    "REPLAY: would be ACCEPTED"."""
    judged: Judged
    """What the clauses come to, whatever the basis; read it together with `basis`."""
    basis: Literal["hardware", "replay", "stand-in"]
    basis_note: str = ""
    """For a replay: what was replayed and when it was recorded. For a stand-in: why it is one."""
    says: str
    """One or two sentences beside the verdict."""
    finished: bool
    """False while the run goes on: what lies on disk then says INCOMPLETE."""
    why: list[str] = []
    """Why it is not ACCEPTED, one line each, worst first; what several nodes share is one line."""
    do_next: list[str] = []
    started: str
    issued: str
    """UTC, ISO 8601, seconds."""
    level_asked: int
    level_reached: int
    keep_going: bool = False
    product: str
    """Name and version of this software."""
    profile: ProfileEntry | None
    site: SiteEntry | None = None
    nodes: list[NodeEntry]
    assumptions: list[str] = []
    exclusions: list[ExclusionEntry] = []
    suites: list[SuiteEntry]
    counts: Counts
    environment: dict[str, str] = {}
    evidence: list[EvidenceEntry] = []

    def __post_init__(self) -> None:
        text = verdict_text(self.judged, self.basis)
        if self.verdict not in ("", text):
            raise ValueError(f"verdict: expected {text!r} for this basis, found {self.verdict!r}")
        msgspec.structs.force_setattr(self, "verdict", text)


def verdict_text(judged: str, basis: str) -> str:
    """The verdict with its basis in it: nobody who reads this one string can take a replay for a machine."""
    return judged if basis == "hardware" else f"{basis.upper()}: would be {judged}"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the certificate."""
    schema: dict[str, Any] = msgspec.json.schema(Certificate)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
