"""The certificate on a terminal: about ten lines at the end, and the evidence under one failure.

Plain ASCII, words before colour, no line wider than asked for; what came from tools is printed without its control
characters.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import PurePath

from pytest_gpuready.certificate import fleet_summary, page, words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.facts import nodes_text
from pytest_gpuready.certificate.findings import (
    Finding,
    by_outcome,
    closest,
    counted,
    findings,
    led,
    without_verdict,
)
from pytest_gpuready.certificate.spent_lines import found_text, time_lines
from pytest_gpuready.certificate.tables import ids_text
from pytest_gpuready.certificate.uncovered import exclusions, taken_out
from pytest_gpuready.model.units import show

LABEL = 12
"""Columns of the label, its spaces included."""
FINDINGS_AT_MOST = 4
NEIGHBOURS_AT_MOST = 8
LOG_AT_MOST = 6
RUNS_AT_MOST = 8
DETAIL_AT_MOST = 70
REASON_AT_MOST = 60
FEW = 8
"""Nodes up to which no text is cut sooner than that of one node."""
SEVERAL_AT_MOST = 15
"""Lines of more nodes: where they would be more, names and reasons are cut sooner."""
_THOUSANDS = re.compile(rf"(?<=\d){words.NNBSP}(?=\d\d\d)")
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)+""")
_GOES_ON = " \\"
TIMES_OF_SEVERAL = 2
"""Lines that tell how long more than a few nodes took: the sums."""
TIMES_OF_FEW = 5
_WHOLE = "excluded"
"""The label of the line that is never cut: whoever reads only the terminal knows what was taken out."""


def summary_lines(certificate: Certificate, out: str, width: int = 100) -> list[tuple[str, str]]:
    """The summary as (label, text) pairs in order; an empty label continues the line above.

    Label and text together stay within `width` columns: the label takes 12 of them. The last pair is `page`. Of
    several nodes texts are cut sooner where they are many; what to do next is whole.
    """
    many = len(certificate.nodes) > 1
    found = findings(certificate)
    if many:
        return _of_several(certificate, found, out, width)
    lines: list[tuple[str, str]] = [_first(certificate)]
    if not certificate.finished:
        lines.append(("running", "the run has not ended: nothing here is a result yet"))
    lines += [("stopped", line) for line in certificate.why if line.startswith(words.STOPPED)]
    if certificate.basis != "hardware":
        said = certificate.basis_note or "the same judgement without the hardware of this run"
        lines.append(("meaning", f"certifies no hardware: {said}"))
    elif certificate.judged == "INCOMPLETE":
        lines.append(("meaning", "nothing failed, and this is not an acceptance: " + _missing_text(certificate)))
    if certificate.judged == "REJECTED":
        lines += _rejected(certificate, found, many)
    lines.append(("clauses", _clauses(certificate)))
    lines += _excluded(certificate)
    lines += _open(certificate, found, many)
    lines += _optional(certificate)
    if certificate.judged != "REJECTED":
        lines += _closest(certificate, many)
    lines += [("waived", f"{f.clause.id} {f.reason}") for f in by_outcome(certificate, "WAIVED")[:2]]
    lines += time_lines(certificate, max(width - LABEL, 20))
    if certificate.judged == "INCOMPLETE" and certificate.do_next:
        lines += [("do next", line) for line in certificate.do_next[:2]]
    if certificate.judged == "ACCEPTED" and certificate.basis != "hardware" and certificate.do_next:
        lines.append(("do next", certificate.do_next[0]))
    if certificate.evidence:
        lines.append(("evidence", f"{len(certificate.evidence)} files with their sha256 in certificate.json"))
    lines.append(("signed", "no: not signed"))
    lines.append(("page", str(PurePath(out) / "certificate.html")))
    return _wrapped(lines, width, command=_command(certificate))


def _of_several(certificate: Certificate, found: list[Finding], out: str, width: int) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = [_first(certificate)]
    if not certificate.finished:
        lines.append(("running", "the run has not ended: nothing here is a result yet"))
    lines += [("stopped", line) for line in certificate.why if line.startswith(words.STOPPED)]
    if certificate.basis != "hardware":
        said = certificate.basis_note or "the same judgement without the hardware of this run"
        lines.append(("meaning", f"certifies no hardware: {said}"))
    elif certificate.judged == "INCOMPLETE":
        lines.append(("meaning", "nothing failed, and this is not an acceptance: " + _missing_text(certificate)))
    lines += fleet_summary.verdicts(certificate)
    failed = {f.clause.id: _fail_text(f.clause, f.worst) for f in found if f.outcome == "FAIL"}
    silent = {node.name for node in certificate.nodes if not node.answered}
    if certificate.judged == "REJECTED":
        lines += fleet_summary.failures(certificate, found, {i: f"{i} {text}" for i, text in failed.items()})
        lines += [("do next", line) for line in certificate.do_next[-1:] if certificate.basis != "replay"]
    lines += fleet_summary.silence(certificate.nodes)
    lines += _open(certificate, [f for f in found if f.worst.node not in silent], True, at_most=1)
    lines.append(("clauses", _clauses(certificate)))
    lines += _excluded(certificate)
    if not silent:
        lines += _optional(certificate)
    if certificate.judged == "ACCEPTED":
        lines += _closest(certificate, True)
    few = len(certificate.nodes) <= FEW
    lines += time_lines(certificate, max(width - LABEL, 20), TIMES_OF_FEW if few else TIMES_OF_SEVERAL)
    if certificate.judged == "INCOMPLETE" and certificate.do_next:
        lines += [("do next", line) for line in certificate.do_next[:2]]
    lines.append(("signed", "no: not signed"))
    lines.append(("page", str(PurePath(out) / "certificate.html")))
    command = _command(certificate)
    tried = [_wrapped(lines, width, most, whole=(_WHOLE, "do next"), command=command) for most in (3, 2, 1)]
    return tried[0] if few else next((told for told in tried if len(told) <= SEVERAL_AT_MOST), tried[-1])


def _first(certificate: Certificate) -> tuple[str, str]:
    profile = (
        f"profile {certificate.profile.name} {certificate.profile.version}" if certificate.profile else "no profile"
    )
    where = nodes_text(certificate)
    if certificate.basis != "hardware":
        label, _, verdict = certificate.verdict.partition(": ")
        return label, f"{verdict}: {where}, level {_level(certificate)}, {profile}"
    return certificate.verdict, f"{where}, basis hardware, level {_level(certificate)}, {profile}"


def _level(certificate: Certificate) -> str:
    reached, asked = certificate.level_reached, certificate.level_asked
    return f"{asked} of {asked}" if reached == asked else f"{reached} of {asked} reached"


def _missing_text(certificate: Certificate) -> str:
    missing = without_verdict(certificate)
    if missing:
        have = "clause has" if certificate.counts.clauses == 1 else "clauses have"
        return f"{len(missing)} of {certificate.counts.clauses} {have} no verdict"
    return certificate.why[0] if certificate.why else "see the page"


def _rejected(certificate: Certificate, found: list[Finding], many: bool) -> list[tuple[str, str]]:
    """Which part, why, what to do next: from the worst finding."""
    failed = [finding for finding in found if finding.outcome == "FAIL"]
    if not failed:
        return [("why", line) for line in certificate.why[:3]]
    worst = failed[0]
    where = page.where_text(certificate, worst.worst).replace(" \u00b7 ", " ")
    more = len(worst.parts) - 1
    lines = [("part", where + (f" and {more} more" if more else ""))]
    for place, (finding, followers) in enumerate(led(failed)[:FINDINGS_AT_MOST]):
        also = ids_text([follower.clause.id for follower in followers], RUNS_AT_MOST)
        who = "" if place == 0 else f" {words.parts_text(finding.parts, many, 4)}:"
        said = f"{finding.clause.id}{who} {_fail_text(finding.clause, finding.worst)}"
        lines.append(("" if place else "why", said + (f"; also {also}" if also else "")))
    lines.append(("do next", worst.worst.action or "read the finding on the page"))
    lines += [("", line) for line in certificate.do_next[-1:] if certificate.basis != "replay"]
    return lines


def _fail_text(clause: ClauseEntry, part: PartEntry) -> str:
    name = clause.headline or clause.metric
    limit = "the same on all GPUs" if clause.uniform else part.expected or clause.limit
    value = part.shown + (f" {clause.unit}" if clause.unit and part.shown else "")
    if part.detail and _is_count(clause, part):
        value += f" ({_cut(part.detail, DETAIL_AT_MOST)})"
    found = value if words.number(part.value) is not None else f"found {value}"
    colon = "" if found is value else ":"
    said = f"{name}{colon} {found}, expected {limit}" if value and limit else name
    return said + (f" ({part.reason})" if part.reason and part.reason not in said else "")


def _is_count(clause: ClauseEntry, part: PartEntry) -> bool:
    """True where the value counts things ("3") and only the detail says which."""
    found = words.number(part.value)
    return found is not None and found.is_integer() and not clause.unit


def _excluded(certificate: Certificate) -> list[tuple[str, str]]:
    """All clauses that the site file took out, with their reasons, cut where they are long or many."""
    groups = exclusions(certificate)
    if not groups:
        return []
    count = taken_out(certificate).replace(words.NBSP, " ").replace(words.NNBSP, "")
    if len(groups) > RUNS_AT_MOST:
        ids = [one for group, _ in groups for one in group]
        return [(_WHOLE, f"{count}: {ids_text(ids)} ({len(groups)} reasons, on the page)")]
    told = [f"{ids_text(ids)} ({_cut(reason, REASON_AT_MOST)})" for ids, reason in groups]
    return [(_WHOLE, f"{count}: {'; '.join(told)}")]


def _cut(text: str, bound: int) -> str:
    """Text of at most `bound` signs, cut between words where it has any."""
    head = text[: bound - 4]
    return text if len(text) <= bound else f"{head.rpartition(' ')[0] or head} ..."


def _clauses(certificate: Certificate) -> str:
    counts, found = certificate.counts, counted(certificate)
    said = ", ".join(f"{found[o]} {o}".replace(" ", words.NBSP) for o in words.WORST_FIRST if found[o])
    missing = words.count_text(len(without_verdict(certificate)), "clause").replace(words.NNBSP, "")
    tail = f"; {missing} without verdict" if without_verdict(certificate) else "; none missing"
    return f"{counts.clauses} on {counts.cells} parts: {said or 'nothing'}{tail}"


def _optional(certificate: Certificate) -> list[tuple[str, str]]:
    """The clauses that nobody asks for and that have no value: they count neither way, and are named."""
    ids = without_verdict(certificate, required=False)
    if not ids:
        return []
    have = "has" if len(ids) == 1 else "have"
    return [
        ("optional", f"{ids_text(ids, RUNS_AT_MOST)}: not required, {have} no value on some part, counts neither way")
    ]


def _open(
    certificate: Certificate, found: list[Finding], many: bool, at_most: int = FINDINGS_AT_MOST
) -> list[tuple[str, str]]:
    """What has no verdict, folded by cause: "blocked" for closed gates, "missing" for the rest."""
    lines = []
    kept = [finding for finding in found if finding.outcome in (*words.OPEN, "OBSERVED") and finding.required]
    for finding in kept[:at_most]:
        blocked = finding.outcome == "NOT TESTED" and finding.reason.startswith("blocked")
        who = words.parts_text(finding.parts, many, 4)
        ids = finding.required_ids
        what = f"{len(ids)} clauses" if finding.cause and len(ids) > 1 else ids_text(ids, RUNS_AT_MOST)
        said = f"{what} {finding.outcome} on {who}"
        reason = f"{finding.cause}; {finding.action}" if finding.cause else finding.reason
        lines.append(("blocked" if blocked else "missing", f"{said}: {reason}" if reason else said))
    if len(kept) > at_most:
        more = len(kept) - at_most
        lines.append(("", f"and {more} more {'finding' if more == 1 else 'findings'}, on the page"))
    return lines


def _closest(certificate: Certificate, many: bool) -> list[tuple[str, str]]:
    pair = closest(certificate)
    if pair is None:
        return []
    clause, part = pair
    word = ", MARGINAL" if part.outcome == "MARGINAL" else ""
    return [("closest", f"{clause.id} {found_text(clause, part, many)} ({part.margin_percent:+.1f} %){word}")]


def _command(certificate: Certificate) -> str:
    """The line that ends with the command to go on with; "" where there is none."""
    asks = certificate.judged != "ACCEPTED" or certificate.basis == "replay"
    return certificate.do_next[-1] if certificate.do_next and asks else ""


def _typed(text: str, room: int) -> list[str]:
    """A line that ends with a command, in pieces that a shell takes as one command; none where it cannot be broken so.

    It is broken between its words alone, and a piece that goes on ends with a backslash.
    """
    found = _SHELL_WORD.findall(text)
    if " ".join(found) != text:
        return []
    pieces = [found[0]]
    for word in found[1:]:
        if len(pieces[-1]) + len(word) + 1 + len(_GOES_ON) <= room:
            pieces[-1] += f" {word}"
        else:
            pieces[-1] += _GOES_ON
            pieces.append(word)
    return pieces if max(map(len, pieces)) <= room else []


def _wrapped(
    lines: list[tuple[str, str]],
    width: int,
    most: int = 3,
    whole: tuple[str, ...] = (_WHOLE,),
    command: str = "",
) -> list[tuple[str, str]]:
    """Long texts continue under an empty label, at most so many lines each but for those that are never cut; a page's
    path stays on one line, and `command` can be copied into a shell."""
    room = max(width - LABEL, 20)
    out: list[tuple[str, str]] = []
    for label, text in lines:
        said = _ascii(text, 8000 if label in whole else 1200)
        if label == "page":
            out.append((label, said.replace(words.NBSP, " ")))
            continue
        room_for = None if label in whole else max(most, 2) if label in (lines[0][0], "clauses") else most
        pieces = _typed(said, room) if text == command else []
        pieces = pieces or textwrap.wrap(said, room, max_lines=room_for, placeholder=" ...", break_on_hyphens=False)
        pieces = pieces or [""]
        out += [(label if place == 0 else "", piece.replace(words.NBSP, " ")) for place, piece in enumerate(pieces)]
    return out


def _ascii(text: str, bound: int = 1200) -> str:
    """Printable ASCII, apart from no-break spaces: they keep a number with its word until the line is broken."""
    text = _THOUSANDS.sub("", text)
    for sign, into in ((words.NNBSP, words.NBSP), (words.MINUS, "-"), (words.TIMES, "x"), (words.DASH, "-")):
        text = text.replace(sign, into)
    return words.NBSP.join(words.plain(piece, bound) for piece in text.split(words.NBSP))


def _flat(text: str, bound: int) -> str:
    return _ascii(text).replace(words.NBSP, " ")[:bound]


def finding_block(part: PartEntry, clause: ClauseEntry) -> list[str]:
    """The evidence under one failure line, at most 100 columns: neighbours, kernel log, watch, digests.

    Of many GPUs the failing one (marked ><) and the eight nearest to it are shown.
    """
    lines = _neighbour_table(part)
    if part.repeats:
        runs = ", ".join(_flat(show(value), 40) for value in [part.value or 0, *part.repeats])
        lines += _labelled("runs", f"{runs}{f' {clause.unit}' if clause.unit else ''}")
    if part.log:
        lines.append("kernel log")
        for line in part.log[-LOG_AT_MOST:]:
            lines += textwrap.wrap(
                _flat(line, 400), 100, initial_indent="  ", subsequent_indent=" " * 17, break_on_hyphens=False
            )
    if part.watch and part.watch.facts:
        lines += _labelled("watch", ", ".join(f"{name} {text}" for name, text in part.watch.facts.items()))
    if part.evidence:
        lines += _labelled("evidence", ", ".join(f"sha256 {digest[:12]}" for digest in part.evidence[:4]))
    return lines


def _labelled(label: str, text: str) -> list[str]:
    return textwrap.wrap(_flat(text, 600), 100, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL)


def _neighbour_table(part: PartEntry) -> list[str]:
    names = sorted({name for row in part.neighbours.values() for name in row}, key=words.split_part)
    if not names:
        return []
    here = names.index(part.part) if part.part in names else 0
    near = sorted(range(len(names)), key=lambda place: (abs(place - here), place))[: NEIGHBOURS_AT_MOST + 1]
    shown = [names[place] for place in sorted(near)]
    heads = [_head(name, marked=name == part.part) for name in shown]
    rows = {metric: [_flat(row.get(name, "-"), 24) for name in shown] for metric, row in part.neighbours.items()}
    first = min(max(len(metric) for metric in rows) + 4, 28)
    widths = [max(len(heads[i]), *(len(row[i]) for row in rows.values())) + 2 for i in range(len(shown))]
    while first + sum(widths) > 100 and len(widths) > 1:
        drop = _farthest(shown, part.part)
        widths.pop(drop)
        for column in (shown, heads, *rows.values()):
            column.pop(drop)
    lines = [" " * first + "".join(f"{head:>{w}}" for head, w in zip(heads, widths, strict=True))]
    for metric, row in rows.items():
        label = "  " + _flat(metric, first - 3)
        lines.append(f"{label:<{first}}" + "".join(f"{text:>{w}}" for text, w in zip(row, widths, strict=True)))
    return lines


def _farthest(shown: list[str], part: str) -> int:
    """The column to give up: the one farthest from the failing part, never the failing part itself."""
    here = shown.index(part) if part in shown else 0
    return max(range(len(shown)), key=lambda place: (abs(place - here), place))


def _head(name: str, *, marked: bool) -> str:
    _, index = words.split_part(name)
    text = f"GPU{index}" if index >= 0 else _flat(name, 12)
    return f">{text}<" if marked else text
