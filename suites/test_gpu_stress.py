"""The built-in engine: memory, matrix products in every format, patterns, pulses and burn-in, every result checked."""

import pytest


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-1")
def test_memory_ended(measured, require):
    """The load of memory and caches runs to its end."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-2")
def test_memory_allocated(measured, require):
    """Nearly all memory can be taken and written."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-3")
def test_memory_wrong(measured, require):
    """Every word of memory is read as it was written, in the short form."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-4")
def test_cache_l1(measured, require):
    """No word in the L1 caches changes by itself."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-5")
def test_cache_l2(measured, require):
    """No word in the L2 cache changes by itself."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-6")
def test_hbm_read(measured, require):
    """The memory is read as fast as agreed."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-7")
def test_hbm_write(measured, require):
    """The memory is written as fast as agreed."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-8")
def test_hbm_copy(measured, require):
    """The memory is copied as fast as agreed."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-9")
def test_hbm_triad(measured, require):
    """Triad over the memory is as fast as agreed."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-65")
def test_hbm_share(measured, require):
    """The memory is as fast as its clock and width let expect."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-66")
def test_latency_host(measured, require):
    """The GPU waits no longer for host memory than its peers."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("STRESS-67")
def test_latency_device(measured, require):
    """The GPU waits no longer for its own memory than its peers."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-10")
def test_gemm_ended(measured, require):
    """The load of matrix products runs to its end."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-11")
def test_gemm_reasons(measured, require):
    """Nothing but the power cap slows a GPU under full load."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-12")
def test_gemm_power(measured, require):
    """The GPU draws the power that it is made for."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-13")
def test_gemm_digests(measured, require):
    """All GPUs of the node compute the same bits."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-14")
def test_fp64_wrong(measured, require):
    """Every FP64 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-15")
def test_fp64_sustained(measured, require):
    """FP64 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-16")
def test_fp64_per_clock(measured, require):
    """FP64 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-17")
def test_fp64_per_watt(measured, require):
    """FP64 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-18")
def test_tf32_wrong(measured, require):
    """Every TF32 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-19")
def test_tf32_sustained(measured, require):
    """TF32 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-20")
def test_tf32_per_clock(measured, require):
    """TF32 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-21")
def test_tf32_per_watt(measured, require):
    """TF32 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-22")
def test_bf16_wrong(measured, require):
    """Every BF16 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-23")
def test_bf16_sustained(measured, require):
    """BF16 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-24")
def test_bf16_per_clock(measured, require):
    """BF16 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-25")
def test_bf16_per_watt(measured, require):
    """BF16 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-26")
def test_fp16_wrong(measured, require):
    """Every FP16 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-27")
def test_fp16_sustained(measured, require):
    """FP16 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-28")
def test_fp16_per_clock(measured, require):
    """FP16 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-29")
def test_fp16_per_watt(measured, require):
    """FP16 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-30")
def test_fp8_e4m3_wrong(measured, require):
    """Every FP8 E4M3 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-31")
def test_fp8_e4m3_sustained(measured, require):
    """FP8 E4M3 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-32")
def test_fp8_e4m3_per_clock(measured, require):
    """FP8 E4M3 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-33")
def test_fp8_e4m3_per_watt(measured, require):
    """FP8 E4M3 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-34")
def test_fp8_e5m2_wrong(measured, require):
    """Every FP8 E5M2 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-35")
def test_fp8_e5m2_sustained(measured, require):
    """FP8 E5M2 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-36")
def test_fp8_e5m2_per_clock(measured, require):
    """FP8 E5M2 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-37")
def test_fp8_e5m2_per_watt(measured, require):
    """FP8 E5M2 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-38")
def test_int8_wrong(measured, require):
    """Every INT8 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-39")
def test_int8_sustained(measured, require):
    """INT8 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-40")
def test_int8_per_clock(measured, require):
    """INT8 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-41")
def test_int8_per_watt(measured, require):
    """INT8 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-42")
def test_mxfp8_wrong(measured, require):
    """Every MXFP8 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-43")
def test_mxfp8_sustained(measured, require):
    """MXFP8 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-44")
def test_mxfp8_per_clock(measured, require):
    """MXFP8 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-45")
def test_mxfp8_per_watt(measured, require):
    """MXFP8 products over power are recorded."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-46")
def test_fp4_wrong(measured, require):
    """Every FP4 product is right."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-47")
def test_fp4_sustained(measured, require):
    """FP4 products are as fast as agreed at the power limit."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-48")
def test_fp4_per_clock(measured, require):
    """FP4 products are as fast as agreed at the clock they ran at."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("STRESS-49")
def test_fp4_per_watt(measured, require):
    """FP4 products over power are recorded."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-50")
def test_patterns_ended(measured, require):
    """The memory patterns run to their end."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-51")
def test_patterns_wrong(measured, require):
    """Every word of memory is read as it was written, under all patterns."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-52")
def test_patterns_rate(measured, require):
    """The rate of the slowest pattern is recorded."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-53")
def test_pulse_ended(measured, require):
    """The load in pulses runs to its end."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-54")
def test_pulse_wrong(measured, require):
    """No product in pulses is wrong."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-55")
def test_pulse_reasons(measured, require):
    """Pulses meet no power brake, no slowdown and no heat."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-56")
def test_pulse_swing(measured, require):
    """The power follows the load."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-57")
def test_burn_ended(measured, require):
    """The burn-in runs to its end."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-58")
def test_burn_wrong(measured, require):
    """No product and no word of memory of the burn-in is wrong."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-59")
def test_burn_reasons(measured, require):
    """No heat, slowdown or power brake in the burn-in."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-60")
def test_burn_power(measured, require):
    """The GPU holds its power through the burn-in."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-61")
def test_burn_margin(measured, require):
    """The GPU stays clear of its slowdown temperature."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-62")
def test_burn_hot(measured, require):
    """The time near the slowdown temperature is recorded."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-63")
def test_burn_clocks(measured, require):
    """The spread of the SM clock is recorded."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("STRESS-64")
def test_burn_drift(measured, require):
    """How the temperature moves in the last minute of the burn-in is recorded."""
    require(measured)
