"""Cases in which something was not measured, whatever exit code and summary say."""

from __future__ import annotations

from tests.standin.case import (
    CLOSED,
    EVERY_TEST,
    NO_RESULT,
    NOT_ALLOWED,
    OLD,
    OTHERS,
    Case,
    everywhere,
    on,
    shows,
    unmeasured,
)

NOTHING_RAN: tuple[Case, ...] = (
    Case(
        name="another-diag-running",
        trap="exit 222",
        scenario={"busy": True},
        follows=everywhere(unmeasured("another diagnostic")),
    ),
    Case(
        name="another-diag-running-3.3.9",
        trap="exit 222",
        scenario={**OLD, "busy": True},
        follows=everywhere(unmeasured("another diagnostic"), version="3.3.9"),
    ),
    Case(
        name="client-killed-before",
        trap="SIGKILL of dcgmi leaves its diagnostic running in the host engine",
        scenario={"state_file": "diag-is-running"},
        follows=everywhere(unmeasured("another diagnostic")),
        left_behind=True,
    ),
    Case(
        name="engine-paused",
        trap="exit 202",
        scenario={"host_engine": "paused"},
        follows=everywhere(unmeasured("host engine is paused")),
    ),
    Case(
        name="nvvs-missing",
        trap="exit 204",
        scenario={"nvvs": False},
        follows=everywhere(unmeasured("nvvs is missing")),
    ),
    Case(
        name="plugin-folder-missing",
        trap="exit 226 with runtime_error: 226 is not always a measured failure",
        scenario={"plugin_folder": False},
        follows=everywhere(unmeasured("no plug-ins")),
    ),
    Case(
        name="closed-plugins-missing",
        trap="a test that is named and not installed: exit 198",
        scenario={
            "plugins": ["memory", "pcie", "diagnostic", "nvbandwidth", "targeted_stress", "targeted_power", "memtest"]
        },
        follows={test: {OTHERS: unmeasured("package is missing")} for test in CLOSED},
    ),
    Case(
        name="mixed-models",
        trap="exit 233",
        scenario={"gpus": {"count": 8, "device_ids": ["2335"] * 7 + ["2330"]}},
        follows=everywhere(unmeasured("different models")),
    ),
    Case(
        name="no-gpu",
        trap="exit 226 with runtime_error",
        scenario={"gpus": {"count": 0}},
        follows=everywhere(unmeasured("no such GPU")),
    ),
    Case(
        name="runtime-error",
        trap="exit 226 with runtime_error in one test",
        scenario={"tests": {"diagnostic": {"runtime_error": "Error: the plug-in could not be started."}}},
        follows={"diagnostic": {OTHERS: unmeasured("diagnostic itself")}},
    ),
    Case(
        name="unknown-parameter",
        trap="a parameter that the test does not know: exit 226 with runtime_error",
        parameters={"memory": {"memory.nosuch": "1"}},
        follows={"memory": {OTHERS: unmeasured("command line")}},
    ),
    Case(
        name="killed",
        trap="nvvs killed by somebody: exit 203",
        scenario={"tests": {"targeted_stress": {"killed": True}}},
        follows={"targeted_stress": {OTHERS: unmeasured("stopped")}},
    ),
    Case(
        name="own-time-limit",
        trap="-t strikes: exit 245",
        scenario={"tests": {"targeted_power": {"hang": True}}},
        words={"targeted_power": ("-t", "300")},
        follows={"targeted_power": {OTHERS: unmeasured("time limit")}},
    ),
    Case(
        name="hang",
        trap="never ends; SIGTERM ends it with exit 203",
        scenario={"tests": {"targeted_power": {"hang": True}}},
        follows={"targeted_power": {OTHERS: unmeasured("stopped")}},
        hangs="targeted_power",
    ),
    Case(
        name="hang-deaf",
        trap="the host engine died under it: only SIGKILL ends dcgmi, nothing is printed",
        scenario={"tests": {"targeted_power": {"hang": "deaf"}}},
        follows={"targeted_power": {OTHERS: unmeasured("deadline")}},
        hangs="targeted_power",
    ),
    Case(
        name="host-unreachable",
        trap="the host did not answer: results are of the local machine, exit 0",
        words=dict.fromkeys(EVERY_TEST, ("--host", "gpu-07:5555")),
        follows=everywhere(unmeasured("gpu-07:5555")),
    ),
)
"""Runs that measured nothing, whatever their exit code."""

LEFT_OUT: tuple[Case, ...] = (
    Case(
        name="memory-held-by-others",
        trap="Skip without a word, exit 0",
        scenario={"tests": {"memory": {"all": {"status": "Skip"}}}},
        follows={"memory": {OTHERS: unmeasured("memory held by another process")}},
    ),
    Case(
        name="gpu-not-in-sku-file",
        trap="Skip without a word, exit 0, in all tests that need an entry",
        scenario={"sku_known": False},
        follows=everywhere(NOT_ALLOWED, but=("software", "memtest")),
    ),
    Case(
        name="skip-on-one-gpu",
        trap="one Skip among Pass: the summary is Pass",
        scenario=on("diagnostic", 2, status="Skip"),
        follows={"diagnostic": {2: NOT_ALLOWED}},
    ),
    Case(
        name="not-run",
        trap="4.x leaves a result that did not run out of its JSON",
        scenario=on("targeted_power", 5, status="Not Run"),
        follows={"targeted_power": {5: NO_RESULT}},
    ),
    Case(
        name="not-run-3.3.9",
        trap="3.x prints null for it",
        scenario={**OLD, **on("targeted_power", 5, status="Not Run")},
        follows={"targeted_power": {5: NO_RESULT}},
    ),
    Case(
        name="not-run-written",
        trap="the word itself",
        scenario=on("memtest", 0, written="Not Run"),
        follows={"memtest": {0: unmeasured("did not run")}},
    ),
    Case(
        name="null-result",
        trap="null among the results",
        scenario={"tests": {"memory": {"gpus": {"1": "null"}}}},
        follows={"memory": {1: NO_RESULT}},
    ),
    Case(
        name="result-missing",
        trap="one GPU has no result, the summary is Pass, exit 0",
        scenario={"tests": {"pcie": {"gpus": {"7": "absent"}}}},
        follows={"pcie": {7: NO_RESULT}},
    ),
    Case(
        name="gpu-missing",
        trap="DCGM sees seven GPUs and passes all of them",
        scenario={"gpus": {"count": 7}},
        follows={test: {7: NO_RESULT} for test in EVERY_TEST},
    ),
    Case(
        name="test-missing",
        trap="only the software checks are in the output, exit 0",
        scenario={"tests": {"nvbandwidth": {"absent": True}}},
        follows={"nvbandwidth": {OTHERS: NO_RESULT}},
    ),
    Case(
        name="strange-status",
        trap="a word that is no status",
        scenario=on("pulse_test", 4, written="Passed?"),
        follows={"pulse_test": {4: unmeasured("cannot be read")}},
    ),
    Case(
        name="cut-output",
        trap="the JSON breaks off",
        scenario={"tests": {"memtest": {"cut": 900}}},
        follows={"memtest": {OTHERS: unmeasured("breaks off")}},
    ),
    Case(
        name="exit-226-all-pass",
        trap="an exit code that no result explains",
        scenario={"tests": {"memory": {"exit": 226}}},
        follows={"memory": {OTHERS: unmeasured("226")}},
    ),
    Case(
        name="fp8-asked",
        trap="a number format that DCGM does not have is taken in silence, and its default runs without FP64",
        parameters={"diagnostic": {"diagnostic.precision": "fp8"}},
        follows={"diagnostic": {OTHERS: unmeasured("no fp8")}},
    ),
    Case(
        name="iterations-killed",
        trap="two JSON documents; the last entry is a copy of the pass before",
        scenario={"passes": [{}, {}, {"diagnostic": {"killed": True}}]},
        words={"diagnostic": ("--iterations", "3")},
        follows={"diagnostic": {OTHERS: unmeasured("stopped")}},
    ),
    Case(
        name="power-limit-too-low",
        trap="targeted_power skips itself: Skip with error 72, exit 0",
        scenario=shows(6, power_limit=500.0),
        follows={"targeted_power": {6: unmeasured("power limit set on GPU 6")}},
    ),
    Case(
        name="allocation-error-beside-pass",
        trap="Pass with an error beside it, which says that the memory was not tested",
        scenario=on("memory", 4, status="Pass", errors=[{"id": 56}]),
        follows={"memory": {4: unmeasured("another process on GPU 4")}},
    ),
)
"""Something was left out, and neither the exit code nor the summary need say so."""
