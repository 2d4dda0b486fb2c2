"""`transport.progress_lines`: what is progress and what is text, however the stream is cut."""

from __future__ import annotations

import pytest

from pytest_gpuready.transport.progress_lines import LONGEST, ProgressLines

PROGRESS = b'gpuready-progress {"s": 5.5}\n'


def taken(*pieces: bytes) -> tuple[bytes, list[dict[str, object]]]:
    """The text and the progress of a stream that comes in these pieces."""
    heard: list[dict[str, object]] = []
    lines = ProgressLines(heard.append)
    return b"".join([lines.feed(piece) for piece in pieces]) + lines.rest(), heard


def test_however_it_is_cut_it_is_the_same() -> None:
    """Progress between lines of text is found wherever the stream is cut, also sign by sign."""
    stream = b"one\n" + PROGRESS + b"gpuready-\n\ntwo gpuready-progress {}\n" + PROGRESS + b"three"
    text = b"one\ngpuready-\n\ntwo gpuready-progress {}\nthree"
    for at in range(len(stream)):
        assert taken(stream[:at], stream[at:]) == (text, [{"s": 5.5}] * 2)
    assert taken(*(bytes([sign]) for sign in stream)) == (text, [{"s": 5.5}] * 2)


@pytest.mark.parametrize(
    "line",
    [
        b"gpuready-progress \n",
        b"gpuready-progress 5\n",
        b"gpuready-progress [1]\n",
        b'gpuready-progress {"s": \n',
        b'gpuready-progress {"s": NaN}\n',
        b'gpuready-progress {"s": 1} {"s": 2}\n',
        b'gpuready-progress "\xff"\n',
        b"gpuready-progress " + b"[" * 3000 + b"\n",
        b'gpuready-progress {"s": 1}',
    ],
)
def test_what_only_begins_like_progress_is_text(line: bytes) -> None:
    """A malformed line, and one that never ended, stays in the text as it was."""
    assert taken(line) == (line, [])


def test_an_endless_line_is_not_held_back() -> None:
    """A line longer than progress can be is text as soon as that is known, to its very end."""
    heard: list[dict[str, object]] = []
    lines = ProgressLines(heard.append)
    long = b"gpuready-progress " + b"x" * LONGEST
    assert lines.feed(long) == long
    assert lines.feed(b"gpuready-progress {}\n" + PROGRESS) == b"gpuready-progress {}\n"
    assert heard == [{"s": 5.5}]
