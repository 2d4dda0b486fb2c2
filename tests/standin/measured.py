"""Cases that DCGM passes, and those that it fails."""

from __future__ import annotations

from tests.standin.case import (
    AROUND,
    EVERY_TEST,
    OLD,
    OTHERS,
    UNBLAMED,
    WHOLE,
    Case,
    by_software,
    failed,
    on,
    shows,
    unmeasured,
)

HEALTHY: tuple[Case, ...] = (
    Case(name="healthy-4.6.0", trap="none"),
    Case(name="healthy-3.3.9", trap="none; software checks are tests of their own", scenario=OLD),
    Case(name="embedded-engine", trap="no nv-hostengine: dcgmi starts its own", scenario={"host_engine": "embedded"}),
    Case(
        name="text-around-json",
        trap="text before and after the JSON",
        scenario={"tests": dict.fromkeys(EVERY_TEST, AROUND)},
    ),
    Case(
        name="pcie-generation-3-not-in-p0",
        trap="generation and width are not looked at outside of P0: a Pass of pcie does not prove them",
        scenario=shows(3, generation=3, p0=False),
    ),
)
"""Nodes that DCGM passes; the last of them is not healthy, and only our own link clause can tell."""

SOFTWARE: tuple[Case, ...] = (
    Case(
        name="row-remap-failure",
        trap="shape (a): only the bad GPU fails",
        scenario=on("software", 3, errors=[{"id": 80}]),
        follows=by_software({3: failed("GPU 3 memory (row remapping failed)")}),
    ),
    Case(
        name="row-remap-pending-3.3.9",
        trap="level 1 of 3.x: gpu_id is a number, the text stands under `warnings`, healthy GPUs have no result",
        scenario={**OLD, **on("software", 5, errors=[{"id": 85}])},
        follows=by_software({5: failed("GPU 5 memory (row remap pending")}, version="3.3.9"),
    ),
    Case(
        name="reset-required",
        trap="shape (b): every GPU is Fail, only one has the error",
        scenario={
            "tests": {
                "software": {"all": {"status": "Fail"}, "gpus": {"1": {"status": "Fail", "errors": [{"id": 125}]}}}
            }
        },
        follows=by_software({1: failed("GPU 1 (a fault waits for recovery)"), OTHERS: UNBLAMED}),
    ),
    Case(
        name="sram-threshold",
        trap="shape (b) with exit 205",
        scenario={
            "tests": {
                "software": {"all": {"status": "Fail"}, "gpus": {"6": {"status": "Fail", "errors": [{"id": 118}]}}}
            }
        },
        follows=by_software({6: failed("GPU 6 memory"), OTHERS: UNBLAMED}),
    ),
    Case(
        name="fabric-in-progress",
        trap="shape (b): every GPU is Fail, the summary alone names the error",
        scenario={"tests": {"software": {"all": {"status": "Fail"}, "summary_errors": [{"id": 112}]}}},
        follows=by_software({WHOLE: failed("fabric manager"), OTHERS: UNBLAMED}),
    ),
    Case(
        name="device-node-missing",
        trap="shape (b), error 20",
        scenario={"tests": {"software": {"all": {"status": "Fail"}, "summary_errors": [{"id": 20}]}}},
        follows=by_software({WHOLE: failed("host configuration"), OTHERS: UNBLAMED}),
    ),
    Case(
        name="odd-cuda-variable",
        trap="shape (b), error 28",
        scenario={"tests": {"software": {"all": {"status": "Fail"}, "summary_errors": [{"id": 28}]}}},
        follows=by_software({WHOLE: failed("environment variable"), OTHERS: UNBLAMED}),
    ),
    Case(
        name="not-root-embedded",
        trap="shape (c): every GPU is Pass, the summary alone is Fail",
        scenario={"root": False, "host_engine": "embedded"},
        follows={
            **by_software({WHOLE: failed("rights of the account"), OTHERS: UNBLAMED}),
            "eud": {OTHERS: unmeasured("package is missing")},
        },
    ),
    Case(
        name="persistence-off",
        trap="Warn, which 4.x JSON prints as Fail; no GPU is broken",
        scenario={"tests": {"software": {"all": {"status": "Warn", "errors": [{"id": 29}]}}}},
        follows=by_software({OTHERS: failed("persistence mode")}),
    ),
)
"""Failing software checks."""

FAILS: tuple[Case, ...] = (
    Case(
        name="exit-0-with-fail",
        trap="exit code 0 beside a Fail",
        scenario={"tests": {"memory": {"exit": 0, "gpus": {"2": {"errors": [{"id": 58}]}}}}},
        follows={"memory": {2: failed("GPU 2 memory")}},
    ),
    Case(
        name="mismatch-beside-pass",
        trap="Pass with an error beside it",
        scenario=on("memory", 4, status="Pass", errors=[{"id": 58}]),
        follows={"memory": {4: failed("GPU 4 memory")}},
    ),
    Case(
        name="suppressed-error",
        trap="--ignoreErrorCodes: status Pass, the error stands in info",
        scenario=on("targeted_stress", 0, errors=[{"id": 41}]),
        words={"targeted_stress": ("--ignoreErrorCodes", "*:41")},
        follows={"targeted_stress": {0: failed("cooling of GPU 0")}},
    ),
    Case(
        name="unknown-error-id",
        trap="an error that our table does not have, and a text without meaning to us",
        scenario=on("memtest", 6, status="Fail", errors=[{"id": 940, "text": "Something new about GPU 6."}]),
        follows={"memtest": {6: failed("not in our table")}},
    ),
    Case(
        name="fail-without-error",
        trap="Fail and no reason",
        scenario=on("eud", 3, status="Fail"),
        follows={"eud": {3: failed("gives no reason")}},
    ),
    Case(
        name="summary-fails-alone",
        trap="every GPU is Pass, the summary is Fail without a reason, exit 226",
        scenario={"tests": {"pulse_test": {"summary": "Fail"}}},
        follows={"pulse_test": {WHOLE: failed("its summary says"), OTHERS: failed("its summary says")}},
    ),
    Case(
        name="cuda-error-beside-skip",
        trap="every GPU is Skip with error 51, the summary is Fail",
        scenario={"tests": {"pcie": {"all": {"status": "Skip", "errors": [{"id": 51}]}}}},
        follows={"pcie": {OTHERS: failed("CUDA on this host")}},
    ),
    Case(
        name="warn-printed-as-fail",
        trap="4.x JSON prints Warn as Fail",
        scenario=on("targeted_stress", 1, status="Warn", errors=[{"id": 43}]),
        follows={"targeted_stress": {1: failed("power or cooling of GPU 1")}},
    ),
    Case(
        name="warn-3.3.9",
        trap="3.x JSON prints Warn",
        scenario={**OLD, **on("targeted_stress", 1, status="Warn", errors=[{"id": 43}])},
        follows={"targeted_stress": {1: failed("power or cooling of GPU 1")}},
    ),
    Case(
        name="iterations-second-fails",
        trap="--iterations: it stops at the pass that fails",
        scenario={"passes": [{}, {"pcie": {"gpus": {"6": {"errors": [{"id": 104}]}}}}]},
        words={"pcie": ("--iterations", "3")},
        follows={"pcie": {6: failed("PCIe link of GPU 6")}},
    ),
    Case(
        name="pcie-generation-3",
        trap="DCGM's own floor is generation 3",
        scenario=shows(3, generation=3),
        follows={"pcie": {3: failed("PCIe path of GPU 3")}},
    ),
    Case(
        name="pcie-width-8",
        trap="only CONFIG to DCGM",
        scenario=shows(5, width=8),
        follows={"pcie": {5: failed("PCIe path of GPU 5")}},
    ),
    Case(
        name="pcie-slow",
        trap="DCGM has no floor for host copies of its own",
        scenario=shows(4, h2d=26.1, d2h=26.3, bidir=48.0),
        follows={"pcie": {4: failed("PCIe path of GPU 4")}},
    ),
    Case(
        name="nvlink-down",
        trap="a link is down: errors 14 and 99",
        scenario=shows(2, nvlinks_up=17, nvlinks_down=[3]),
        follows={"pcie": {2: failed("NVLink of GPU 2")}},
    ),
    Case(
        name="nvlinks-too-few",
        trap="links that are off are not down: only the expected number tells",
        scenario=shows(2, nvlinks_up=16),
        follows={"pcie": {2: failed("NVLink of GPU 2")}},
    ),
    Case(
        name="hbm-slow",
        trap="the packaged floor of the H200 is a thousand times too low",
        scenario=shows(6, memory_bandwidth=2500.0),
        follows={"memory_bandwidth": {6: failed("GPU 6 (slower than asked")}},
    ),
    Case(
        name="gflops-low",
        trap="without a tolerance no GPU is called slow",
        scenario=shows(0, gflops=101000.0),
        follows={"diagnostic": {0: failed("GPU 0 (slower than asked")}},
    ),
    Case(
        name="nan",
        trap="wrong results, exit 205",
        scenario=on("diagnostic", 5, errors=[{"id": 111}]),
        follows={"diagnostic": {5: failed("GPU 5 (wrong results")}},
    ),
    Case(
        name="faulty-memory",
        trap="wrong results, exit 205",
        scenario=on("diagnostic", 7, errors=[{"id": 52}]),
        follows={"diagnostic": {7: failed("GPU 7 (wrong results")}},
    ),
    Case(
        name="thermal-violation",
        trap="only MONITOR to DCGM",
        scenario=on("targeted_power", 4, errors=[{"id": 41}]),
        follows={"targeted_power": {4: failed("cooling of GPU 4")}},
    ),
    Case(
        name="thermal-violation-3.3.9",
        trap="gpu_id is a text, info is one text",
        scenario={**OLD, **on("memory", 4, errors=[{"id": 41}])},
        follows={"memory": {4: failed("cooling of GPU 4")}},
    ),
    Case(
        name="power-low",
        trap="error 63",
        scenario=shows(1, power_max=412.5, power_mean=398.2),
        follows={"targeted_power": {1: failed("GPU 1 (slower than asked")}},
    ),
    Case(
        name="stress-low",
        trap="error 50",
        scenario=on("targeted_stress", 2, errors=[{"id": 50}]),
        follows={"targeted_stress": {2: failed("GPU 2 (slower than asked")}},
    ),
    Case(
        name="xid",
        trap="error 101 in a long test",
        scenario=on("memtest", 3, errors=[{"id": 101}]),
        follows={"memtest": {3: failed("GPU 3 (Xid in the kernel log)")}},
    ),
)
"""Measured and failed."""
