"""Why a diagnostic does not start: exit code and `runtime_error`, in the order in which dcgmi and nvvs find out.

The shell sees 256 plus DCGM's negative code. Texts are as recorded from 4.6.0 where a run of that kind was recorded;
those of a paused engine, of no GPU at all and of an unknown parameter are only of that kind.
"""

from __future__ import annotations

from .arguments import Asked
from .errors import SUPPRESSIBLE
from .parameters import known
from .scenario import Scenario

REASONS = {
    -1: "Bad parameter passed to function",
    -11: "Timeout",
    -30: "DCGM GPU Diagnostic returned an error",
    -34: "The requested operation could not be completed because the affected resource is in use",
    -51: "The diagnostic returned an error that indicates the need to drain the GPU",
    -52: "The NVVS binary was not found in the specified location; please install it to "
    "/usr/libexec/datacenter-gpu-manager-4/ or set environment variable NVVS_BIN_PATH to the directory containing "
    "nvvs. If you set NVVS_BIN_PATH, please restart the DCGM service (nv-hostengine) if it is active.",
    -53: "The DCGM diagnostic was killed by a signal",
    -54: "Cannot perform the requested operation while DCGM is paused",
    -58: "Requested tests were not found among possible test choices.",
}
KILLED, TIMEOUT, NO_SUCH_TEST, FAILED, ISOLATE = -53, -11, -58, -30, -51
ALL_GPUS_OF_3 = 0x7FFFFFFF
"""Number of the group of all GPUs, which 3.x names instead of entities."""


class Ended(Exception):  # noqa: N818 - how a run ends, no fault of this program
    """The run ends without results; `text` is its runtime_error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = 256 + code
        self.text = text


def ended(code: int, asked: Asked, scenario: Scenario, detail: str = "") -> Ended:
    """The end of a run, in dcgmi's words."""
    what = f"group {ALL_GPUS_OF_3}" if scenario.old else f"entities {asked.entities}"
    return Ended(code, f"Error: Unable to complete diagnostic for {what}. Return: ({code}) : {REASONS[code]}\n{detail}")


def chosen(asked: Asked, scenario: Scenario) -> list[int] | None:
    """GPUs that -i chooses, None where it names one that is not there."""
    found: list[int] = []
    for word in asked.entities.split(","):
        kind, _, number = word.strip().rpartition(":")
        if kind == "cpu":
            continue
        if number == "*":
            found += range(scenario.count)
        elif number.isdigit() and int(number) < scenario.count and kind in ("", "gpu"):
            found.append(int(number))
        else:
            return None
    return sorted(set(found))


def before_the_tests(asked: Asked, scenario: Scenario, *, busy: bool) -> list[int]:
    """The GPUs to test.

    Raises:
        Ended: nothing runs.
    """
    gpus = chosen(asked, scenario)
    if scenario.host_engine == "paused":
        raise ended(-54, asked, scenario)
    if asked.expected is not None and asked.expected != scenario.count:
        raise ended(-1, asked, scenario)
    if busy:
        raise ended(-34, asked, scenario)
    if len({scenario.device_ids[gpu] for gpu in gpus or ()}) > 1:
        raise Ended(-23, "Error: Diagnostic can only be performed on a homogeneous group of GPUs.")
    if not scenario.nvvs:
        detail = f"Error when executing the diagnostic: {REASONS[-52]}\nNvvs stderr: \n\n"
        raise ended(-52, asked, scenario, detail)
    if not gpus:
        raise ended(FAILED, asked, scenario, "Unable to match GPU set '' to any GPU(s) on the system.")
    if not scenario.plugin_folder:
        folder = "/usr/libexec/datacenter-gpu-manager-4/plugins/cuda13/"
        detail = (
            f"Error: Cannot load plugins. Unable to change to the plugin dir '{folder}': 'No such file or directory'"
        )
        raise ended(FAILED, asked, scenario, detail)
    _ignored(asked, scenario)
    _tests(asked, scenario)
    _parameters(asked, scenario)
    return gpus


def _ignored(asked: Asked, scenario: Scenario) -> None:
    words = [word for part in asked.ignored.split(";") for word in part.rpartition(":")[2].split(",") if word.strip()]
    for word in words:
        if word.strip() != "*" and (not word.strip().isdigit() or int(word) not in SUPPRESSIBLE):
            detail = (
                f"Error code {word.strip()} invalid. Invalid --ignoreErrorCodes parameter string. "
                "Run nvvs --help for usage info."
            )
            raise ended(FAILED, asked, scenario, detail)


def _tests(asked: Asked, scenario: Scenario) -> None:
    missing = [name for name in asked.names if name not in scenario.plugins or name not in scenario.every_test]
    missing += ["eud"] if "eud" in asked.names and not scenario.root and "eud" not in missing else []
    if missing == ["eud"]:
        detail = (
            "Error: requested test(s): [eud] cannot find dependent package(s). Please ensure that both the [eud] "
            "dependent package and the DCGM proprietary package are installed."
        )
        raise ended(NO_SUCH_TEST, asked, scenario, detail)
    if missing:
        listed = ", ".join(missing)
        detail = f"Error: requested test(s): [{listed}] were not found among possible test choices. "
        raise ended(NO_SUCH_TEST, asked, scenario, detail)


def _parameters(asked: Asked, scenario: Scenario) -> None:
    for full in asked.parameters:
        test, dot, name = full.partition(".")
        if not dot:
            continue
        if test not in ("software", *scenario.plugins):
            detail = (
                f"Invalid Parameter String: test '{test}' does not match any loaded tests. "
                "Check logs for plugin failures."
            )
            raise ended(NO_SUCH_TEST, asked, scenario, detail)
        if not known(test, name):
            detail = f"Invalid Parameter String: test '{test}' has no parameter '{name}'."
            raise ended(FAILED, asked, scenario, detail)
