"""Copy a recording with its identifiers replaced: `python benchmarks/anonymise.py FROM TO [--note TEXT]`.

Host name, boot id, system serial, GPU UUIDs and serials become numbered ones that keep their form; nothing else is
touched. What was recorded stays what was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import SITE, append, read_meta, read_results

NODE = "node01"
BOOT_ID = "00000000-0000-4000-8000-0000000000b0"


def replacements(documents: list[dict[str, Any]]) -> dict[str, str]:
    """Identifier -> its stand-in, for every identifier that the documents hold."""
    found: dict[str, str] = {}
    for document in documents:
        found[document["boot_id"]] = BOOT_ID
        found[document["host"]] = NODE
        data = document["data"]
        if data.get("system_serial"):
            found[data["system_serial"]] = "SYS-0001"
        for gpu in data.get("gpus", ()):
            if gpu.get("uuid"):
                number = gpu["index"] + 1
                found[gpu["uuid"]] = f"GPU-{number:08d}-0000-4000-8000-{number:012d}"
                found[gpu["serial"]] = f"16500000000{number:02d}"
    return {old: new for old, new in found.items() if old}


def anonymised(results: list[CommandResult]) -> list[CommandResult]:
    """The same results with identifiers replaced, whole JSON strings only."""
    documents = [json.loads(result.stdout) for result in results]
    names = replacements(documents)

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner) for inner in value]
        return names.get(value, value) if isinstance(value, str) else value

    return [
        dataclasses.replace(
            result,
            command=dataclasses.replace(result.command, node=NODE),
            stdout=json.dumps(walk(document), separators=(",", ":")) + "\n",
        )
        for result, document in zip(results, documents, strict=True)
    ]


def main() -> None:
    """Read FROM, write TO."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    append(
        arguments.target,
        anonymised(read_results(arguments.source)),
        note=arguments.note,
        recorded=read_meta(arguments.source).recorded,
    )
    print(f"{arguments.target} is written; copy {SITE} by hand: it may name people")


if __name__ == "__main__":
    main()
