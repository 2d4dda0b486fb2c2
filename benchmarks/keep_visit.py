"""Keep the results of a visit without its identifiers: `python benchmarks/keep_visit.py FROM TO`.

Host name, boot id, UUIDs and serials become numbered ones that keep their form. Certificates and evidence are not
kept: their digests are of the bytes as they were.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from anonymise import replacements

KEPT = (
    "machine.txt",
    "seconds.txt",
    "comparison.txt",
    "comparison.json",
    "tests-gpu*.txt",
    "node.json",
    "nvml.json",
    "copies-*.json",
    "copies-together*.json",
    "nvbandwidth-*.json",
)


def main(source: Path, target: Path) -> None:
    """Copy what is kept, identifiers replaced. Raises: SystemExit where one of them is still there."""
    files = sorted(path for pattern in KEPT for path in source.glob(pattern))
    agent = [json.loads(path.read_text()) for path in files if path.name in ("node.json", "nvml.json")]
    agent += [json.loads(path.read_text()) for path in files if path.name.startswith("copies")]
    names: dict[str, str] = {}
    for document in agent:
        names |= replacements([document])
    target.mkdir(parents=True, exist_ok=True)
    for path in files:
        text = path.read_text()
        for old, new in names.items():
            # whole JSON strings: a short host name must not eat into other words
            text = text.replace(json.dumps(old), json.dumps(new))
        left = [old for old, new in names.items() if len(old) > 8 and old != new and old in text]
        if left:
            raise SystemExit(f"{path.name}: an identifier is still there: {left[0]}")
        (target / path.name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
