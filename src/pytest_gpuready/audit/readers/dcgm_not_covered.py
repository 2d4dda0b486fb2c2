"""What a reader of a passing `dcgmi diag` could wrongly believe was proven.

Source: DCGM v4.6.0, plug-in defaults (nvvs/include/PluginStrings.h and plug-in sources) and nvvs/diag-skus.yaml.in.
"""

from __future__ import annotations

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.readers.dcgm_asked import DURATION_S, Asked
from pytest_gpuready.parse.dcgm_run import DiagRun, Status

_BLIND_BANDWIDTH = {"20b0": "137.5 GB/s", "2336": "127.5 GB/s", "2335": "2.3 GB/s", "26b5": "49 GB/s"}
"""Memory bandwidth floors of the packaged SKU file that lie far below any working card."""

_BLIND: dict[str, str] = {
    "pcie": "pcie: DCGM's floors are generation 3 and no bandwidth at all, so a Gen5 link at Gen3 passes; the link is "
    "looked at in P0 only",
    "diagnostic": "diagnostic: FP64, FP32 and FP16 only (no FP8, no BF16), and a slow GPU is not flagged unless "
    "gflops_tolerance_pcnt is set",
    "targeted_stress": "targeted_stress: the target is a floor well below a healthy card",
    "targeted_power": "targeted_power: 75 % of the target power is enough, 2 minutes by default",
    "memory_bandwidth": "memory_bandwidth: floors are 60 to 75 % of what the card can do",
    "nvbandwidth": "nvbandwidth: no floor at all, its figures stand in its own log only",
    "nccl_tests": "nccl_tests: no bandwidth floor unless NCCL_TESTS_MIN_BW was set, one run without arguments",
    "memory": "memory: one pass over 75 % of the memory is enough; not a burn-in",
    "memtest": "memtest: two of eleven patterns by default, 10 minutes",
}
_PARAMETERS_SHOWN = 20
_SOFTWARE_ONLY = "level 1 looks at software and settings: no memory, PCIe, NVLink or load was tested"


def not_covered(run: DiagRun, asked: Asked, expect: Expectations) -> tuple[str, ...]:
    """One sentence each, the most important first."""
    if not run.passes:
        return ()
    tests = [test for one in run.passes for test in one.tests]
    keys = {test.key for test in tests}
    said: list[str] = []
    if run.unreachable_host:
        said.append(f"{run.unreachable_host}: nothing in this output is about it")
    said += [
        f"{test} lasted {value[:40]} s by the command line, where DCGM's default is {default:g} s"
        for test, (value, default) in asked.short(DURATION_S).items()
        if test in keys
    ]
    said += [
        f"{name[:80]} was set to {value[:80]} on the command line: not the agreed default"
        for name, value in list(asked.parameters.items())[:_PARAMETERS_SHOWN]
        if name.partition(".")[0] in keys or name.endswith("is_allowed")
    ]
    if asked.configured:
        said.append("the limits that applied: a configuration file of its own was given on the command line")
    skipped = [t.name for t in tests if t.summary is Status.SKIP or any(r.status is Status.SKIP for r in t.results)]
    said += [f"skipped, so not tested: {', '.join(dict.fromkeys(skipped))}"] if skipped else []
    absent = [name for name in asked.of_level(run.version) if name not in keys]
    if absent:
        said.append(f"asked for, but absent from the output and so not tested: {', '.join(absent)} (package missing?)")
    software = {test.key for test in tests if test.software_check or test.key == "software"}
    hardware = keys - software
    if not hardware:
        said.append(_SOFTWARE_ONLY)
    if any(test.key in software and test.failed for test in tests) and not hardware:
        said.append("a failing software check stops the tests after it: they did not run")
    ran = {t.key for t in tests if any(r.status not in (Status.SKIP, Status.NOT_RUN) for r in t.results)}
    said += [text for key, text in _BLIND.items() if key in ran and not (key == "pcie" and _strict_pcie(asked))]
    devices = {e.device_id.lower() for one in run.passes for e in one.entities or ()}
    if "memory_bandwidth" in ran:
        said += [
            f"memory_bandwidth on device {device}: the packaged floor of {floor} is no check"
            for device, floor in _BLIND_BANDWIDTH.items()
            if device in devices
        ]
    if asked.ignored:
        said.append(f"errors ignored by --ignoreErrorCodes {asked.ignored}: they read Pass")
    if hardware and not keys & {"nccl_tests", "nvbandwidth"}:
        said.append("NVLink and NVSwitch bandwidth between GPUs was not tested")
    if len(run.passes) > 1 and not run.iterated:
        said.append("whether the several runs in this text are of one machine: they are read together")
    if expect.count("expected_gpus") is None and expect.count("gpus_per_node") is None:
        said.append("whether all GPUs of the node are in the output: expected_gpus was not given")
    return tuple(said)


def _strict_pcie(asked: Asked) -> bool:
    return any(name.startswith("pcie.") and name.endswith("min_pci_generation") for name in asked.parameters)
