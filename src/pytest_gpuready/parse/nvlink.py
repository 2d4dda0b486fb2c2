"""`nvidia-smi nvlink` (-s status, -e errors, -c capabilities, -R remote links) -> what each GPU's links say.

A link is active with a rate, or inactive; a GPU may instead say in one sentence that it has no NVLink or that all its
links are inactive. Drivers name the error counters differently (Replay, Recovery, CRC up to Hopper; many more after),
so a counter is kept by the name that it is printed with. There is no end mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.pci_address import PATTERN, pci_address

HEADING = re.compile(r"GPU (\d{1,4}): (\S.*?)(?:\s+\(UUID: ([^)]*)\))?")
LINK = re.compile(r"Link (\d{1,3})\s*[:,]\s*(.*)")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) GB/s")
_REMOTE = re.compile(rf"Remote Device ({PATTERN})\s*:\s*Link (\d{{1,3}})")
_CAN = re.compile(r"(.+?) (?:is )?supported: (true|false)", re.IGNORECASE)
_COUNTER = re.compile(r"([A-Za-z][A-Za-z0-9 _/()-]{0,60}?)\s*(?:: | - ?\d*: ?|:)\s*(\S.*)")
_NO_NVLINK = re.compile(r"does not have or support nvlink|nvlink (?:is )?not supported|no nvlink", re.IGNORECASE)
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
SENTENCE = re.compile(r"(?:NVML: )?(?:Device does not have or support|Unable to retrieve) NVLink", re.IGNORECASE)
_INACTIVE = ("inactive", "<inactive>", "disabled", "<disabled>", "off", "<off>", "down", "<down>")
_GPUS_AT_MOST = 4096
_LINKS_AT_MOST = 256


@dataclass(slots=True, kw_only=True)
class NvlinkGpu:
    """One GPU. `rates`: GB/s by link, None for an inactive one. `said`: "", "no nvlink" or "all inactive".

    `counters`: by link and printed name, a count or the printed text where it is none. `wrong`: what contradicts itself
    or could not be read.
    """

    index: int
    name: str = ""
    said: str = ""
    rates: dict[int, float | None] = field(default_factory=dict)
    counters: dict[int, dict[str, int | str]] = field(default_factory=dict)
    remote: dict[int, str] = field(default_factory=dict)
    cannot: dict[int, list[str]] = field(default_factory=dict)
    capabilities: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def part(self) -> str:
        return f"GPU {self.index}" if self.index >= 0 else "GPU"


def nvlink(lines: Iterable[str]) -> tuple[NvlinkGpu, ...]:
    """Every GPU of the text, in its order; a GPU that comes again (status, then errors) is one.

    Raises:
        ParseError: no line of the text is about a GPU's links, or there are more GPUs than a machine can have.
    """
    gpus: dict[int, NvlinkGpu] = {}
    now: NvlinkGpu | None = None
    some = False
    for raw in lines:
        text = raw.strip()
        heading = HEADING.fullmatch(text)
        if heading:
            if len(gpus) >= _GPUS_AT_MOST:
                raise ParseError(f"nvidia-smi nvlink: expected at most {_GPUS_AT_MOST} GPUs, found more")
            now = gpus.setdefault(int(heading[1]), NvlinkGpu(index=int(heading[1]), name=heading[2]))
            continue
        match = LINK.match(text)
        told = "no nvlink" if _NO_NVLINK.search(text) else "all inactive" if _ALL_INACTIVE.search(text) else ""
        if not match and not told:
            continue
        if now is None:
            now = gpus.setdefault(-1, NvlinkGpu(index=-1))
        some = True
        if match:
            _take(now, int(match[1]), match[2].strip())
        else:
            now.said = told
    if not some:
        raise ParseError("nvidia-smi nvlink: expected lines like 'Link 0: 26.562 GB/s', found none")
    return tuple(gpus.values())


def _take(gpu: NvlinkGpu, number: int, text: str) -> None:
    if number >= _LINKS_AT_MOST:
        _wrong(gpu, f"link {number}: no GPU has as many")
        return
    rate, remote, can = _RATE.fullmatch(text), _REMOTE.fullmatch(text), _CAN.fullmatch(text)
    if rate or text.lower() in _INACTIVE:
        value = float(rate[1]) if rate else None
        if number in gpu.rates and gpu.rates[number] != value:
            _wrong(gpu, f"link {number} stands there twice, with two states")
        gpu.rates.setdefault(number, value)
    elif remote:
        gpu.remote.setdefault(number, f"{pci_address(remote[1])} link {remote[2]}")
    elif can:
        gpu.capabilities[number] = gpu.capabilities.get(number, 0) + 1
        if can[2].lower() == "false":
            gpu.cannot.setdefault(number, []).append(can[1])
    elif counter := _COUNTER.fullmatch(text):
        _count(gpu, number, counter[1].strip(), counter[2].strip())
    else:
        _wrong(gpu, f"link {number}: {text[:60]!r} is not readable")


def _count(gpu: NvlinkGpu, number: int, name: str, text: str) -> None:
    counters = gpu.counters.setdefault(number, {})
    value: int | str = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text[:60]
    if name in counters and counters[name] != value:
        _wrong(gpu, f"link {number} {name} stands there twice, with two values")
    if len(counters) < 128:
        counters.setdefault(name, value)


def _wrong(gpu: NvlinkGpu, text: str) -> None:
    if len(gpu.wrong) < 50:
        gpu.wrong.append(text)
