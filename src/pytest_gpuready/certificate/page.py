"""What stands where on the page: small frozen views of the certificate that the templates only have to lay out.

No HTML in here and no decisions about verdicts: the outcome of every cell is the document's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, GpuEntry, PartEntry, verdict_text
from pytest_gpuready.certificate.facts import nodes_text
from pytest_gpuready.certificate.findings import Finding, absences, also_failing
from pytest_gpuready.certificate.tables import Row, ids_text, row
from pytest_gpuready.certificate.words import NBSP, ON_THE_NODE

ROWS_AT_MOST = 12
"""Page one holds about twelve promises; more of them are folded where they say the same."""
FINDINGS_AT_MOST = 12
"""Findings told in full under the verdict. Up to so many, paper does not tell them again."""
COMMANDS = ("pytest", "gpuready", "nvidia-smi", "dcgmi", "make")
_OPTION = re.compile(r"--?[A-Za-z]")
_PROSE = re.compile(r"[,;:] ")


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
    verdict = certificate.verdict if status == certificate.judged else verdict_text(status, certificate.basis)
    where = nodes_text(certificate)
    running = "" if certificate.finished else ", run not ended"
    if certificate.basis == "hardware":
        css, glyph = {
            "ACCEPTED": ("v-accepted", "g-seal"),
            "REJECTED": ("v-rejected", "g-fail"),
            "INCOMPLETE": ("v-incomplete", "g-nt"),
        }[status]
        title = f"{verdict}{running}, {where}: GPU acceptance certificate"
        return Band(lines=(verdict,), css=css, glyph=glyph, basis="hardware", title=title, short=verdict)
    return Band(
        lines=(verdict.removesuffix(f" {status}"), status),
        css="v-replay",
        glyph="g-replay" if certificate.basis == "replay" else "g-standin",
        basis=certificate.basis,
        title=f"{verdict}{running}, {where}: GPU acceptance test, certifies no hardware",
        short=verdict,
    )


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
    others = also_failing(worst, all_findings)
    why_notes = [f"{worst.clause.id}: {worst.clause.sentence}"]
    if worst.worst.detail:
        why_notes.insert(0, words.clean(worst.worst.detail, 160))
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

    `keep` are names (of nodes) that are never changed; neither are folded ones, node[01-12]. A sentence that begins
    with a command, `python -m pytest_gpuready.agent ..: found nothing`, keeps its small letter.
    """
    text = text.strip()
    if not text:
        return ""
    word, *others = text.split(maxsplit=2)
    typed = bool(others) and _OPTION.match(others[0]) is not None
    if text.startswith(ON_THE_NODE):
        return text[0].upper() + text[1:]  # a command stands at its end
    if word in COMMANDS or (typed and not _PROSE.search(text)):
        return text
    if not typed and word.rstrip(":,;") not in keep and "[" not in word:
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
    if worst.expected:
        return f"{name}: {value}, expected {words.typo(words.clean(worst.expected, 200))}"
    if words.bound_of(clause) is None:
        expected = "the same on all GPUs" if clause.uniform else words.limit_text(clause)
        return f"{name}: {value}, expected {expected}"
    return f"{name}: {value}, limit {words.limit_text(clause)}"


def finding_title(finding: Finding, many: bool, gpus: Mapping[str, int] | None = None) -> str:
    """The large line of a finding: parts first, then what was found; `gpus` as in `words.parts_text`."""
    clause = finding.clause
    who = words.parts_text(finding.parts, many, gpus=gpus)
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
    what = {"NOT TESTED": "not tested", "OBSERVED": "observed, without a limit"}
    count = words.count_text(len(finding.clause_ids), "clause")
    if finding.outcome == "NOT MEASURED":
        return f"{count} on {who} have no measurement"
    return f"{count} {what.get(finding.outcome, finding.outcome.lower())}, {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Several promises of one suite that end the same way on every part: one row instead of many.

    `outcome` is the worst word of each, `alike` whether every part of it has that word.
    """

    suite: str
    outcome: str
    ids: str
    names: str
    count: int
    cells: int
    reason: str
    parts: tuple[PartEntry, ...]
    alike: bool


def promised(certificate: Certificate, many: bool) -> list[Row | Fold]:
    """Page one: clauses with a headline that apply; on a page that is not accepted the bad ones first.

    From ROWS_AT_MOST on, clauses of one suite that only count or compare words and PASS on every part are folded, and
    so are those that show all there can be (16 lanes of 16);
    three or more clauses of a suite are folded always where they are excluded, have no verdict, or lack one on missing
    parts alone.
    """
    silent = {node.name for node in certificate.nodes if not node.answered} if many else set()
    absent = frozenset(absences(certificate)) | frozenset(_of_silent(certificate, silent))
    rows = [
        row(c, many, headline=True) for suite in certificate.suites for c in suite.clauses if c.headline and c.parts
    ]
    rows = [one for one in rows if one.outcome != "NOT APPLICABLE"]
    full = len(rows) > ROWS_AT_MOST
    shown: list[Row | Fold] = []
    for suite in certificate.suites:
        own = [one for one in rows if one.clause in suite.clauses]
        groups: dict[tuple[str, str], list[Row]] = {}
        for one in own:
            groups.setdefault(_fold_key(one, full, absent), []).append(one)
        for (outcome, reason), members in groups.items():
            if outcome and len(members) > 2:
                shown.append(_fold(suite.title, outcome, reason, members))
            else:
                shown += members
    if certificate.judged == "ACCEPTED":
        return shown
    return sorted(shown, key=lambda r: words.rank(r.outcome) if r.outcome in ("FAIL", *words.OPEN) else 99)


def _of_silent(certificate: Certificate, silent: set[str]) -> set[str]:
    """Parts of nodes that gave no answer: like those that are missing, they have no value at all."""
    parts = {gpu.part for node in certificate.nodes if node.name in silent for gpu in node.gpus}
    return parts | silent


def _fold_key(one: Row, full: bool, absent: frozenset[str]) -> tuple[str, str]:
    """Rows with equal keys can be folded; ("", clause) stands alone."""
    alike = len({part.outcome for part in one.clause.parts}) == 1
    parts = one.clause.parts
    exact = one.same and one.clause.ceiling is not None and words.number(parts[0].value) == one.clause.ceiling
    wordy = words.bound_of(one.clause) in (None, 0.0) or exact
    if alike and one.outcome in (*words.OPEN, "EXCLUDED"):
        return one.outcome, one.clause.parts[0].reason
    if alike and full and wordy and one.outcome == "PASS":
        return one.outcome, ""
    gone = [part for part in parts if part.part in absent]
    if wordy and gone and all(part.outcome == ("NOT MEASURED" if part in gone else "PASS") for part in parts):
        return one.outcome, f"no value of {', '.join(part.part for part in gone)}"
    return "", one.clause.id


def _named(one: Row) -> str:
    """The name of a folded promise; a number that is not 0 stands with it."""
    value = words.number(one.worst.value) if one.worst else None
    shown = f" {one.value}{words.NBSP + one.unit if one.unit else ''}" if value and one.outcome == "PASS" else ""
    return words.clean(one.clause.headline, 60) + shown


def folded_names(names: Sequence[str]) -> str:
    """Names joined by commas; those that differ in their middle alone are one: "Wrong FP64, TF32 and INT8 results"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        split = name.split(" ")
        key = (split[0], split[-1]) if len(split) > 2 else (name, "")
        groups.setdefault(key, []).append(name)
    told = []
    for (first, last), members in groups.items():
        middles = [name[len(first) + 1 : -len(last) - 1] for name in members] if last else []
        told += [f"{first} {words.listed(middles, 99)} {last}"] if len(members) > 2 and last else members
    return ", ".join(told)


def _fold(title: str, outcome: str, reason: str, members: list[Row]) -> Fold:
    longest = max(members, key=lambda one: one.count)
    return Fold(
        suite=title,
        outcome=outcome,
        ids=ids_text([one.clause.id for one in members]),
        names=folded_names([_named(one) for one in members]),
        count=len(members),
        cells=sum(one.count for one in members),
        reason=reason,
        parts=tuple(longest.clause.parts),
        alike=len({part.outcome for part in longest.clause.parts}) == 1,
    )
