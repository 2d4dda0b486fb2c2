"""Why a `dcgmi diag` has no results, by the words of its error: whom to suspect and what to do."""

from __future__ import annotations

import re

_REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"resource is in use|already running",
        "another diagnostic on this host engine (perhaps of a client that was killed), not the GPUs",
        "wait until it ends, or restart nv-hostengine",
    ),
    (r"killed by a signal", "whoever stopped the run, not the GPUs", "run it again to its end"),
    (r"Return: \(-11\)|\bTimeout\b", "time limit of the run, or a test that hangs", "give it more time, read nvvs.log"),
    (r"NVVS binary was not found", "DCGM installation: nvvs is missing", "install DCGM's diagnostic package"),
    (r"Cannot load plugins", "DCGM installation: no plug-ins for this CUDA version", "install its cuda package"),
    (
        r"dependent package|not found among possible test|does not match any loaded",
        "DCGM installation: no such test, or its plug-in package is missing",
        "install DCGM's packages (core and proprietary), or correct the test's name",
    ),
    (r"homogeneous group", "GPUs of different models in one run", "run each model alone, by -i"),
    (r"Unable to match GPU set|Unsupported entities", "no such GPU in DCGM's list", "compare with dcgmi discovery -l"),
    (
        r"Bad parameter",
        "the number of GPUs that -n asks for is not there, or a parameter is wrong",
        "compare with dcgmi discovery -l",
    ),
    (r"recommended driver|not supported", "driver installation of this host", "install a data-center driver"),
    (r"while DCGM is paused", "the host engine is paused", "resume it"),
    (
        r"embedded host engine|connect to host engine",
        "nv-hostengine (not running, or DCGM cannot start)",
        "start nvidia-dcgm and read nv-hostengine.log",
    ),
    (r"command line|PARSE ERROR|Invalid|incorrect|invalid", "the command line of dcgmi", "correct it, run it again"),
)


def reason(error: str) -> tuple[str, str]:
    """Suspect and remedy of a runtime error; the diagnostic itself where its words are not known."""
    return next(
        ((suspect, remedy) for words, suspect, remedy in _REASONS if re.search(words, error)),
        ("the diagnostic itself", "read nvvs.log"),
    )
