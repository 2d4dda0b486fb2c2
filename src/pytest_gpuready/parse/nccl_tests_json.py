"""nccl-tests `-J` documents, versions 1 to 3 -> the same run that the text gives.

Booleans are the strings "true" and "false", a root is a padded string, NaN is the string "nan". One device is listed
for each process, so ranks are processes x threads x GPUs. The environment may hold secrets: only NCCL's variables are
kept. A document that ends early (the run died) is read as far as it goes and is not complete.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.nccl_tests import Config, Half, Rank, Row, Run, agrees

_COLLECTIVE = re.compile(r"(?:.*/)?(\w+?)_perf(?:_mpi)?$")
_SIZE_SEEN = re.compile(r'"size"\s*:\s*(\d{1,18})\s*,')
_DOCUMENT_VERSION = re.compile(r'"version"\s*:\s*(\d{1,6})')
_ARGUMENTS = re.compile(r'"args"\s*:\s*\[\s*"([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole document, or what could be seen of one that ends early (then `run` has no rows)."""

    version: int | None
    run: Run
    ranks: int | None
    devices_listed: int | None
    complete: bool
    missing: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    sizes_seen: tuple[int, ...] = ()


def nccl_tests_json(text: str) -> Document:
    """Read a document.

    Raises:
        ParseError: it is no nccl-tests document, contradicts itself or holds a value of another kind.
    """
    if not text.lstrip().startswith("{") or '"nccl_version"' not in text:
        raise ParseError("nccl-tests JSON: expected an object with nccl_version, found none; name the tool with --tool")
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _unfinished(text)
    try:
        return _document(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ParseError(
            f"nccl-tests JSON: expected the layout of versions 1 to 3, found trouble at {str(error)[:80]!r}; "
            "run the test again with -J"
        ) from error


class _TwiceError(ParseError):
    """A key is there twice: the document was damaged or edited."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _TwiceError("nccl-tests JSON: expected every key once, found one twice; run the test again with -J")
    return made


def _no_constant(word: str) -> float:
    raise ValueError(word)


def _unfinished(text: str) -> Document:
    results = text.partition('"results"')[2]
    version, first = _DOCUMENT_VERSION.search(text[:200]), _ARGUMENTS.search(text[:4096])
    name = _COLLECTIVE.match(first[1].replace("\\/", "/")) if first else None
    return Document(
        version=int(version[1]) if version else None,
        run=Run(collective=name[1] if name else ""),
        ranks=None,
        devices_listed=None,
        complete=False,
        missing=("the end of the document",),
        sizes_seen=tuple(int(size) for size in _SIZE_SEEN.findall(results))[:1000],
    )


def _document(data: dict[str, Any]) -> Document:
    run = Run(tables=1)
    arguments = [str(word) for word in data.get("args") or []]
    run.collective = next((found[1] for word in arguments if (found := _COLLECTIVE.match(word))), "")
    run.nccl_library = str(_whole(data["nccl_version"]))
    config = data["config"]
    run.config = Config(
        threads=_whole(config["nthreads"]),
        gpus=_whole(config["ngpus"]),
        min_bytes=_whole(config["minimum_bytes"]),
        max_bytes=_whole(config["maximum_bytes"]),
        step=_whole(config["step_factor"] if "step_factor" in config else config["step_bytes"]),
        step_is_factor="step_factor" in config,
        iterations=_whole(config["iterations"]),
        validation=_whole(config["validation"]),
    )
    devices = config["devices"]
    run.ranks = [
        Rank(
            rank=_whole(device["rank"]),
            group=_whole(device["group"]),
            pid=_whole(device["pid"]),
            host=str(device["hostname"]),
            device=_whole(device["device"]),
            address=str(device["device_hex"]),
            model=str(device["device_info"]).strip(),
        )
        for device in devices
    ]
    for entry in data.get("results") or []:
        row = _row(entry)
        if row is None:
            run.damaged += 1
        else:
            run.rows.append(row)
    missing = [key for key in ("results", "out_of_bounds", "average_bus_bandwidth", "end_time") if not data.get(key)]
    if "out_of_bounds" not in missing:
        counted = data["out_of_bounds"]
        okay = _truth(counted["okay"])
        run.footers = 1
        run.out_of_bounds = [(_whole(counted["count"]), "OK" if okay else "FAILED")]
    if "average_bus_bandwidth" not in missing:
        average = data["average_bus_bandwidth"]
        verdict = {"true": "OK", "false": "FAILED"}.get(str(average["okay"]).lower(), "")
        if isinstance(average["bandwidth"], (int, float)) and not isinstance(average["bandwidth"], bool):
            run.averages = [(float(average["bandwidth"]), verdict)]
    step = run.config.threads * run.config.gpus
    numbers = [rank.rank for rank in run.ranks]
    ordered = numbers == [index * step for index in range(len(numbers))]
    pairs = [str(entry).partition("=") for entry in data.get("env") or []]
    return Document(
        version=_whole(data["version"]),
        run=run,
        ranks=len(devices) * step if ordered and devices else None,
        devices_listed=len(devices),
        complete=not missing,
        missing=tuple(missing),
        errors=tuple(str(error)[:500] for error in data.get("errors") or [] if str(error).strip()),
        environment={
            name: value[:200] for name, _, value in pairs if name.startswith("NCCL_") and name != "NCCL_VERSION"
        },
        sizes_seen=tuple(row.size_bytes for row in run.rows),
    )


def _row(entry: dict[str, Any]) -> Row | None:
    """A row, or None where its time and bandwidth contradict each other."""
    halves = []
    for name in ("out_of_place", "in_place"):
        half = entry.get(name)
        if half is None:
            continue
        time_us = _number(half["time"] if "time" in half else half["cpu_time"])
        algbw, busbw = _number(half["alg_bw"]), _number(half["bus_bw"])
        if "time" in half and not agrees(size=_whole(entry["size"]), time_us=time_us, algbw=algbw):
            return None
        wrong = half.get("nwrong")
        checked = wrong is not None and str(wrong).lower() not in ("nan", "-nan")
        halves.append(
            Half(
                time_us=time_us,
                algbw_gb_per_s=algbw,
                busbw_gb_per_s=busbw,
                wrong=_number(wrong) if checked else None,
                checked=checked,
            )
        )
    if not halves:
        return None
    return Row(
        size_bytes=_whole(entry["size"]),
        count=_whole(entry["count"]),
        kind=(str(entry["type"]), str(entry["redop"]), str(entry["root"]).strip()),
        halves=tuple(halves),
    )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} for a count")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} for a number")
    return float(value)


def _truth(value: object) -> bool:
    words = {"true": True, "false": False}
    text = str(value).lower()
    if text not in words:
        raise ValueError(f"{value!r} for true or false")
    return words[text]
