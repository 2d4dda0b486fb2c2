"""Slurm's own commands here, where the run is started: asked with a deadline, without what a surrounding job says."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from importlib import import_module

from pytest_gpuready.errors import TransportError
from pytest_gpuready.transport.kept import shown

ASK_S = 30.0

_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_DEBUG_FLAGS")
_FOREIGN = ("SLURM_", "SLURMD_", "SRUN_", "SALLOC_", "SBATCH_", "SQUEUE_", "SINFO_", "SCONTROL_")


def environment() -> dict[str, str]:
    """Our environment without variables that give Slurm's commands other defaults than those they have."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_FOREIGN)}


def require(*programs: str) -> None:
    """Raises TransportError where one of Slurm's commands is not installed here."""
    for program in programs:
        if shutil.which(program) is None:
            raise TransportError(
                f"expected {program} on the PATH, found none; start the run where Slurm's commands are (a login node)"
            )


def ask(*words: str) -> str:
    """What one of Slurm's commands answers.

    Raises:
        TransportError: it complained or gave no answer in time.
    """
    todo = f"see that `{words[0]}` works here"
    try:
        done = subprocess.run(words, capture_output=True, timeout=ASK_S, check=False, env=environment())
    except OSError as error:
        raise TransportError(f"expected to start {words[0]}, found {error.strerror}; {todo}") from error
    except subprocess.TimeoutExpired as error:
        raise TransportError(f"expected {words[0]} to answer, found nothing within {ASK_S:g} s; {todo}") from error
    if done.returncode:
        raise TransportError(f"expected {words[0]} to answer, found {last_error(done.stderr)}; {todo}")
    return done.stdout.decode("utf-8", errors="replace")


def last_error(stderr: bytes) -> str:
    """The last line that a command complained in, an error rather than another."""
    lines = [line for line in stderr.strip().split(b"\n") if line.strip()]
    errors = [line for line in lines if b"error: " in line] or lines
    return shown(errors[-1]) if errors else "no word"


def fold(names: Iterable[str]) -> str:
    """The names in one word, as Slurm writes them too."""
    return str(import_module("ClusterShell.NodeSet").NodeSet.fromlist(list(names)))
