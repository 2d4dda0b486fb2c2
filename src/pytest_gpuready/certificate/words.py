"""How the certificate speaks: words of outcomes, typography of numbers, names of parts.

The document holds plain ASCII; a page gets narrow no-break spaces, a true minus, a multiplication sign and so on.
Everything in the document is untrusted text: `clean` takes out what could reorder or hide other text and bounds the
length; escaping is the template's work (autoescape).
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pytest_gpuready.certificate.document import ClauseEntry, PartEntry
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.model.units import show

NNBSP = "\u202f"
NBSP = "\u00a0"
MINUS = "\u2212"
DASH = "\u2013"
TIMES = "\u00d7"
TEXT_BOUND = 1500
DIGITS = 4
"""Significant digits of a value, where its limit does not ask for more."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a cell: its glyph, its frame (CSS class) and what it means for the customer."""

    outcome: str
    glyph: str
    css: str
    meaning: str


_WORDS = (
    Word("FAIL", "g-fail", "t-fail", "Measured, outside the limit. The run is REJECTED."),
    Word("NOT MEASURED", "g-nm", "t-nm", "No number: tool missing, crashed, timed out or unreadable. INCOMPLETE."),
    Word("UNSTABLE", "g-un", "t-un", "Two runs disagree about the limit; neither counts. INCOMPLETE."),
    Word("NOT TESTED", "g-nt", "t-nt", "In the profile, but never run. INCOMPLETE."),
    Word("MARGINAL", "g-marginal", "t-marginal", "Inside the limit, outside the stricter inner limit. Counts."),
    Word("WAIVED", "g-wv", "t-wv", "Outside the limit, known and accepted with a ticket and an expiry date."),
    Word("EXCLUDED", "g-ex", "t-ex", "Taken out by the site file, with its reason; nobody looked."),
    Word("HIDDEN", "g-ob", "t-ob", "The virtual machine does not show it: nobody could look. Never counts as a pass."),
    Word("OBSERVED", "g-ob", "t-ob", "Recorded; the profile gives no limit. Never counts as a pass."),
    Word("PASS", "g-pass", "t-pass", "Measured, inside the limit."),
    Word("NOT APPLICABLE", "g-na", "t-na", "The profile or the site file says that this hardware has no such thing."),
)
WORDS = {word.outcome: word for word in _WORDS}
WORST_FIRST = tuple(WORDS)
OPEN = ("NOT MEASURED", "UNSTABLE", "NOT TESTED")


STOPPED = "pytest ended with code "
"""How the line begins that says why pytest did not come to its end."""
_PYTEST_CODES = {
    2: "the run was interrupted",
    3: "internal error",
    4: "usage error",
    5: "no test was collected",
    6: "too many warnings",
}
_EXCLUDED = "excluded by the site file"
HIDDEN_BY = "hidden by the virtual machine"
"""How the reason of a hidden cell begins."""


def said(part: PartEntry) -> str:
    """The word of a cell on the page: its outcome, with two told apart that the document folds into others.

    EXCLUDED is a NOT APPLICABLE that the site file made; HIDDEN is an OBSERVED at which there was nothing to see.
    """
    if part.outcome == "NOT APPLICABLE" and part.reason.startswith(_EXCLUDED):
        return "EXCLUDED"
    if part.outcome == "OBSERVED" and part.value is None and not part.shown:
        return "HIDDEN"
    return part.outcome


def glossary(used: Collection[str]) -> list[Word]:
    """The words to explain: nothing gives a waiver so far, so that word waits for the first cell that has it."""
    return [word for word in _WORDS if word.outcome != "WAIVED" or word.outcome in used]


def rank(outcome: str) -> int:
    """Place of a word in the order worst first."""
    return WORST_FIRST.index(outcome)


def clean(text: str, bound: int = TEXT_BOUND) -> str:
    """Untrusted text that cannot reorder, hide or flood what stands around it.

    Control, format (bidirectional and zero-width), private and surrogate characters become U+FFFD; line ends and tabs
    become spaces; what is longer than `bound` characters is cut, and says how much is missing.
    """
    missing = len(text) - bound
    if missing > 0:
        text = text[:bound]
    said = text if text.isprintable() else "".join(map(_seen, text))
    return f"{said} \u2026 ({missing} characters more in certificate.json)" if missing > 0 else said


@functools.lru_cache(maxsize=4096)
def _seen(char: str) -> str:
    """What stands for a character on the page; the characters of one page are few, so their answers are kept."""
    if char in "\n\r\t":
        return " "
    return "\ufffd" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else char


def plain(text: str, bound: int = TEXT_BOUND) -> str:
    """Untrusted text for a terminal: printable ASCII only, everything else is "?"."""
    said = clean(text, bound).replace("\u2026", "...")
    return "".join(char if " " <= char <= "~" else "?" for char in said)


_UNITS = r"(?:[GMT]B/s|Gb/s|GT/s|GiB|MiB|GB|TB|MB|KB|W|MHz|T(?:FL)?OPS(?:/GHz|/W)?|ms|us|ns|s|min|h)"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<->"), "\u2194"),
    (re.compile(r"->"), "\u2192"),
    (re.compile(r">= ?"), f"\u2265{NBSP}"),
    (re.compile(r"<= ?"), f"\u2264{NBSP}"),
    (re.compile(r"\bGen(\d) x ?(\d+)\b"), rf"Gen\1{NBSP}{TIMES}{NBSP}\2"),
    (re.compile(r"(?<=[\w)]) x (?=\d)"), f"{NBSP}{TIMES}{NBSP}"),
    (re.compile(r"(?<![\w.)\-])-(?=\d)"), MINUS),
    (re.compile(r"(?<=\d) %"), f"{NNBSP}%"),
    (re.compile(r"(?<=\d) C\b"), f"{NNBSP}\u00b0C"),
    (re.compile(rf"(?<=\d) (?={_UNITS}\b)"), NBSP),
    (re.compile(r"\bGPU (?=\d)"), f"GPU{NBSP}"),
)
ON_THE_NODE = "on the node itself: "
"""What introduces the command to go on with behind a replay."""
_THOUSANDS = re.compile(rf"(?<![\w.:\-])(\d{{4,}})(?=(?:\.\d+)?{NBSP}{_UNITS}\b)")
_POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e\+(\d{2,3})\b")
_SUPERSCRIPTS = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
_FORMAT = re.compile(r"(?<![\w.])(?:(?:mxfp|fp|bf|tf)(?:4|8|16|32|64)|int8)(?:_e\dm\d)?(?![\w.]*\.\w|\w)")
"""A number format as programs write it: "fp8_e4m3"; one that is part of a metric's name stays as it is."""


def typo(text: str) -> str:
    """Free ASCII text set for a page: signs, units kept with their number, thousands only before a unit."""
    for pattern, into in _RULES:
        text = pattern.sub(into, text)
    text = _POWER.sub(lambda m: f"{m[1]}{NBSP}{TIMES}{NBSP}10{str(int(m[2])).translate(_SUPERSCRIPTS)}", text)
    text = _FORMAT.sub(lambda m: m[0].upper().replace("_", NBSP), text)
    return _THOUSANDS.sub(lambda found: grouped(int(found.group())), text)


def grouped(value: float, decimals: int = 0) -> str:
    """A number with narrow no-break spaces for thousands and a true minus."""
    return f"{value:,.{decimals}f}".replace(",", NNBSP).replace("-", MINUS)


def unit_text(unit: str) -> str:
    return "\u00b0C" if unit == "C" else unit


def with_unit(text: str, unit: str) -> str:
    """Number and unit, kept together; narrow before % and degrees."""
    if not unit:
        return text
    return f"{text}{NNBSP if unit in ('C', '%') else NBSP}{unit_text(unit)}"


def number(value: float | int | str | None) -> float | None:
    """The value if it is a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def numbers(clause: ClauseEntry) -> list[tuple[PartEntry, float]]:
    """Parts that have a number, in order."""
    found = ((part, number(part.value)) for part in clause.parts)
    return [(part, value) for part, value in found if value is not None]


def bound_of(clause: ClauseEntry) -> float | None:
    return clause.at_least if clause.at_least is not None else clause.at_most


def worst_number(clause: ClauseEntry) -> tuple[PartEntry, float] | None:
    """The part nearest to the wrong side of the limit; without a limit the lowest."""
    found = numbers(clause)
    if not found:
        return None
    if clause.at_most is not None and clause.at_least is None:
        return max(found, key=lambda pair: pair[1])
    return min(found, key=lambda pair: pair[1])


def decimals(clause: ClauseEntry) -> int:
    """Decimals of a row: those of its shown values and limit, as long as the largest keeps four digits; more where a
    value would else look like its limit."""
    found = numbers(clause)
    shown = [part.shown.partition(".")[2] for part, _ in found]
    places = max((len(text) for text in shown if text.isdigit()), default=0)
    largest = max((abs(value) for _, value in found), default=0.0)
    if largest >= 1:
        places = min(places, max(DIGITS - len(f"{int(largest)}"), 0))
    bound = bound_of(clause)
    if bound is None:
        return min(places, 6)
    places = max(places, len(f"{bound:g}".partition(".")[2]) if "e" not in f"{bound:g}" else 0)
    while places < 6 and any(v != bound and round(v, places) == round(bound, places) for _, v in found):
        places += 1
    return min(places, 6)


def value_text(clause: ClauseEntry, part: PartEntry, bound: int = 160, *, places: int | None = None) -> str:
    """The value of a part without unit, set for the page; "" where there is none.

    `places` are the clause's decimals where the caller knows them: finding them looks at every part.
    """
    value = number(part.value)
    if value is not None and re.fullmatch(r"-?\d+(\.\d+)?", part.shown):
        return grouped(value, decimals(clause) if places is None else places)
    return typo(clean(part.shown or ("" if part.value is None else show(part.value)), bound))


def limit_text(clause: ClauseEntry, *, unit: bool = True) -> str:
    """The limit as applied, with sign; a dash where the profile gives none."""
    bound = bound_of(clause)
    if not clause.limit:
        return DASH
    if bound is None or "e" in f"{bound:g}":
        return typo(clean(clause.limit, 200))
    said = grouped(bound, decimals(clause))
    if clause.at_most != 0:
        said = f"{chr(0x2265) if clause.at_least is not None else chr(0x2264)}{NBSP}{said}"
    return with_unit(said, clause.unit) if unit else said


def margin_text(clause: ClauseEntry, part: PartEntry | None) -> str:
    """Signed distance to the limit, positive inside: in % of the limit, temperatures in degrees."""
    bound = bound_of(clause)
    value = number(part.value) if part else None
    if part is None or part.margin_percent is None or bound is None or value is None:
        return DASH
    if clause.unit == "C":
        distance = value - bound if clause.at_least is not None else bound - value
        return ("+" if distance >= 0 else "") + with_unit(grouped(distance), "C")
    places = 1 if abs(part.margin_percent) < 100 else 0
    said = grouped(part.margin_percent, places)
    return ("+" if part.margin_percent >= 0 and said != "0.0" else "") + f"{said}{NNBSP}%"


def source_text(clause: ClauseEntry) -> str:
    """Kind and citation of the limit's source, the kind once; whole, as far as a page can bear it."""
    source, kind = clause.source.strip(), clause.source_kind.strip()
    whole = kind if not source else source if source.startswith(kind) else f"{kind}: {source}"
    return typo(clean(whole))


def split_part(part: str) -> tuple[str, int]:
    """Node and GPU index of a part's name; -1 for a whole node."""
    node, slash, index = part.rpartition("/gpu")
    return (node, int(index)) if slash and index.isascii() and index.isdigit() and len(index) < 7 else (part, -1)


def part_text(part: str, many: bool) -> str:
    """Short name of a part; with its node where the certificate covers several."""
    node, index = split_part(part)
    if index < 0:
        return clean(node, 60)
    return f"{clean(node, 60)} GPU{NBSP}{index}" if many else f"GPU{NBSP}{index}"


def parts_text(parts: Iterable[str], many: bool, at_most: int = 6, gpus: Mapping[str, int] | None = None) -> str:
    """Several parts in few words: GPU 2, 3 and 5; GPU 0 to 7; node01 GPU 2, node02 GPU 4; 96 parts of node[01-12].

    With `gpus`, how many GPUs each node has, a node and all of them is told as such.
    """
    names = list(dict.fromkeys(parts))
    split = [split_part(name) for name in names]
    count = (gpus or {}).get(split[0][0], 0) if split else 0
    if count and len(names) == count + 1 and {node for node, _ in split} == {split[0][0]}:
        who = clean(split[0][0], 60) if many else "the node"
        return f"{who} and {'its GPU' if count == 1 else f'all {count} GPUs'}"
    if len(names) > 1 and all(index >= 0 for _, index in split) and len({node for node, _ in split}) == 1:
        indices = sorted(index for _, index in split)
        head = f"{clean(split[0][0], 60)} GPU{NBSP}" if many else f"GPU{NBSP}"
        if len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1)):
            return f"{head}{indices[0]} to {indices[-1]}"
        return head + listed([str(index) for index in indices], at_most)
    nodes = dict.fromkeys(node for node, _ in split)
    if len(names) > at_most and many:
        return f"{grouped(len(names))} parts of {clean(folded(nodes, max(at_most, 6)), 400)}"
    return listed([part_text(name, many) for name in names], at_most)


def listed(words: Sequence[str], at_most: int = 8) -> str:
    """Words joined by commas and "and"; from `at_most` on the rest is counted."""
    if len(words) > at_most:
        return ", ".join(words[:at_most]) + f" and {len(words) - at_most} more"
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + (words[-1] if words else "")


def count_text(count: int, one: str, many: str = "") -> str:
    return f"{grouped(count)}{NBSP}{one if count == 1 else many or one + 's'}"


def time_text(iso: str) -> str:
    """A UTC time without seconds as people read it: 2026-11-30 11:04."""
    found = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)", iso)
    return f"{found.group(1)} {found.group(2)}" if found else clean(iso, 40)


def moment(iso: str) -> datetime | None:
    """The moment of an ISO 8601 text (UTC where it names no zone); None where the text is none."""
    try:
        found = datetime.fromisoformat(iso[:-1] + "+00:00" if iso.endswith("Z") else iso)
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def times_text(start: str, end: str) -> str:
    """Two UTC times as people read them, what they share said once: 2026-11-30 11:04 to 11:16 UTC."""
    first, last = time_text(start), time_text(end)
    if first == last:
        return f"{first} UTC"
    return f"{first} to {last[11:] if last[:10] == first[:10] else last} UTC"


def size_text(size_bytes: int) -> str:
    """A size in decimal units: 71 KB, 9.1 MB."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{grouped(size, 1 if unit in ('MB', 'GB') and size < 100 else 0)}{NBSP}{unit}"
        size /= 1000
    return str(size_bytes)


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}{NBSP}s"
    minutes = round(seconds / 60)
    return f"{minutes}{NBSP}min" if minutes < 60 else f"{minutes // 60}{NBSP}h {minutes % 60}{NBSP}min"


def anchor(text: str) -> str:
    """Untrusted text as the name of a place in the page."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text[:60])


def css_string(text: str) -> str:
    """Untrusted text inside a CSS string: everything but letters, digits and a few signs becomes a CSS escape."""
    safe = clean(text, 120)
    return "".join(c if c.isascii() and (c.isalnum() or c in " ._:-") else f"\\{ord(c):x} " for c in safe)


def stopped(code: int) -> str:
    """The line that says why pytest did not come to its end."""
    return f"{STOPPED}{code}: {_PYTEST_CODES.get(code, 'stopped early')}"
