"""An HTTP answer as it was saved: its status where it is known, headers taken off, and what an error body points at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.audit.asked import http_status
from pytest_gpuready.audit.reader import HEAD, Given
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.json_once import one_value

CHUNK = 64 * 1024
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})[^\r\n]*\r?\n")
_HEADERS = re.compile(rb"(?:HTTP/\d(?:\.\d)? \d{3}[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)+")

_ERRORS: tuple[tuple[str, Outcome, str], ...] = (
    (r"decoupled", "not-measured", "test configuration (wrong end point for this model), not the GPU"),
    (
        r"out of memory|OutOfMemory|failed to allocate",
        "fail",
        "GPU memory of the server: model and cache do not fit, or another process holds it; see server log",
    ),
    (
        r"CUDA error|cudaError|CUBLAS_|CUDNN_|NCCL|illegal memory access|device-side assert|uncorrectable",
        "fail",
        "GPU or engine of the server: see server log, and the kernel log for an Xid",
    ),
    (
        r"EngineDead|EngineCore|engine (?:process )?(?:is )?dead|worker.*died",
        "fail",
        "engine of the server died; see server log",
    ),
    (
        r"context length|max_model_len|maximum.*(?:length|tokens)|too (?:long|large)|longer than",
        "not-measured",
        "test configuration (request longer than the model takes), not the GPU",
    ),
    (
        r"no available versions|is not ready|not loaded|failed to load|unavailable",
        "not-measured",
        "model not loaded on the server: see server log, not decided here",
    ),
    (
        r"unknown model|model.*(?:does not exist|not found)|not found",
        "not-measured",
        "test configuration (model or path), not the GPU",
    ),
    (r"api key|unauthori[sz]ed|forbidden|authenticat", "not-measured", "test configuration (credentials), not the GPU"),
    (
        r"queue|overload|rate limit|too many|backpressure",
        "not-measured",
        "server is overloaded or its limits are reached: not decided here",
    ),
    (
        r"unexpected|invalid|expect(?:s|ed|ing)|missing|must be|unsupported|shape|datatype|validation|doesn't support",
        "not-measured",
        "test configuration (request), not the GPU",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Where the body begins, and the status: the exit code where that is one, else the status line in the text."""

    given: Given
    start: int
    status: int | None

    def chunks(self) -> Iterator[bytes]:
        """The body, a piece at a time."""
        with self.given.path.open("rb") as file:
            file.seek(self.start)
            while chunk := file.read(CHUNK):
                yield chunk

    def lines(self) -> Iterator[str]:
        """Its lines with their ends."""
        with self.given.path.open("rb") as file:
            file.seek(self.start)
            while raw := file.readline(CHUNK):
                yield raw.decode("utf-8", errors="replace")

    def head(self) -> str:
        """The first 64 KiB of it."""
        with self.given.path.open("rb") as file:
            file.seek(self.start)
            return file.read(HEAD).decode("utf-8", errors="replace")

    def longer(self) -> bool:
        """Whether there is more of it than `head` gives."""
        return self.given.path.stat().st_size - self.start > HEAD

    def document(self) -> Any:
        """The JSON document that the body is.

        Raises:
            ValueError: it is none, or is longer than is read.
        """
        text, whole = self.given.text()
        if not whole:
            raise ValueError("longer than 32 MiB")
        raw = text.encode("utf-8")[self.start :] if self.start else text
        try:
            return json.loads(raw, object_pairs_hook=one_value)
        except RecursionError as error:
            raise ValueError("nested without end") from error


def body_of(given: Given) -> Body:
    """The body and status of a saved answer, with or without its headers (`curl -i`)."""
    with given.path.open("rb") as file:
        head = file.read(HEAD)
    headers = _HEADERS.match(head)
    statuses = _STATUS.findall(headers[0]) if headers else []
    status = http_status(given)
    return Body(
        given=given,
        start=headers.end() if headers else 0,
        status=status if status is not None else int(statuses[-1]) if statuses else None,
    )


def failed_transfer(given: Given) -> list[Finding]:
    """An exit code that is no HTTP status is the client's: other than 0 the answer did not come whole."""
    code = given.exit_code
    if code in (None, 0) or http_status(given) is not None:
        return []
    return [
        Finding(
            metric="serve.transfer",
            outcome="not-measured",
            value=code,
            expected="0",
            source="the client's exit code",
            suspect="connection path, time-out or server not there: not decided here",
        )
    ]


def judged_error(metric: str, message: str, status: int | None, *, part: str = "") -> Finding:
    """An error that a server sent: a server at fault fails, a wrong request or an overload is not measured."""
    outcome: Outcome = "not-measured"
    suspect = "request or server: see server log, not decided here"
    known = next(((o, s) for p, o, s in _ERRORS if re.search(p, message, re.IGNORECASE)), None)
    if known and not (status is not None and status >= 500 and known[1].startswith("test configuration")):
        outcome, suspect = known
    elif status is not None and status >= 500 and status != 503:
        outcome, suspect = "fail", "server: see server log"
    elif status == 503:
        suspect = "server is not ready or overloaded: not decided here"
    elif status is not None and status >= 400:
        suspect = "test configuration (request), not the GPU"
    return Finding(
        metric=metric, outcome=outcome, part=part, value=message[:300], source="the server's error", suspect=suspect
    )


def is_stream(head: str) -> bool:
    """The body begins as server-sent events do."""
    return re.match(r"\ufeff?\s*(data:|event:|id:|retry:|:)", head) is not None
