"""What a `dcgmi` command line asked for, as far as it is known; an unknown command asks for nothing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

_RUN = re.compile(r"(?:^|\s)(?:-r|--run)[ =]?\s*[\"']?([\w,]+)")
_HOST = re.compile(r"(?:^|\s)--host[ =]\s*[\"']?([^\s\"']+)")
_DCGMI = re.compile(r"(?:^|[\s/\"'])dcgmi(?=$|\s)")
_REMOTE = re.compile(r"(?:^|[\s/;&|\"'])(ssh|srun|pdsh|clush|kubectl)(?=\s)")
_NEXT = re.compile(r"[;&|\n]")
_HERE = ("localhost", "127.0.0.1", "::1", "[::1]")
_WITH_VALUE = frozenset(f"-{letter}" for letter in "JlipFobcDEeILmOQRSWB")
"""Options of ssh that take a value: what stands behind them is not the host."""
_ITERATIONS = re.compile(r"(?:^|\s)--iterations[ =]\s*(\d{1,6})")
_COUNT = re.compile(r"(?:^|\s)(?:-n|--expectedNumEntities)[ =]\s*[\"']?gpu:(\d{1,4})")
_ONLY = re.compile(r"(?:^|\s)(?:-i|--gpuList|--entity-id|-g|--group|-f|--fakeGpuList)[ =]")
_CONFIGURED = re.compile(r"(?:^|\s)(?:-c|--configfile)[ =]")
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
    configured: bool = False
    parameters: dict[str, str] = field(default_factory=dict)

    def short(self, default_s: dict[str, float]) -> dict[str, tuple[str, float]]:
        """Test -> duration as written and DCGM's default in seconds, where the command asked for less (or for what
        cannot be read)."""
        found = {}
        for test, seconds in default_s.items():
            value = self.parameters.get(f"{test}.test_duration")
            if value is not None and not _seconds(value) >= seconds:
                found[test] = (value, seconds)
        return found

    def of_level(self, version: str) -> tuple[str, ...]:
        """4.x names of the tests that the level holds in this version; without the software checks."""
        names = [n for level, tests in LEVEL_TESTS if level <= self.level for n in tests]
        if re.match(r"[1-3]\.", version) and "nvbandwidth" in names:
            names.remove("nvbandwidth")
        return tuple(names)


DURATION_S: dict[str, float] = {"diagnostic": 180, "targeted_stress": 30, "targeted_power": 120, "memtest": 600}
"""How long DCGM's tests last where nothing is said; the plug-ins' own defaults, 4.6.0."""


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def host_of(command: str) -> str:
    """The machine that a command asks: by --host, or else by the last ssh, srun or alike before dcgmi; "" if none.

    Several that differ are joined: no single one is meant.
    """
    by_option = list(dict.fromkeys(found[1] for found in _HOST.finditer(command)))
    far = [host for host in by_option if _bare(host) not in _HERE]
    if far:
        return ",".join(by_option)
    tool = _DCGMI.search(command)
    before = command[: tool.start()] if tool else ""
    remote = list(_REMOTE.finditer(before))
    behind = before[remote[-1].end() :] if remote else ""
    over = _NEXT.search(behind) and not behind.count("'") % 2 and not behind.count('"') % 2
    if not remote or over:  # the command behind ssh had ended, so dcgmi ran here
        return ",".join(by_option)
    return _target(remote[-1][1], behind.split())


def _target(tool: str, words: list[str]) -> str:
    """The node that these words behind ssh, or an option of another tool, name."""
    option = {"ssh": "", "kubectl": "exec"}.get(tool, "-w")
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        plain = word.strip("\"'")
        if option and tool != "kubectl":
            if before in (option, "--nodelist"):
                return plain
            if plain.startswith(("--nodelist=", f"{option}=")):
                return plain.partition("=")[2]
            if plain.startswith(option) and len(plain) > len(option):
                return plain[len(option) :]
        elif not plain.startswith("-") and plain != option and before not in _WITH_VALUE:
            return plain.rpartition("@")[2].rpartition("/")[2]
    return ""


def same_host(one: str, other: str) -> bool:
    """Whether two words name one machine: the port, and a domain that one of them lacks, do not count."""
    first, second = _bare(one), _bare(other)
    return bool(first) and (first == second or first.startswith(f"{second}.") or second.startswith(f"{first}."))


def _bare(host: str) -> str:
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()


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
        configured=_CONFIGURED.search(command) is not None,
        parameters=parameters,
    )
