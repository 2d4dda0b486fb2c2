"""A byte stream of server-sent events -> events, by the standard (WHATWG HTML, 9.2).

Lines end with LF, CR or CRLF; one blank after the colon belongs to the field; several `data` lines join with LF; lines
that begin with a colon are comments; fields that are not known (and so HTTP headers before the stream) are skipped.
Reads may split anywhere, inside a character too. Text is kept as it came: a blank that opens it belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass

EVENT_AT_MOST = 4 * 2**20
"""Bytes of one event; what is longer is no event of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that carries data. `name` is "message" unless the stream says otherwise."""

    name: str
    data: str


class EventReader:
    """Takes bytes as they come and gives events as they are complete. `pending` is what has not ended."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True
        self.too_long = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Events that end in this chunk, in order."""
        events: list[Event] = []
        if not chunk:
            return events
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk[-1:] == b"\r"
        pieces = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in pieces[:-1]:
            self._line += piece
            if event := self._end_of_line():
                events.append(event)
        self._line += pieces[-1]
        if len(self._line) > EVENT_AT_MOST:
            self._line.clear()
            self.too_long = True
        return events

    @property
    def pending(self) -> str:
        """Data of an event that was not ended by an empty line, with a line that was not ended; "" if there is none."""
        line = self._line.decode("utf-8", errors="replace")
        rest = [_value(line)] if line.startswith("data") else [line] if line else []
        return "\n".join([*self._data, *rest])

    def _end_of_line(self) -> Event | None:
        line = self._line.decode("utf-8", errors="replace")
        self._line.clear()
        if self._first:
            line, self._first = line.removeprefix("\ufeff"), False
        if not line:
            event = Event(name=self._name or "message", data="\n".join(self._data)) if self._data else None
            self._data, self._name, self._size = [], "", 0
            return event
        field, value = line.partition(":")[0], _value(line)
        if field == "data":
            self._size += len(value)
            if self._size > EVENT_AT_MOST:
                self.too_long = True
            else:
                self._data.append(value)
        elif field == "event":
            self._name = value[:64]
        return None


def _value(line: str) -> str:
    return line.partition(":")[2].removeprefix(" ")
