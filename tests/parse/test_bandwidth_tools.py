"""iperf3, nvbandwidth, gpu-burn and nccl-tests JSON: what each format hides, and documents damaged in any way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.gpu_burn import gpu_burn
from pytest_gpuready.parse.iperf3 import iperf3
from pytest_gpuready.parse.nccl_tests_json import nccl_tests_json
from pytest_gpuready.parse.nvbandwidth import nvbandwidth

DATA = Path(__file__).parents[1] / "data" / "nccl"
NVB = (DATA / "h200x1" / "nvbandwidth.json").read_text(encoding="utf-8")
NCCL = (DATA / "h200x2" / "all_reduce_perf.json").read_text(encoding="utf-8")
CLIENT = """Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  55.0 GBytes  47.2 Gbits/sec   12             sender
[  5]   0.00-10.00  sec  54.9 GBytes  47.1 Gbits/sec                  receiver
[  7]   0.00-10.00  sec  55.0 GBytes  47.2 Gbits/sec    1             sender
[  7]   0.00-10.00  sec  54.9 GBytes  47.1 Gbits/sec                  receiver
[SUM]   0.00-10.00  sec   110 GBytes  94.4 Gbits/sec   13             sender
[SUM]   0.00-10.00  sec   110 GBytes  94.2 Gbits/sec                  receiver

iperf Done.
"""
SUMS: dict[str, Any] = {
    "sum_sent": {"seconds": 10.0, "bytes": 125 * 10**8, "bits_per_second": 10e9, "retransmits": 4},
    "sum_received": {"seconds": 10.0, "bytes": 125 * 10**8, "bits_per_second": 10e9},
}
BURN = (
    "Burning for 60 seconds.\n100.0%  proc'd: 300 (347000 Gflop/s) - 326 (347100 Gflop/s)   errors: 0 - 0   "
    "temps: 56 C - -- \nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
)


def document(**end: Any) -> str:
    return json.dumps({"start": {"version": "iperf 3.16", "test_start": {"protocol": "TCP"}}, "end": end})


def test_iperf3_text_is_read_by_its_sum() -> None:
    """Several streams are judged by [SUM], what arrived by the receiver's row, and no end is no test."""
    (flow,) = iperf3(CLIENT).flows
    assert (flow.rate_gbit_per_s, flow.retransmits, flow.seconds) == (94.2, 13, 10.0)
    with pytest.raises(ParseError, match="cut short"):
        iperf3(CLIENT.replace("iperf Done.", ""))


def test_iperf3_text_of_udp_has_no_retransmits() -> None:
    """The jitter that stands where TCP has its retransmits is none."""
    rows = CLIENT.replace("   12             sender", "  0.000 ms  0/9 (0%)  sender").split("[  7]")[0]
    test = iperf3(rows.replace("Bitrate         Retr", "Bitrate  Jitter  Lost/Total Datagrams") + "iperf Done.\n")
    assert (test.protocol, test.flows[0].retransmits, test.flows[0].rate_gbit_per_s) == ("UDP", None, 47.1)


def test_iperf3_knows_both_directions_and_streams_of_events() -> None:
    """--bidir has two flows; --json-stream is the same document in events."""
    both = document(**SUMS, sum_sent_bidir_reverse=SUMS["sum_sent"], sum_received_bidir_reverse=SUMS["sum_received"])
    assert [flow.name for flow in iperf3(both).flows] == ["", "reverse"]
    whole = json.loads(document(**SUMS))
    stream = "\n".join(json.dumps({"event": key, "data": value}) for key, value in whole.items())
    assert iperf3(stream).flows == iperf3(document(**SUMS)).flows
    with pytest.raises(ParseError, match="no end"):
        iperf3(stream.splitlines()[0])


def test_iperf3_does_not_take_an_unknown_side_for_zero() -> None:
    """A server in a reversed test writes zeros for what it cannot know: that rate is not said."""
    sums = {**SUMS, "sum_received": {"seconds": 10.0, "bytes": 0, "bits_per_second": 0.0}}
    assert iperf3(document(**sums)).flows[0].rate_gbit_per_s is None
    odd = {**SUMS, "sum_received": {**SUMS["sum_received"], "bits_per_second": 90e9}}
    with pytest.raises(ParseError, match="from bytes and seconds"):
        iperf3(document(**odd))


def test_nvbandwidth_takes_the_last_of_stacked_matrices() -> None:
    """A bidirectional test of 2 GPUs has 3 x 2 rows; the last two are the total that the sum belongs to."""
    rows = [["N/A", "390"], ["391", "N/A"], ["N/A", "392"], ["393", "N/A"], ["N/A", "782"], ["784", "N/A"]]
    case = {"name": "device_to_device_bidirectional_memcpy_read_ce", "status": "Passed", "sum": 1566.0,
            "bandwidth_description": "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
            "bandwidth_matrix": rows}  # fmt: skip
    (made,) = nvbandwidth(json.dumps({"nvbandwidth": {"testcases": [case]}})).cases
    assert (made.values, made.by_gpu(), made.unit) == ((782.0, 784.0), (784.0, 782.0), "GB/s")
    with pytest.raises(ParseError, match="beside the matrix"):
        nvbandwidth(json.dumps({"nvbandwidth": {"testcases": [{**case, "sum": 1000.0}]}}))


def test_nvbandwidth_counts_a_failed_test_once() -> None:
    """Running and Error of one test are one Error."""
    cases = [{"name": "x", "status": "Running"}, {"name": "x", "status": "Error", "error": "boom"}]
    assert [c.status for c in nvbandwidth(json.dumps({"nvbandwidth": {"testcases": cases}})).cases] == ["Error"]


def test_gpu_burn_reads_a_missing_temperature_as_missing() -> None:
    """`--` is no temperature, and the verdicts are those of the end."""
    burn = gpu_burn(BURN.splitlines())
    assert (burn.tested, burn.gpus[0].hottest_celsius, burn.gpus[1].hottest_celsius) == (2, 56, None)
    with pytest.raises(ParseError, match="two ends"):
        gpu_burn([*BURN.splitlines(), "Tested 2 GPUs:"])


def test_nccl_json_keeps_no_secrets() -> None:
    """The whole environment is in the document; only NCCL's own variables are kept."""
    document = nccl_tests_json(NCCL.replace('"env": [', '"env": ["TOKEN=hunter2",'))
    assert document.environment == {"NCCL_NVLS_ENABLE": "0"}
    assert (document.ranks, document.complete) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"okay": "true"', '"okay": "maybe"', "maybe"),
        ('"nthreads": 1', '"nthreads": "one"', "one"),
        ('"version": 3', '"version": 3, "version": 3', "twice"),
        ('"nccl_version"', '"version_of_nccl"', "found none"),
    ],
)
def test_nccl_json_of_another_shape_is_refused(old: str, new: str, message: str) -> None:
    """A value of another kind, a key twice or another document raise one line."""
    with pytest.raises(ParseError, match=message):
        nccl_tests_json(NCCL.replace(old, new, 1))


def test_nccl_json_closed_early_is_not_complete() -> None:
    """A newer build closes the document of a run that died, without totals: it is not complete."""
    data = json.loads(NCCL)
    del data["out_of_bounds"], data["average_bus_bandwidth"]
    early = nccl_tests_json(json.dumps(data))
    assert (early.complete, early.missing) == (False, ("out_of_bounds", "average_bus_bandwidth"))


READS: list[tuple[str, Callable[[str], object]]] = [
    (NCCL, nccl_tests_json),
    (NVB, nvbandwidth),
    (document(**SUMS), iperf3),
    (CLIENT, iperf3),
    (BURN, lambda text: gpu_burn(text.splitlines())),
]


def refused(parse: Callable[[str], object], text: str) -> str:
    """What the parser says against the text, "" where it reads it; anything but ParseError goes through."""
    try:
        parse(text)
    except ParseError as error:
        return str(error)
    return ""


IDS = ["nccl-json", "nvbandwidth", "iperf3", "iperf3-text", "gpu-burn"]


@pytest.mark.parametrize(("text", "parse"), READS, ids=IDS)
def test_every_cut_is_read_or_refused(text: str, parse: Callable[[str], object]) -> None:
    """Cut after every line and in many other places: a reading, or one line against it."""
    places = {i for i, c in enumerate(text) if c == "\n"} | set(range(0, len(text), max(1, len(text) // 150)))
    assert refused(parse, text) == ""
    assert not any("\n" in refused(parse, text[:place]) for place in places)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
@pytest.mark.parametrize(("text", "parse"), READS, ids=IDS)
def test_any_damage_is_read_or_refused(text: str, parse: Callable[[str], object], seed: int, changes: int) -> None:
    """Characters changed, doubled or lost: a reading, or a line that says what was expected."""
    rng, characters = random.Random(seed), list(text)
    pieces = ["", "9", "-", '"', "{", "]", "null", "1e999", "\x00", "true"]
    for _ in range(changes):
        at = rng.randrange(len(characters))
        characters[at : at + rng.randint(0, 2)] = rng.choice(pieces)
    said = refused(parse, "".join(characters))
    assert said == "" or "expected" in said
