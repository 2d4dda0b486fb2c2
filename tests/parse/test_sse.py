"""The event reader follows the standard however the bytes are split."""

from __future__ import annotations

import pytest

from pytest_gpuready.parse.sse import EventReader

STREAM = (
    "\ufeff: hello\r\ndata: a\r\ndata:b\r\n\r\nevent: error\rdata:  é prêt\r\rretry: 9\n\n"
    "data\n\nHTTP/1.1 200 OK\ndata: 雪"
)
EVENTS = [("message", "a\nb"), ("error", " é prêt"), ("message", "")]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
def test_reads_may_split_anywhere(step: int) -> None:
    """One byte a read or all at once: the same events, a blank that opens the text kept, the tail pending."""
    raw = STREAM.encode()
    reader = EventReader()
    events = [e for at in range(0, len(raw), step) for e in reader.feed(raw[at : at + step])]
    assert [(e.name, e.data) for e in events] == EVENTS
    assert reader.pending == "雪"


def test_an_event_without_end_is_bounded() -> None:
    """A line of many megabytes is dropped and said to be too long; the memory stays."""
    reader = EventReader()
    for _ in range(10):
        reader.feed(b"data: " + b"x" * 2**20)
    assert reader.too_long
    assert len(reader.pending) < 6 * 2**20
