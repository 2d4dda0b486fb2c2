"""The command line of `dcgmi diag`: what it asks for, or how dcgmi refuses it.

A refusal is text on stderr and nothing on stdout, also with -j: 254 for a value, 1 for an option that does not exist.
Names of tests and GPUs are looked up later, by what runs the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LEVELS = {
    "1": 1, "quick": 1, "short": 1, "2": 2, "medium": 2, "med": 2, "3": 3, "long": 3, "4": 4, "xlong": 4,
}  # fmt: skip
UNREADABLE = "An error occurred trying to parse the command line."

_WITH_VALUE = {
    "-r": "run", "--run": "run", "-p": "parameters", "--parameters": "parameters", "-c": "config",
    "--configfile": "config", "--host": "host", "-g": "group", "--group": "group", "-i": "entities",
    "--entity-id": "entities", "--gpuList": "entities", "-f": "fake", "--fakeGpuList": "fake", "-n": "expected",
    "--expectedNumEntities": "expected", "--iterations": "iterations", "-t": "timeout", "--timeout": "timeout",
    "--check-interval": "interval", "--ignoreErrorCodes": "ignored", "--watch-frequency": "watch",
    "--throttle-mask": "mask", "--clocksevent-mask": "mask", "--statspath": "stats", "--debugLogFile": "log",
    "-d": "debug", "--debugLevel": "debug",
}  # fmt: skip
_SWITCHES = {
    "-j": "json", "--json": "json", "-v": "verbose", "--verbose": "verbose", "--fail-early": "early",
    "--statsonfail": "statsonfail", "--train": "train", "--enable-heartbeat": "heartbeat",
}  # fmt: skip


class Refused(Exception):  # noqa: N818 - what dcgmi does, not what went wrong here
    """dcgmi does not take this command line."""

    def __init__(self, stderr: str, code: int = 254) -> None:
        super().__init__(stderr)
        self.stderr = stderr
        self.code = code


@dataclass(frozen=True)
class Asked:
    """What a command line asks for. `level` 0 where tests are named; `parameters` by full name, values as written."""

    level: int
    names: tuple[str, ...]
    json: bool = False
    verbose: bool = False
    host: str = ""
    entities: str = "*,cpu:*"
    expected: int | None = None
    iterations: int = 1
    timeout: float = 0.0
    ignored: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    def of_test(self, test: str) -> dict[str, str]:
        """Parameters of one test, without its name."""
        return {n.partition(".")[2]: v for n, v in self.parameters.items() if n.partition(".")[0] == test}

    @property
    def generic(self) -> bool:
        """Whether tests run on a GPU that the configuration does not know (4.5 and newer)."""
        return self.parameters.get("generic_mode", "").lower() == "true"


def asked(words: list[str]) -> Asked:
    """What these words after `diag` ask for.

    Raises:
        Refused: dcgmi ends here, with this text and code.
    """
    values: dict[str, list[str]] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word in _SWITCHES:
            values.setdefault(_SWITCHES[word], []).append("")
        elif word in _WITH_VALUE and left:
            values.setdefault(_WITH_VALUE[word], []).append(left.pop(0))
        else:
            why = "Missing a value for this argument!" if word in _WITH_VALUE else "Couldn't find match for argument"
            usage = "Usage: \n   dcgmi diag ...\n\n\nFor complete USAGE and HELP type: \n   dcgmi diag --help\n"
            raise Refused(f"PARSE ERROR: Argument: {word}\n             {why}\n\n{usage}", 1)
    one = {name: found[-1] for name, found in values.items()}
    if "train" in one:
        raise _refusal("Specifying training is no longer supported and this code has been removed..")
    run = one.get("run", "")
    if not run or (run.isdigit() and run not in LEVELS):
        raise _refusal(f"Invalid value '{run}' specified for -r..")
    if "config" in one and not Path(one["config"]).is_file():
        raise _refusal(f"Could not open configuration file: '{one['config']}'.")
    if "interval" in one and "early" not in one:
        raise _refusal("The --fail-early option must be enabled for arg check-interval.")
    parameters = _parameters(values.get("parameters", []))
    timeout = float(one.get("timeout", "0"))
    durations = sum(float(v) for n, v in parameters.items() if n.endswith(".test_duration"))
    if timeout and durations > timeout:
        raise _refusal(f"The timeout of {timeout:g} seconds is shorter than the durations of the tests.")
    level = LEVELS.get(run.lower(), 0)
    return Asked(
        level=level,
        names=() if level else tuple(_name(word) for word in run.split(",") if word.strip()),
        json="json" in one,
        verbose="verbose" in one,
        host=one.get("host", ""),
        entities=one.get("entities", "*,cpu:*"),
        expected=_expected(one.get("expected", "")),
        iterations=_iterations(one.get("iterations", "1")),
        timeout=timeout,
        ignored=one.get("ignored", ""),
        parameters=parameters,
    )


def _name(word: str) -> str:
    return "_".join(word.strip().lower().split())


def _refusal(why: str) -> Refused:
    return Refused(f"Error: {why}\n{UNREADABLE}\n")


def _iterations(word: str) -> int:
    if not word.isdigit() or int(word) == 0:
        raise _refusal("The value for iterations cannot be 0..")
    return int(word)


def _expected(word: str) -> int | None:
    if not word:
        return None
    kind, colon, number = word.partition(":")
    if kind != "gpu" or not colon or not number.isdigit():
        raise _refusal(f"Invalid value '{word}' specified for expectedNumEntities.")
    return int(number)


def _parameters(texts: list[str]) -> dict[str, str]:
    """`test.parameter=value`, several by ";" or by several -p; each once."""
    found: dict[str, str] = {}
    for entry in (part.strip() for text in texts for part in text.split(";")):
        if not entry:
            continue
        name, equals, value = entry.partition("=")
        if not equals or not value or ("." not in name and name != "generic_mode"):
            raise _refusal("incorrect parameter format: .")
        if name in found:
            raise _refusal(f"multiple definitions of {name} parameter.")
        found[name] = value
    return found
