"""Answers of OpenAI-style servers, streamed or whole -> one row: text, how it ended, tokens, errors.

An event is not a token: tokens are what `usage` counts. The last text may ride with the finish reason; `usage` may come
in an event without choices; `[DONE]` is no JSON. Some servers (transformers) send no `[DONE]`: there the stream ends
with an event that carries the finish reason and the only `usage`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.sse import EventReader

TEXT_AT_MOST = 64 * 1024
CHOICES_AT_MOST = 1024
DONE = "[DONE]"
_CHANNELS = ("content", "reasoning", "reasoning_content", "refusal")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """An error that a server sent. `code` is an HTTP status where it says one."""

    message: str
    kind: str
    code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came. `events` are complete events with JSON in them; `finish` has an entry for each choice seen.

    `text` is the answer of the first choice; `spoke` is true where any channel of any choice carried text.
    """

    text: str
    spoke: bool
    finish: dict[int, str | None]
    events: int
    text_events: int
    done: bool
    partial: bool
    unreadable: int
    completion_tokens: int | None
    usage_sound: bool
    closed_by_usage: bool
    errors: tuple[ErrorBody, ...]
    native: bool
    """Events of another protocol (Triton's generate_stream), which has no end mark."""

    @property
    def finished(self) -> bool:
        """Every choice has a finish reason and the stream its end mark."""
        whole = bool(self.finish) and all(self.finish.values())
        return whole and not self.partial and not self.unreadable and (self.done or self.closed_by_usage)


@dataclass(slots=True)
class _Sum:
    texts: dict[int, str] = field(default_factory=dict)
    finish: dict[int, str | None] = field(default_factory=dict)
    errors: list[ErrorBody] = field(default_factory=list)
    events: int = 0
    text_events: int = 0
    unreadable: int = 0
    usages: int = 0
    usage: dict[str, Any] | None = None
    last_closes: bool = False
    spoke: bool = False
    native: bool = False


def error_body(document: Any) -> ErrorBody | None:
    """The error of a document in any of the usual shapes, or None."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if error is None and document.get("object") == "error":
        error = document
    if error is None and "detail" in document and "choices" not in document:
        error = {"message": document["detail"]}
    if error is None:
        return None
    if not isinstance(error, dict):
        return ErrorBody(message=str(error)[:500], kind="", code=None)
    code = error.get("code", document.get("code"))
    number = int(code) if isinstance(code, (int, str)) and str(code).isdecimal() and len(str(code)) == 3 else None
    return ErrorBody(
        message=str(error.get("message", error))[:500], kind=str(error.get("type") or "")[:80], code=number
    )


def parse_stream(chunks: Iterable[bytes]) -> Answer:
    """The answer of an event stream.

    Raises:
        ParseError: no event is there, complete or begun.
    """
    reader = EventReader()
    total = _Sum()
    done = False
    for chunk in chunks:
        for event in reader.feed(chunk):
            if event.data.strip() == DONE:
                done = True
            elif not done:
                _event(event.data, total, is_error=event.name == "error")
    pending = reader.pending.strip()
    done = done or pending == DONE
    partial = bool(pending) and pending != DONE
    if not total.events and not partial and not done and not total.unreadable:
        raise ParseError("stream: expected events 'data: ...', found none; record the stream again")
    return _answer(total, done=done, partial=partial or reader.too_long)


def parse_whole(document: Any) -> Answer:
    """The answer of a request that was not streamed: complete because it is one document.

    Raises:
        ParseError: it has neither choices nor an error.
    """
    total = _Sum()
    if error_body(document) is None and not (isinstance(document, dict) and isinstance(document.get("choices"), list)):
        raise ParseError("answer: expected choices or an error, found neither; record the answer again")
    _document(document, total)
    return _answer(total, done=True, partial=False)


def _event(data: str, total: _Sum, *, is_error: bool) -> None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        total.unreadable += not is_error
        if is_error:
            total.errors.append(ErrorBody(message=data[:500], kind="", code=None))
        return
    if isinstance(document, dict):
        _document(document, total)
    else:
        total.unreadable += 1


def _document(document: dict[str, Any], total: _Sum) -> None:
    total.events += 1
    total.last_closes = False
    if (error := error_body(document)) is not None:
        if len(total.errors) < 100:
            total.errors.append(error)
        return
    closes = spoke = False
    choices = document.get("choices")
    for choice in (choices if isinstance(choices, list) else [])[:CHOICES_AT_MOST]:
        if isinstance(choice, dict):
            said, ends = _choice(choice, total)
            spoke, closes = spoke or said, closes or ends
    if choices is None and isinstance(document.get("text_output"), str):
        total.native = True
        spoke = bool(document["text_output"])
        total.texts[0] = (total.texts.get(0, "") + document["text_output"])[:TEXT_AT_MOST]
    total.text_events += spoke
    total.spoke = total.spoke or spoke
    if isinstance(document.get("usage"), dict):
        total.usage = document["usage"]
        total.usages += 1
        total.last_closes = closes


def _choice(choice: dict[str, Any], total: _Sum) -> tuple[bool, bool]:
    """Whether it carries generated text of any channel, and whether it ends its choice."""
    index = choice.get("index", 0)
    index = index if isinstance(index, int) else 0
    delta = choice.get("delta") or choice.get("message")
    parts = delta if isinstance(delta, dict) else {"content": choice.get("text")}
    said = any(isinstance(parts.get(c), str) and parts[c] for c in _CHANNELS) or bool(parts.get("tool_calls"))
    content = parts.get("content")
    if isinstance(content, str):
        total.texts[index] = (total.texts.get(index, "") + content)[:TEXT_AT_MOST]
    reason = choice.get("finish_reason")
    ends = isinstance(reason, str) and bool(reason)
    if ends or index not in total.finish:
        total.finish[index] = reason if ends else None
    return said, ends


def _answer(total: _Sum, *, done: bool, partial: bool) -> Answer:
    usage = total.usage or {}
    counts = [usage.get(k) for k in ("prompt_tokens", "completion_tokens", "total_tokens")]
    numbers = [c for c in counts if isinstance(c, int) and not isinstance(c, bool) and c >= 0]
    sound = len(numbers) < 3 or numbers[0] + numbers[1] == numbers[2]
    tokens = counts[1]
    return Answer(
        text=total.texts.get(0, ""),
        spoke=total.spoke,
        finish=total.finish,
        events=total.events,
        text_events=total.text_events,
        done=done,
        partial=partial,
        unreadable=total.unreadable,
        completion_tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 else None,
        usage_sound=sound,
        closed_by_usage=total.last_closes and total.usages == 1,
        errors=tuple(total.errors),
        native=total.native,
    )
