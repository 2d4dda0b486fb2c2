"""What stands where on the page: small frozen views of the certificate that the templates only have to lay out.

No HTML in here and no decisions about verdicts: the outcome of every cell is the document's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pytest_gpuready.certificate import findings as found
from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, GpuEntry, PartEntry
from pytest_gpuready.certificate.findings import Finding
from pytest_gpuready.certificate.tables import Row, ids_text, row
from pytest_gpuready.certificate.words import NBSP

LIST_AT_MOST = 8
ROWS_AT_MOST = 12
"""Page one holds about twelve promises; more of them are folded where they say the same."""
COMMANDS = ("pytest", "gpuready", "nvidia-smi", "dcgmi", "make")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The verdict band: words, look and the title of the window."""

    lines: tuple[str, ...]
    css: str
    glyph: str
    basis: str
    title: str
    short: str


def band(certificate: Certificate) -> Band:
    """The verdict with its basis. Seal and green belong to ACCEPTED on hardware after a run that has ended."""
    status = certificate.judged if certificate.finished or certificate.judged != "ACCEPTED" else "INCOMPLETE"
    where = nodes_text(certificate)
    running = "" if certificate.finished else ", run not ended"
    if certificate.basis == "hardware":
        css, glyph = {
            "ACCEPTED": ("v-accepted", "g-seal"),
            "REJECTED": ("v-rejected", "g-fail"),
            "INCOMPLETE": ("v-incomplete", "g-nt"),
        }[status]
        title = f"{status}{running}, {where}: GPU acceptance certificate"
        return Band(lines=(status,), css=css, glyph=glyph, basis="hardware", title=title, short=status)
    name = "REPLAY" if certificate.basis == "replay" else "STAND-IN"
    return Band(
        lines=(f"{name}: would be", status),
        css="v-replay",
        glyph="g-replay" if name == "REPLAY" else "g-standin",
        basis=certificate.basis,
        title=f"{name}: would be {status}{running}, {where}: GPU acceptance test, certifies no hardware",
        short=f"{name}: would be {status}",
    )


def nodes_text(certificate: Certificate) -> str:
    names = [words.clean(node.name, 60) for node in certificate.nodes]
    if len(names) > 3:
        return f"{len(names)} nodes, {names[0]} to {names[-1]}"
    return words.listed(names) or "no node"


def hardware_text(certificate: Certificate) -> str:
    """Expected GPUs by model, and how many of them are there."""
    gpus = [gpu for node in certificate.nodes for gpu in node.gpus]
    if not gpus:
        return "no GPU expected"
    models = list(dict.fromkeys((gpu.name, gpu.memory_mib) for gpu in gpus if gpu.name))
    said = []
    for name, mib in models[:3]:
        count = sum((gpu.name, gpu.memory_mib) == (name, mib) for gpu in gpus)
        memory = f", {words.grouped(mib)}{NBSP}MiB" if mib else ""
        said.append(f"{count}{NBSP}\u00d7{NBSP}{words.clean(name, 60)}{memory}")
    present = sum(gpu.present for gpu in gpus)
    if present < len(gpus):
        said.append(f"{present} of {len(gpus)} expected GPUs found")
    return "; ".join(said) if said else f"{len(gpus)} GPUs expected, {present} found"


def facts(certificate: Certificate) -> list[tuple[str, str]]:
    """Who, what and when, in the order of reading; only what somebody stated."""
    node = certificate.nodes[0] if len(certificate.nodes) == 1 else None
    serial = f", serial {words.clean(node.system_serial, 60)}" if node and node.system_serial else ""
    site, profile = certificate.site, certificate.profile
    replay = certificate.basis == "replay"
    said = [
        ("Recording of" if replay else "Node" if node else "Nodes", nodes_text(certificate) + serial),
        ("Hardware in the recording" if replay else "Hardware", hardware_text(certificate)),
    ]
    if certificate.basis != "hardware":
        said.append(("Handed over by, to", f"nobody: a {certificate.basis} is not handed over"))
    elif site is not None:
        said += [("Handed over by", site.provider)] if site.provider else []
        agreed = ", ".join(text for text in (site.customer, site.agreement) if text)
        said += [("Received by", agreed)] if agreed else []
    until = words.time_text(certificate.issued)
    until = until[11:] if until[:10] == certificate.started[:10] else until
    said.append(("Judged" if replay else "Measured", f"{words.time_text(certificate.started)} to {until} UTC"))
    said.append(("Profile", f"{profile.name} {profile.version}" if profile else "none: unknown hardware"))
    levels = f"{certificate.level_reached} of {certificate.level_asked} asked for is reached"
    said.append(("Level", levels + (", kept going past gates" if certificate.keep_going else "")))
    counts = certificate.counts
    missing = sum(counts.outcomes.get(outcome, 0) for outcome in words.OPEN)
    cells = f"{counts.clauses} on {words.count_text(counts.cells, 'part')}"
    said.append(("Clauses", f"{cells}, {f'{words.grouped(missing)} without verdict' if missing else 'none missing'}"))
    return said


def gpu_of(certificate: Certificate, part: str) -> GpuEntry | None:
    return next((gpu for node in certificate.nodes for gpu in node.gpus if gpu.part == part), None)


def where_text(certificate: Certificate, part: PartEntry) -> str:
    """Everything that finds one part: node, GPU, module, address, serial, UUID; the label where it is no known GPU."""
    gpu = gpu_of(certificate, part.part)
    node, index = words.split_part(part.part)
    if gpu is None:
        return part.label or words.part_text(part.part, True)
    said = [words.clean(node, 60), f"GPU{NBSP}{index}"]
    said += [f"module{NBSP}{gpu.module}"] if gpu.module else []
    said += [text for text in (gpu.bdf, f"serial {gpu.serial}" if gpu.serial else "", gpu.uuid) if text]
    return " \u00b7 ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Triad:
    """The three columns of a rejected page: a large line and small lines each."""

    part: str
    part_notes: tuple[str, ...]
    why: str
    why_notes: tuple[str, ...]
    action: str
    action_notes: tuple[str, ...]


def triad(certificate: Certificate, all_findings: list[Finding], many: bool) -> Triad | None:
    """Which part, why, what to do next: from the worst finding. None on a page that is not rejected."""
    if certificate.judged != "REJECTED" or not all_findings or all_findings[0].outcome != "FAIL":
        return None
    worst = all_findings[0]
    gpu = gpu_of(certificate, worst.worst.part)
    name = words.parts_text(worst.parts, many, 4)
    if len(worst.parts) == 1:
        name += f", module{NBSP}{words.clean(gpu.module, 20)}" if gpu and gpu.module else ""
        notes = (
            [text for text in (gpu.bdf, f"serial {gpu.serial}" if gpu.serial else "", gpu.uuid) if text] if gpu else []
        )
        notes = notes or [worst.worst.label or worst.worst.part]
    else:
        notes = [f"worst: {where_text(certificate, worst.worst)}"]
    notes.insert(0, words.split_part(worst.worst.part)[0]) if gpu and not many and len(worst.parts) == 1 else None
    others = found.also_failing(worst, all_findings)
    why_notes = [f"{worst.clause.id}: {worst.clause.sentence}"]
    if others:
        why_notes.append(f"The same part also fails {words.listed(others, 5)}; probably one cause.")
    names = node_names(certificate)
    action, rest = first_step(worst.worst.action or "read the finding below")
    todo = [rest] if rest else []
    todo += [line for line in certificate.do_next if line.strip() and line != worst.worst.action][:2]
    return Triad(
        part=name,
        part_notes=tuple(notes),
        why=fail_text(worst),
        why_notes=tuple(why_notes),
        action=action,
        action_notes=tuple(sentence(line, names) for line in todo),
    )


def first_step(action: str) -> tuple[str, str]:
    """An action as a large first step and the rest: split at a semicolon or ", then"."""
    for mark in ("; ", ", then "):
        head, split, rest = action.partition(mark)
        if split and len(head) > 12:
            return sentence(head).rstrip("."), f"Then {rest}" if mark == ", then " else sentence(rest)
    return sentence(words.clean(action, 200)).rstrip("."), ""


def sentence(text: str, keep: Collection[str] = ()) -> str:
    """A line as a sentence: first letter large, full stop at the end; a command stays as it is typed.

    `keep` are names (of nodes) that are never changed.
    """
    text = text.strip()
    if not text:
        return ""
    word = text.split()[0]
    if word in COMMANDS:
        return text
    if word.rstrip(":,;") not in keep:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def node_names(certificate: Certificate) -> frozenset[str]:
    return frozenset(node.name for node in certificate.nodes)


def name_of(clause: ClauseEntry) -> str:
    return clause.headline or clause.sentence.rstrip(".") or clause.metric


def fail_text(finding: Finding) -> str:
    """What failed, with value and limit: "PCIe lanes under load: 8, limit >= 16"."""
    clause, worst = finding.clause, finding.worst
    value = words.with_unit(words.value_text(clause, worst, 80), clause.unit)
    if not words.value_text(clause, worst):
        return words.clean(name_of(clause), 90)
    name = words.clean(name_of(clause), 90)
    if words.bound_of(clause) is None:
        expected = "the same on all GPUs" if clause.uniform else words.limit_text(clause)
        return f"{name}: {value}, expected {expected}"
    return f"{name}: {value}, limit {words.limit_text(clause)}"


def finding_title(finding: Finding, many: bool) -> str:
    """The large line of a finding: parts first, then what was found."""
    clause = finding.clause
    who = words.parts_text(finding.parts, many)
    if finding.outcome == "FAIL":
        return f"{who}: {fail_text(finding)}"
    if len(finding.clause_ids) == 1:
        verb = {
            "NOT MEASURED": "gave no value",
            "UNSTABLE": "runs disagree",
            "NOT TESTED": "not tested",
            "OBSERVED": "recorded without a limit",
        }.get(finding.outcome, finding.outcome.lower())
        return f"{who}: {words.clean(name_of(clause), 120)}: {verb}"
    what = {"NOT MEASURED": "not measured", "NOT TESTED": "not tested", "OBSERVED": "observed, without a limit"}
    count = words.count_text(len(finding.clause_ids), "clause")
    return f"{count} {what.get(finding.outcome, finding.outcome.lower())}, {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Several promises of one suite that end the same way on every part: one row instead of many."""

    suite: str
    outcome: str
    ids: str
    names: str
    count: int
    cells: int
    reason: str
    parts: tuple[PartEntry, ...]


def promised(certificate: Certificate, many: bool) -> list[Row | Fold]:
    """Page one: clauses with a headline; on a page that is not accepted the bad ones first.

    From ROWS_AT_MOST on, clauses of one suite that only count or compare words and PASS on every part are folded;
    three or more clauses of a suite without any verdict are folded always.
    """
    rows = [
        row(c, many, headline=True) for suite in certificate.suites for c in suite.clauses if c.headline and c.parts
    ]
    full = len(rows) > ROWS_AT_MOST
    shown: list[Row | Fold] = []
    for suite in certificate.suites:
        own = [one for one in rows if one.clause in suite.clauses]
        groups: dict[tuple[str, str], list[Row]] = {}
        for one in own:
            groups.setdefault(_fold_key(one, full), []).append(one)
        for (outcome, reason), members in groups.items():
            if outcome and len(members) > 2:
                shown.append(_fold(suite.title, outcome, reason, members))
            else:
                shown += members
    if certificate.judged == "ACCEPTED":
        return shown
    return sorted(shown, key=lambda r: words.rank(r.outcome) if r.outcome in ("FAIL", *words.OPEN) else 99)


def _fold_key(one: Row, full: bool) -> tuple[str, str]:
    """Rows with equal keys can be folded; ("", clause) stands alone."""
    alike = len({part.outcome for part in one.clause.parts}) == 1
    wordy = words.bound_of(one.clause) in (None, 0.0)
    if alike and one.outcome in words.OPEN:
        return one.outcome, one.clause.parts[0].reason
    if alike and full and wordy and one.outcome == "PASS":
        return one.outcome, ""
    return "", one.clause.id


def _fold(title: str, outcome: str, reason: str, members: list[Row]) -> Fold:
    longest = max(members, key=lambda one: one.count)
    return Fold(
        suite=title,
        outcome=outcome,
        ids=ids_text([one.clause.id for one in members]),
        names=", ".join(one.clause.headline for one in members),
        count=len(members),
        cells=sum(one.count for one in members),
        reason=reason,
        parts=tuple(longest.clause.parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """One group of the column "Not covered": entries are (outcome or "", strong words, text)."""

    title: str
    entries: tuple[tuple[str, str, str], ...]
    more: int = 0


def not_covered(certificate: Certificate, many: bool) -> list[Uncovered]:
    """Everything a reader could take for tested and that is not, or is only just."""
    excluded = {entry.clause for entry in certificate.exclusions}
    names = node_names(certificate)
    groups: list[Uncovered] = []

    def add(title: str, entries: list[tuple[str, str, str]]) -> None:
        if entries:
            shown = tuple(entries[:LIST_AT_MOST])
            groups.append(Uncovered(title=title, entries=shown, more=len(entries) - len(shown)))

    def folded(outcome: str, *, skip: set[str] = frozenset()) -> list[tuple[str, str, str]]:  # type: ignore[assignment]
        entries = []
        for finding in found.by_outcome(certificate, outcome):
            ids = [c for c in finding.clause_ids if c not in skip]
            if ids:
                who = f" on {words.parts_text(finding.parts, many, 4)}" if outcome not in ("NOT TESTED",) else ""
                entries.append((outcome, ids_text(ids) + who, sentence(finding.reason, names)))
        return entries

    if not certificate.finished:
        add(
            "The run has not ended",
            [("", "", f"State of {words.time_text(certificate.issued)} UTC; what follows is missing.")],
        )
    add("Not tested", folded("NOT TESTED"))
    add("Not measured", folded("NOT MEASURED"))
    add("Unstable", folded("UNSTABLE"))
    if certificate.level_asked < 4:
        above = {1: "Levels 2 to 4 were", 2: "Levels 3 and 4 were", 3: "Level 4 was"}.get(
            certificate.level_asked, "Levels 1 to 4 were"
        )
        add("Not asked for", [("", f"{above} not asked for.", "This page says nothing about them.")])
    add(
        "Excluded, with reason",
        [("", e.clause, sentence(e.reason or "no reason given", names)) for e in certificate.exclusions],
    )
    add("Waived", folded("WAIVED"))
    marginal = [
        ("MARGINAL", f"{f.clause.id} {words.parts_text(f.parts, many, 4)}", _marginal_text(f))
        for f in found.by_outcome(certificate, "MARGINAL")
    ]
    add("Close to the limit", marginal)
    add("Observed without a limit", [("", ids, text or "No promise, no pass.") for ids, text in _observed(certificate)])
    applicable = [("", ids, text) for _, ids, text in _not_applicable(certificate, excluded)]
    add("Not applicable", applicable)
    add("Assumed", [("", "", sentence(text, names)) for text in certificate.assumptions])
    return groups


def _marginal_text(finding: Finding) -> str:
    clause, worst = finding.clause, finding.worst
    value = words.with_unit(words.value_text(clause, worst), clause.unit)
    inner = words.grouped(clause.marginal, words.decimals(clause)) if clause.marginal is not None else ""
    return f"{value}, limit {words.limit_text(clause, unit=False)}" + (f", inner limit {inner}" if inner else "") + "."


def _observed(certificate: Certificate) -> list[tuple[str, str]]:
    """Observed clauses folded by reason; the ordinary reason (no limit) needs no words."""
    groups: dict[str, list[str]] = {}
    for clause, part in found.cells(certificate):
        if part.outcome == "OBSERVED":
            reason = "" if "gives no limit" in part.reason else sentence(part.reason, node_names(certificate))
            if clause.id not in groups.setdefault(reason, []):
                groups[reason].append(clause.id)
    return [(ids_text(ids), reason) for reason, ids in groups.items()]


def _not_applicable(certificate: Certificate, excluded: set[str]) -> list[tuple[str, str, str]]:
    groups: dict[str, list[str]] = {}
    for clause, part in found.cells(certificate):
        if part.outcome == "NOT APPLICABLE" and clause.id not in excluded:
            reason = sentence(clause.not_applicable or part.reason, node_names(certificate))
            if clause.id not in groups.setdefault(reason, []):
                groups[reason].append(clause.id)
    return [("NOT APPLICABLE", ids_text(ids), reason) for reason, ids in groups.items()]
