"""What a `dcgmi` command line asked for, as far as it is known; an unknown command asks for nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RUN = re.compile(r"(?:^|\s)(?:-r|--run)[ =]?\s*[\"']?([\w,]+)")
_HOST = re.compile(r"(?:^|\s)--host[ =]\s*[\"']?([^\s\"']+)")
_ITERATIONS = re.compile(r"(?:^|\s)--iterations[ =]\s*(\d{1,6})")
_COUNT = re.compile(r"(?:^|\s)(?:-n|--expectedNumEntities)[ =]\s*[\"']?gpu:(\d{1,4})")
_ONLY = re.compile(r"(?:^|\s)(?:-i|--gpuList|--entity-id|-g|--group|-f|--fakeGpuList)[ =]")
_PARAMETERS = re.compile(r"(?:^|\s)(?:-p|--parameters)[ =]\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+))")
_IGNORED = re.compile(r"(?:^|\s)--ignoreErrorCodes[ =]\s*[\"']?([^\s\"']+)")
_LEVELS = {"1": 1, "quick": 1, "short": 1, "2": 2, "medium": 2, "med": 2, "3": 3, "long": 3, "4": 4, "xlong": 4}

LEVEL_TESTS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (2, ("memory", "pcie")),
    (3, ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power", "nvbandwidth", "eud")),
    (4, ("memtest", "pulse_test")),
)
"""What each level adds to the one below, 4.x names; nvbandwidth only from 4.0 on, eud only as root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`level` 0 where none was named; `only`: GPUs were chosen, so others may be absent; `parameters` by full name."""

    level: int = 0
    tests: tuple[str, ...] = ()
    host: str = ""
    iterations: int | None = None
    gpus: int | None = None
    only: bool = False
    ignored: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    def of_level(self, version: str) -> tuple[str, ...]:
        """4.x names of the tests that the level holds in this version; without the software checks."""
        names = [n for level, tests in LEVEL_TESTS if level <= self.level for n in tests]
        if re.match(r"[1-3]\.", version) and "nvbandwidth" in names:
            names.remove("nvbandwidth")
        return tuple(names)


def asked(command: str) -> Asked:
    """What this command line asks for."""
    run = _RUN.search(command)
    words = run[1].split(",") if run else []
    parameters: dict[str, str] = {}
    for found in _PARAMETERS.finditer(command):
        for one in (found[1] or found[2] or found[3] or "").split(";"):
            name, equals, value = one.partition("=")
            if equals:
                parameters[name.strip()] = value.strip()
    host, iterations, count, ignored = (p.search(command) for p in (_HOST, _ITERATIONS, _COUNT, _IGNORED))
    return Asked(
        level=max((_LEVELS.get(word.lower(), 0) for word in words), default=0),
        tests=tuple("_".join(word.lower().split()) for word in words if word.lower() not in _LEVELS),
        host=host[1] if host else "",
        iterations=int(iterations[1]) if iterations else None,
        gpus=int(count[1]) if count else None,
        only=_ONLY.search(command) is not None,
        ignored=ignored[1] if ignored else "",
        parameters=parameters,
    )
