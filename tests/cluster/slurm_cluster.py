"""A real Slurm on this machine: `slurm-cluster.sh` as a Python object."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.transport.slurm import Slurm
from tests.cluster.hosts import SYSTEM_PATH, _enter, alive

SCRIPT = Path(__file__).parent / "slurm-cluster.sh"
INSTALL = "apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge iproute2"


def missing() -> str:
    """Why Slurm cannot be started here, as one line; "" where it can."""
    if os.geteuid() != 0:
        return "expected root for an imitated Slurm, found another user; run the tests as root"
    path = os.environ.get("PATH", "") + SYSTEM_PATH
    tools = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "munged", "ip", "nsenter")
    lacking = [tool for tool in tools if shutil.which(tool, path=path) is None]
    return f"expected {', '.join(lacking)} for an imitated Slurm, found none; {INSTALL}" if lacking else ""


@dataclass(frozen=True)
class SlurmCluster:
    """Four nodes; `hosts` is the folder of hosts that have a slurmd each, None where all are of one namespace."""

    folder: Path
    prefix: str
    hosts: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{number}" for number in (1, 2, 3, 4))

    @property
    def conf(self) -> str:
        return str(self.folder / "slurm.conf")

    def slurm(self, **other: object) -> Slurm:
        """The transport to these nodes, impatient."""
        options: dict[str, object] = {"python": sys.executable, "wait_s": 20.0, "start_s": 30.0, "patience_s": 1.0}
        return Slurm(**{**options, **other})  # type: ignore[arg-type]

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints, from a thread in `controller`."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def script(self, *words: str) -> None:
        act, *rest = words
        done = subprocess.run(
            ["sh", SCRIPT, act, self.folder, *rest], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{SCRIPT.name} {act}: {done.stderr.strip()}")

    def start(self) -> None:
        """Start it; about a second."""
        self.script("start", "4", self.prefix, *([str(self.hosts)] if self.hosts else []))

    def stop(self) -> None:
        self.script("stop")

    def is_idle(self, seconds: float = 20) -> bool:
        """True where no job is left, running or waiting, and every node answers."""
        end = time.monotonic() + seconds
        while left := {*self.ask("squeue", "-h").split(), *self.ask("sinfo", "-h", "-o", "%T").split()} - {"idle"}:
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        return not left

    @contextlib.contextmanager
    def dead_slurmd(self, name: str) -> Iterator[None]:
        """Nobody serves that node; Slurm does not know it yet."""
        pid = int((self.folder / f"slurmd-{name}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        while alive(pid):
            time.sleep(0.01)
        try:
            yield
        finally:
            self.script("slurmd", name)

    @contextlib.contextmanager
    def hung_slurmd(self, name: str) -> Iterator[None]:
        """Who serves that node takes connections and says nothing."""
        pid = int((self.folder / f"slurmd-{name}.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        """This thread, and whatever it starts, is where this Slurm answers."""
        with Path("/proc/thread-self/ns/net").open() as ours, Path(f"/run/netns/{self.prefix}c").open() as theirs:
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())
