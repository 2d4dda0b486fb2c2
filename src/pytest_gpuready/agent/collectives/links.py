"""Counters of the NVLinks, a process of its own: `python -m pytest_gpuready.agent.collectives.links BDF...`.

For every line on its stdin it reads the counters of all links of these GPUs and prints one line of JSON: bus address ->
{"links": [{name: value}, ..], "errors": [{name: error}, ..], "problem": why there is nothing}. Its end is that of its
stdin. NVML may hang; then only this process does, and `Links` says so.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from pytest_gpuready.agent.stress import children

COUNTERS = {
    **{"data_tx": 138, "data_rx": 139, "raw_tx": 140, "raw_rx": 141},
    **{"sent": 202, "received": 204, "replay": 161, "recovery": 162, "crc": 163},
}
"""Name -> id of the field value; its scope is the link."""

MOST_LINKS = 64
WORDS = (sys.executable, "-m", "pytest_gpuready.agent.collectives.links")
ANSWER_S = 10.0
LARGEST = 4 * 2**20

Reading = dict[str, Any]


class Links:
    """The crew's end of it."""

    def __init__(self, bdfs: Sequence[str], command: Sequence[str] = WORDS) -> None:
        self._bdfs = list(bdfs)
        self._tail = b""
        self.problem = ""
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.process = children.start([*command, *bdfs], stderr=subprocess.DEVNULL)
        except OSError as error:
            self.problem = f"expected to start the reader of NVLink counters, found {error.strerror}"

    def read(self) -> dict[str, Reading]:
        """Bus address -> what stands there now; each has a problem where there is no answer within `ANSWER_S`."""
        if self.process is None or self.problem or self.process.stdin is None:
            return self._none()
        try:
            os.write(self.process.stdin.fileno(), b"\n")
        except OSError:
            self.problem = "expected NVLink counters, found the end of their reader"
            return self._none()
        line = self._line(time.monotonic() + ANSWER_S)
        try:
            said = json.loads(line) if line else None
        except ValueError:
            said = None
        if not isinstance(said, dict) or any(not isinstance(said.get(bdf), dict) for bdf in self._bdfs):
            self.problem = self.problem or "expected NVLink counters, found something else"
            return self._none()
        return said

    def close(self) -> None:
        """End it whatever it does."""
        if self.process and not children.gone(self.process):
            self.problem = self.problem or f"process {self.process.pid} did not end on SIGKILL"

    def _line(self, give_up: float) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        while b"\n" not in self._tail:
            left = give_up - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.problem = f"expected NVLink counters within {ANSWER_S:g} s, found no answer: NVML hangs"
                return b""
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece or len(self._tail) > LARGEST:
                self.problem = "expected NVLink counters, found the end of their reader"
                return b""
            self._tail += piece
        line, self._tail = self._tail.split(b"\n", 1)
        return line

    def _none(self) -> dict[str, Reading]:
        return {bdf: {"problem": self.problem} for bdf in self._bdfs}


def counted(nvml: Any, bdf: str) -> Reading:
    """What NVML says of the links of one GPU."""
    from pytest_gpuready.agent import nvlink  # noqa: PLC0415 - not for the crew, which has no NVML
    from pytest_gpuready.agent.nvml_reader import Reader, error_name  # noqa: PLC0415 - see above

    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bdf.encode("ascii"))
    except nvml.NVMLError as error:
        return {"problem": f"NVML: {error_name(error)}"}
    reader = Reader(nvml, handle)
    many = nvlink.count(reader)
    if not many:
        why = reader.errors.get("nvlink_count")
        return {"problem": f"NVML: {why}" if why else "the GPU has no NVLink"}
    links = range(min(many, MOST_LINKS))
    wanted = [(link, name) for link in links for name in COUNTERS]
    read, failed = reader.fields([(COUNTERS[name], link) for link, name in wanted])
    values: list[dict[str, int]] = [{} for _ in links]
    errors: list[dict[str, str]] = [{} for _ in links]
    for at, (link, name) in enumerate(wanted):
        if at in read:
            values[link][name] = read[at]
        else:
            errors[link][name] = failed[at]
    return {"links": values, "errors": errors}


def main(bdfs: Sequence[str]) -> int:
    """Answer until stdin ends. 1 where NVML does not start; then there is no line."""
    import pynvml  # noqa: PLC0415 - not for the crew

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 1
    while piece := os.read(0, 4096):
        for _ in range(piece.count(b"\n")):
            os.write(1, json.dumps({bdf: counted(pynvml, bdf) for bdf in bdfs}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
