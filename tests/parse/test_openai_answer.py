"""Answers of OpenAI-style servers: damage never makes a stream whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.openai_answer import error_body, parse_stream, parse_whole
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

STREAM = (CASES / "086" / "stream.txt").read_text(encoding="utf-8")


def test_a_stream_byte_by_byte() -> None:
    """The same answer from one read and from one byte a read."""
    raw = STREAM.encode()
    whole = parse_stream([raw])
    assert whole == parse_stream(raw[n : n + 1] for n in range(len(raw)))
    assert (whole.text, whole.finish, whole.completion_tokens, whole.finished) == (
        "The link is up",
        {0: "length"},
        5,
        True,
    )


def test_errors_of_every_shape() -> None:
    """OpenAI's object, vLLM's older flat one, FastAPI's detail, Triton's text."""
    for document, code in (
        ({"error": {"message": "m", "code": 404}}, 404),
        ({"object": "error", "message": "m", "code": 400}, 400),
        ({"detail": "m"}, None),
        ({"error": "m"}, None),
    ):
        found = error_body(document)
        assert found is not None
        assert (found.message, found.code) == ("m", code)
    assert error_body({"choices": []}) is None


def test_what_is_no_answer_is_refused() -> None:
    """Text without events and documents without choices are refused."""
    with pytest.raises(ParseError, match="found none"):
        parse_stream([b"hello\n"])
    with pytest.raises(ParseError, match="found neither"):
        parse_whole([1])


@settings(max_examples=200, deadline=None)
@given(damages(STREAM))
def test_damage_gives_an_answer_or_a_refusal(text: str) -> None:
    """Never another error; finished only with an end mark or a closing usage, and a finish reason."""
    answer = read_or_refused(lambda: parse_stream([text.encode()]))
    if answer is not None and answer.finished:
        assert "[DONE]" in text or answer.closed_by_usage
        assert all(answer.finish.values())
