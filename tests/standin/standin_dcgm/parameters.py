"""Names of the parameters that each test takes; a name that is not here is refused by what runs the tests.

Source: the tests' plug-ins of v4.6.0; of the closed ones (memory_bandwidth, pulse_test, eud) what is documented.
"""

from __future__ import annotations

_COMMON = ("is_allowed", "suite_level", "logfile", "logfile_type")
_LOADS = "temperature_max max_sbe_errors max_memory_clock max_graphics_clock cuda_streams_per_gpu use_dgemm"
_POWER = (
    "target_power target_power_min_ratio target_power_max_ratio moving_average_periods target_movavg_min_ratio "
    "target_movavg_max_ratio fail_on_clock_drop use_dgemv readjust_interval starting_matrix_dim max_matrix_dim "
    "ops_per_requeue enforced_power_limit enable_fp16_gemm fp64_gemm_ratio fp16_gemm_ratio"
)
_L1 = "test_duration test_loops inner_iterations log_len dump_miscompares l1cache_size_kb_per_sm"
_SWITCHES = "test_pinned test_unpinned test_p2p_on test_p2p_off test_broken_p2p test_with_gemm test_nvlink_status"
_PCIE = (
    "disable_tests gpu_nvlinks_expected_up nvswitch_nvlinks_expected_up max_pcie_replays max_pcie_correctable_errors "
    "max_nvlink_recovery_errors nvlink_crc_error_threshold check_non_fatal aer_threshold parallel_bw_check_duration "
    "dont_bind_numa"
)
_SOFTWARE = "require_persistence_mode skip_device_test check_file_creation do_test"
_MEMTEST = "test_duration num_chunks use_mapped_mem pattern minimum_allocation_percentage"
_DIAGNOSTIC = (
    "test_duration precision use_doubles matrix_dim gflops_tolerance_pcnt tolerance_pcnt clocks_tolerance_pcnt "
    "power_tolerance_pcnt always_use_tensor"
)

NAMES: dict[str, frozenset[str]] = {
    test: frozenset((*_COMMON, *words.split()))
    for test, words in {
        "software": _SOFTWARE,
        "memory": f"minimum_allocation_percentage max_free_memory_mb l1_is_allowed {_L1}",
        "pcie": f"{_SWITCHES} {_PCIE}",
        "diagnostic": f"{_DIAGNOSTIC} {_LOADS}",
        "memory_bandwidth": "minimum_bandwidth memory_size_mb max_sbe_errors",
        "targeted_stress": f"test_duration target_stress target_perf_min_ratio ops_per_stream_queue max_pcie_replays "
        f"always_use_tensor {_LOADS}",
        "targeted_power": f"test_duration {_POWER} {_LOADS}",
        "nvbandwidth": "testcases",
        "nccl_tests": "",
        "memtest": " ".join((_MEMTEST, *(f"test{n}" for n in range(11)))),
        "pulse_test": "test_duration current_iteration total_iterations patterns display_patterns",
        "eud": "full_profile passthrough_args parse_mle",
        "context_create": "ignore_exclusive",
    }.items()
}

SUBTESTS = (
    *(f"h2d_d2h_{how}_{kind}" for how in ("single", "concurrent", "latency") for kind in ("pinned", "unpinned")),
    *(
        f"{what}_p2p_{state}"
        for what in ("p2p_bw", "p2p_bw_concurrent", "1d_exch_bw", "p2p_latency")
        for state in ("enabled", "disabled")
    ),
    "broken_p2p",
)
"""Sub-tests of pcie, with parameters of their own."""

OF_A_SUBTEST = frozenset(
    ("num_ints_per_copy", "iterations", "min_bandwidth", "max_latency", "min_pci_generation", "min_pci_width")
)


def known(test: str, name: str) -> bool:
    """Whether the test takes this parameter (of a sub-test as "broken_p2p.min_bandwidth")."""
    first, dot, rest = name.partition(".")
    if dot:
        return test == "pcie" and first in SUBTESTS and rest in OF_A_SUBTEST
    return name in NAMES.get(test, ())
