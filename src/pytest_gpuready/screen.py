"""The terminal that pytest writes to, as a screen for progress: also while pytest captures what tests print."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter

PREFIX = "gpuready: "


def screen_of(config: pytest.Config) -> TerminalScreen | None:
    """Where progress of this run is shown; None where nobody would see it.

    A worker of xdist has no terminal, and what it prints would break its link to the controller. With -q a terminal
    still shows it, for it leaves one line; a log does not get more lines than were asked for.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return None
    in_place = bool(reporter.isatty) and os.environ.get("TERM", "") not in ("", "dumb")
    return TerminalScreen(config, in_place=in_place) if in_place or config.option.verbose >= 0 else None


class TerminalScreen:
    """Writes through pytest's own terminal writer, with its capturing suspended for that moment."""

    def __init__(self, config: pytest.Config, *, in_place: bool) -> None:
        self.in_place = in_place
        self._config = config
        self._rewriting = False

    def line(self, text: str) -> None:
        """Write a whole line of its own, above the one that is rewritten."""
        with self._uncaptured():
            if self._rewriting:
                self._writer.write("\r\x1b[K")
                self._rewriting = False
            else:
                self._fresh_line()
            self._writer.line(PREFIX + text)
            self._writer.flush()

    def rewrite(self, text: str, *, last: bool = False) -> None:
        """Put this text in the place of the one before; `last` leaves it there and goes to the next line."""
        with self._uncaptured():
            if not self._rewriting:
                self._fresh_line()
            # A line that is as wide as the terminal would begin a second one, which nobody could rewrite.
            shown = (PREFIX + text)[: self._writer.fullwidth - 1]
            self._writer.write(f"\r\x1b[K{shown}", flush=True)
            if last:
                self._writer.line()
            self._rewriting = not last

    @property
    def _writer(self) -> TerminalWriter:
        return self._config.get_terminal_writer()

    def _fresh_line(self) -> None:
        """Leave the line in which pytest puts a sign for each test."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
        if self._writer.width_of_current_line:
            self._writer.line()

    @contextlib.contextmanager
    def _uncaptured(self) -> Iterator[None]:
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        # A terminal that went away is no reason to end a measurement.
        with (
            capture.global_and_fixture_disabled() if capture else contextlib.nullcontext(),
            contextlib.suppress(OSError),
        ):
            yield
