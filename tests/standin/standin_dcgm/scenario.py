"""The scenario file: which GPUs there are, what DCGM is installed, and what each test says of each GPU.

YAML, or JSON (which needs no PyYAML). Every key has a default, so `{}` is a healthy node of eight H200 under DCGM
4.6.0. An unknown key is refused: a misspelt fault would be a healthy node.

    version: "4.6.0"             or "3.3.9"
    driver: "580.159.04"         " stand-in" is added where it is printed
    time_scale: 0.0              seconds waited per second of DCGM's; 0: no time passes
    gpus: {count, device_id, name, serials, device_ids, bus_ids}     serials: list, "" leaves one out
    measured: {all: {..}, gpus: {3: {..}}}     what the GPUs would show to the tests, see MEASURED
    sku_known: true              false: the packaged configuration does not know this GPU, tests are skipped
    plugins: [..]                tests whose plug-in is loaded; left out: all of this version but nccl_tests and rist
    plugin_folder: true          false: no folder for the driver's CUDA version
    nvvs: true
    root: true
    host_engine: running         or embedded (none runs), paused
    hosts: []                    hosts that answer to --host, as it is written on the command line
    busy: false                  true: another diagnostic is running
    state_file: path             relative to the scenario's folder; there while a diagnostic runs; what SIGKILL
                                 leaves of it keeps the engine busy
    after_failed_software: absent    or run: what becomes of the tests after the software checks failed
    tests: {name: {..}}          see below; 4.x names also for 3.3.9, "software" for the checks of level 1
    passes: [{name: {..}}, ..]   for --iterations: what differs from `tests` in that pass
    health: {overall, gpus: {1: {Driver: {health, lines: [..]}}}}

    A test: {all: RESULT, gpus: {3: RESULT}, summary: Fail, summary_errors: [..], absent, seconds, hang, killed,
    runtime_error: text, exit: code, before: text, after: text, cut: characters}
    RESULT: {status: Pass|Fail|Warn|Skip|Not Run, errors: [{id, text, values}], info: [..], written: word}, or "null"
    (a result that is null), or "absent" (no result). `written` is printed as the status whatever it is.
    hang: true (never ends, heeds signals) or "deaf" (only SIGKILL ends it). killed: nvvs is killed in this test.
    exit, before, after and cut (so much of stdout is printed, the rest is lost) of the tests that the command names
    hold for the whole run, those of "software" for a run of level 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VARIABLE = "GPUREADY_DCGMI_SCENARIO"
MARK = "stand-in"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYS = _words(
    "version driver time_scale gpus measured sku_known plugins plugin_folder nvvs root host_engine hosts busy "
    "state_file after_failed_software tests passes health"
)
TEST_KEYS = _words("all gpus summary summary_errors absent seconds hang killed runtime_error exit before after cut")
RESULT_KEYS = _words("status errors info written")
ERROR_KEYS = _words("id text values")

# What a healthy H200 shows; figures as recorded.
MEASURED: dict[str, Any] = {
    "generation": 5,
    "width": 16,
    "p0": True,  # DCGM reads generation and width only while the GPU is in P0
    "d2h": 55.19,  # GB/s
    "h2d": 54.64,
    "bidir": 99.30,
    "d2h_us": 2.350,
    "h2d_us": 2.458,
    "bidir_us": 4.631,
    "nvlinks_up": 18,
    "nvlinks_down": [],  # links that DCGM calls down
    "memory_bytes": 148059826398,
    "memory_percent": 98.6,
    "memory_bandwidth": 3900.0,  # GB/s
    "gflops": 144678.79,  # a mean over the number formats that ran
    "stress": 15599,
    "power_max": 699.7,  # W
    "power_mean": 675.6,
    "power_limit": 700.0,
}

TESTS_4 = (
    "memory",
    "diagnostic",
    "pulse_test",
    "nvbandwidth",
    "nccl_tests",
    "rist",
    "pcie",
    "targeted_stress",
    "targeted_power",
    "memory_bandwidth",
    "memtest",
    "eud",
    "context_create",
)
"""Tests above level 1 in the order in which they are printed."""
ONLY_WITH_VARIABLE = ("nccl_tests", "rist")
"""Tests that need a variable of the host engine; loaded only where the scenario's `plugins` names them."""
TESTS_3 = tuple(name for name in TESTS_4 if name not in ("nvbandwidth", *ONLY_WITH_VARIABLE))


class ScenarioError(Exception):
    """The scenario file cannot be used; the text says where and why."""


class Scenario:
    """A scenario with its defaults filled in."""

    def __init__(self, data: dict[str, Any], folder: Path = Path()) -> None:
        _known(data, KEYS, "scenario")
        self.version = str(data.get("version", "4.6.0"))
        self.old = self.version.startswith("3.")
        driver = str(data.get("driver", "580.159.04"))
        self.driver = driver if MARK in driver else f"{driver} {MARK}"
        self.time_scale = float(data.get("time_scale", 0.0))
        gpus = data.get("gpus", {})
        _known(gpus, _words("count device_id name serials device_ids bus_ids"), "gpus")
        self.count = int(gpus.get("count", 8))
        self.device_ids: list[str] = gpus.get("device_ids") or [str(gpus.get("device_id", "2335"))] * self.count
        self.serials: list[str] = gpus.get("serials") or [f"165000000{n:04d}" for n in range(self.count)]
        self.bus_ids: list[str] = gpus.get("bus_ids") or [f"00000000:{n + 1:x}0:00.0" for n in range(self.count)]
        self.name = f"{gpus.get('name', 'NVIDIA H200')} {MARK}"
        for what in ("device_ids", "serials", "bus_ids"):
            if len(getattr(self, what)) != self.count:
                raise ScenarioError(f"gpus.{what}: expected {self.count}, found {len(getattr(self, what))}")
        self._measured: dict[str, Any] = data.get("measured", {})
        _known(self._measured, frozenset(("all", "gpus")), "measured")
        self.sku_known = bool(data.get("sku_known", True))
        self.every_test = TESTS_3 if self.old else TESTS_4
        self.plugins = tuple(data.get("plugins", (n for n in self.every_test if n not in ONLY_WITH_VARIABLE)))
        self.plugin_folder = bool(data.get("plugin_folder", True))
        self.nvvs = bool(data.get("nvvs", True))
        self.root = bool(data.get("root", True))
        self.host_engine = str(data.get("host_engine", "running"))
        self.hosts: list[str] = data.get("hosts", [])
        self.busy = bool(data.get("busy", False))
        self.state_file = folder / str(data["state_file"]) if data.get("state_file") else None
        self.after_failed_software = str(data.get("after_failed_software", "absent"))
        self._tests: dict[str, dict[str, Any]] = data.get("tests", {})
        self._passes: list[dict[str, dict[str, Any]]] = data.get("passes", [])
        self.health: dict[str, Any] = data.get("health", {})
        for where, tests in (("tests", self._tests), *((f"passes[{i}]", one) for i, one in enumerate(self._passes))):
            for name, test in tests.items():
                _check_test(name, test, f"{where}.{name}")
        if self.host_engine not in ("running", "embedded", "paused"):
            raise ScenarioError(f"host_engine: expected running, embedded or paused, found {self.host_engine!r}")

    def test(self, name: str, number: int) -> dict[str, Any]:
        """What is said of a test in pass `number`, counted from 0."""
        own = self._passes[number].get(name, {}) if number < len(self._passes) else {}
        return {**self._tests.get(name, {}), **own}

    def measured(self, gpu: int) -> dict[str, Any]:
        """What this GPU shows to the tests."""
        own = self._measured.get("gpus", {})
        found = {**MEASURED, **self._measured.get("all", {}), **own.get(gpu, own.get(str(gpu), {}))}
        _known(found, frozenset(MEASURED), f"measured of GPU {gpu}")
        return found

    @property
    def mixed(self) -> bool:
        """Whether the GPUs are not all of one model."""
        return len(set(self.device_ids)) > 1


def load(path: str) -> Scenario:
    """The scenario of a file.

    Raises:
        ScenarioError: it cannot be read, or holds what is not known.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    data: Any
    if text.lstrip().startswith("{"):
        data = json.loads(text)
    else:
        import yaml  # JSON scenarios do without it

        data = yaml.safe_load(text) or {}
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: expected keys and values")
    return Scenario(data, Path(path).parent)


def _check_test(name: str, test: dict[str, Any], where: str) -> None:
    if name not in ("software", *TESTS_4):
        raise ScenarioError(f"{where}: no such test")
    _known(test, TEST_KEYS, where)
    results = [("all", test.get("all", {})), *(("gpus", one) for one in test.get("gpus", {}).values())]
    errors = list(test.get("summary_errors", []))
    for key, result in results:
        if isinstance(result, dict):
            _known(result, RESULT_KEYS, f"{where}.{key}")
            errors += result.get("errors", [])
        elif result not in ("null", "absent"):
            raise ScenarioError(f"{where}.{key}: expected a result, null or absent, found {result!r}")
    for error in errors:
        _known(error, ERROR_KEYS, f"{where}: error")


def _known(found: dict[str, Any], known: frozenset[str], where: str) -> None:
    strange = sorted(str(key) for key in found if key not in known)
    if strange:
        raise ScenarioError(f"{where}: unknown {', '.join(strange)}")
