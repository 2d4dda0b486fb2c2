"""Kills the controller of a run over four hosts at random moments, looks for what it left, and continues the run.

    python benchmarks/kill_controller.py [TIMES [SEED]]

Needs root, sshd and network namespaces, as tests/cluster does. An undisturbed run of level 1 over ssh comes first.
Then, TIMES times, the same run is ended by SIGKILL at a random moment of that length, every process of ours on the
hosts has to end within the deadline, and the run continued in its directory has to give the certificate of the
undisturbed one but for moments, and for the lines that say that it was continued.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.cluster.imitation import Imitation  # noqa: E402 - the tests are no package that is installed
from tests.cluster.test_runs import SITE, TIMES  # noqa: E402

DEADLINE_S = 20.0
"""By then nothing of a killed run may be left: the longest grace and patience of the commands at level 1."""


def start(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """A run of level 1 in a session of its own."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "level1", "--gpuready-site", "site.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, *words, "--gpuready-out", str(out), str(ROOT / "suites")],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def left(hosts: Path) -> dict[int, str]:
    """Processes that a run has started for the hosts in this folder: the keeper, whatever it keeps, and ssh."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (path / "environ").read_bytes()
        except OSError:
            continue
        kept = b"GPUREADY_KEPT=" in environment or "io.FileIO(0,closefd=False)" in line
        if (kept and bytes(hosts) in environment) or (line.startswith("ssh ") and str(hosts) in line):
            found[int(path.name)] = line[:100]
    return found


def comparable(out: Path) -> tuple[str, object]:
    """Verdict, and the certificate without what no two runs have in common."""
    certificate: dict[str, Any] = json.loads((out / "certificate.json").read_text())
    kept = {k: v for k, v in certificate.items() if k not in ("number", "started", "issued", "do_next", "evidence")}
    kept["assumptions"] = [line for line in kept["assumptions"] if not line.startswith("continued:")]
    return certificate["judged"], json.loads(re.sub(r'"[^"]*out[^"]*/"', '"out/"', TIMES.sub("..", json.dumps(kept))))


def main(times: int, seed: int) -> int:
    chance = random.Random(seed)  # noqa: S311 - moments, no secrets
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hosts = Imitation(folder / "hosts", f"k{os.getpid() % 1_000_000}x", built=folder / "built")
        (folder / "hosts").mkdir()
        (folder / "built").mkdir()
        try:
            hosts.start()
            site = SITE.format(config=hosts.config, prefix=hosts.prefix, connect_timeout_s=10, python="python3")
            (folder / "site.yaml").write_text(site)
            with hosts.controller():
                began = time.monotonic()
                code = start(folder, folder / "out").wait(120)
                lasts = time.monotonic() - began
                whole = comparable(folder / "out")
                print(f"undisturbed: {whole[0]}, exit {code}, {lasts:.1f} s; seed {seed}", flush=True)
                for number in range(1, times + 1):
                    out, at = folder / f"out{number}", chance.uniform(0, lasts)
                    run = start(folder, out)
                    time.sleep(at)
                    os.kill(run.pid, signal.SIGKILL)
                    run.wait(20)
                    killed = time.monotonic()
                    while (rest := left(hosts.folder)) and time.monotonic() < killed + DEADLINE_S:
                        time.sleep(0.05)
                    took = time.monotonic() - killed
                    file = out / "certificate.json"
                    stood = json.loads(file.read_text())["judged"] if file.exists() else "nothing"
                    code = start(folder, out).wait(120)
                    same = comparable(out) == whole
                    bad = bool(rest) or not same
                    wrong += bad
                    print(
                        f"{number:3d} killed at {at:5.2f} s, left {stood:10s} processes gone after {took:5.2f} s"
                        f"{' NOT ' + str(rest) if rest else ''}; continued: exit {code},"
                        f" {'the same certificate' if same else 'ANOTHER CERTIFICATE'}",
                        flush=True,
                    )
        finally:
            hosts.stop()
    print(f"{times - wrong} of {times} as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(numbers[0] if numbers else 50, numbers[1] if len(numbers) > 1 else int(time.time())))
