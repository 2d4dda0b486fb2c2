"""JSON documents of `dcgmi diag -j` in a text that may hold anything before, between and behind them.

Documents are decoded one after the other, in time that grows with the text. A document that breaks off is closed
where its last complete object ends: a Fail that was printed is not lost, and everything else in it is in doubt.
Whatever is not searched to its end is a doubt as well.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_gpuready.parse.dcgm_run import Status, status_of

BODIES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
BROKEN = "the JSON breaks off or is damaged"
DOCUMENTS_AT_MOST = 1000
DOUBTS_AT_MOST = 20
_MEND_AT_MOST = 4 * 2**20
_MARK_WITHIN = 400
_WORK = 4
"""Times the length of the text that may be read in vain before the search ends."""

# An object begins with a key or is empty: a brace before anything else is no JSON, however many there are.
_OBJECT = re.compile(r'\{(?=\s*["}])')
_MARK = re.compile(r'"(?:DCGM(?: GPU)? Diagnostic|iterations)"\s*:')
_RESULTS = re.compile(r'"DCGM(?: GPU)? Diagnostic"\s*:')
# A string does not go over a line's end: there a quote is missing.
_TOKEN = re.compile(r'"[^"\\\n]*(?:\\[\s\S][^"\\\n]*)*"?|[{}\[\]]')
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rf"({_PAIR}|\\[^u])|\\u[dD][89a-fA-F][0-9a-fA-F]{{2}}|[\ud800-\udfff]")


def doubt(doubts: list[str], says: str) -> None:
    """Keep one doubt, as long as there are not many."""
    if len(doubts) < DOUBTS_AT_MOST and says not in doubts:
        doubts.append(says)


def without_surrogates(text: str) -> str:
    """The text without halves of surrogate pairs, written out or as JSON escapes: no report could hold them."""
    return _LONE.sub(lambda found: found[1] or "\ufffd", text)


def body_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The part under "DCGM Diagnostic" or "DCGM GPU Diagnostic", None where there is none."""
    return next((document[key] for key in BODIES if isinstance(document.get(key), dict)), None)


def is_diag(document: dict[str, Any]) -> bool:
    """Whether this object is one of dcgmi diag's."""
    return body_of(document) is not None or isinstance(document.get("iterations"), list)


def documents(text: str) -> tuple[list[dict[str, Any]], str, list[str]]:
    """Every document of dcgmi diag in the text, the text around them, and doubts about what was read."""
    found: list[dict[str, Any]] = []
    around: list[str] = []
    doubts: list[str] = []
    decoder = _decoder(doubts)
    at = work = 0
    broken = False
    while (here := _OBJECT.search(text, at)) is not None:
        start = here.start()
        around.append(text[at:start])
        document: Any = None
        try:
            document, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            at = start + 1
            work += getattr(error, "pos", len(text)) - start
            if _begins(text, start):
                broken = True
                document, end, read = _mended(text, start, decoder)
                work += read
                if isinstance(document, dict) and is_diag(document):
                    doubt(doubts, BROKEN)
                    at = end
                else:
                    document = None
            if work > _WORK * (len(text) + 2**20):
                doubt(doubts, "there is more damaged JSON than is searched for results")
                break
        if isinstance(document, dict) and is_diag(document):
            found.append(document)
        elif document is not None and _RESULTS.search(text, start, at):
            doubt(doubts, "results stand inside of another document")
        if len(found) > DOCUMENTS_AT_MOST:
            found.pop()
            doubt(doubts, f"there are more than {DOCUMENTS_AT_MOST} runs in one text")
            break
    around.append(text[at:])
    left = "\n".join(around)
    if (broken and not found) or _RESULTS.search(left):
        doubt(doubts, BROKEN)
    return found, left, doubts


def _begins(text: str, start: int) -> bool:
    """Whether the object at this place, which cannot be decoded, is one of dcgmi diag's: it has such a key itself."""
    mark = _MARK.search(text, start, start + _MARK_WITHIN)
    between = text[start + 1 : mark.start()] if mark else ""
    return mark is not None and between.count("{") <= between.count("}")


def _decoder(doubts: list[str]) -> json.JSONDecoder:
    """A decoder that tells of a key that stands twice; of two statuses, a Fail wins."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in items:
            if key in made:
                doubt(doubts, f"{key[:80]!r} stands twice in one object")
                if key == "status" and status_of(made[key]) is Status.FAIL:
                    continue
            made[key] = value
        return made

    return json.JSONDecoder(object_pairs_hook=pairs)


def _mended(text: str, start: int, decoder: json.JSONDecoder) -> tuple[Any, int, int]:
    """What stands before the break, closed after its last complete object, where that ends, and how much was read.

    None where no object is complete.
    """
    stack: list[str] = []
    end = at = start
    depth = 0  # of the stack at the last complete object; what lies under it does not change until the next
    for token in _TOKEN.finditer(text, start, start + _MEND_AT_MOST):
        char, at = token[0][0], token.end()
        if char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]":
            if not stack or stack[-1] != char:
                break
            stack.pop()
            end, depth = at, len(stack)
            if not stack:
                break
    if end == start:
        return None, start, at - start
    try:
        return decoder.decode(text[start:end] + "".join(reversed(stack[:depth]))), end, 2 * (at - start)
    except (ValueError, RecursionError):
        return None, start, 2 * (at - start)
