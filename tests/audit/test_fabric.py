"""The fabric readers: each case to its right reading, cut and damaged outputs never to a pass that is not earned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ethtool import parse_ethtool
from pytest_gpuready.parse.perfquery import parse_perfquery
from tests.audit.case_reading import (
    CASES,
    check_case,
    damaged,
    every_cut,
    outcome,
    read_text,
    survives,
    suspects,
    values,
)


def ibstat(*ports: tuple[str, str, str, str], layer: str = "InfiniBand") -> str:
    """An ibstat of ports (name, state, physical state, rate)."""
    return "".join(
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.41.1000\n\tHardware version: 0\n"
        f"\tNode GUID: 0xa088c20300100000\n\tSystem image GUID: 0xa088c20300100000\n\tPort 1:\n\t\tState: {state}\n"
        f"\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 1\n\t\tLMC: 0\n\t\tSM lid: 3\n"
        f"\t\tCapability mask: 0xa751e848\n\t\tPort GUID: 0xa088c20300100000\n\t\tLink layer: {layer}\n"
        for name, state, physical, rate in ports
    )


GOOD = [(f"mlx5_{i}", "Active", "LinkUp", "400") for i in range(8)]
RAILS = {"fabric": "infiniband", "expected_ports": 8, "expected_rate_gbit_per_s": 400}


def test_a_slow_port_among_active_ones_is_found() -> None:
    """Case 063: all ports are Active and one runs at half rate, which newer tools print twice."""
    found = check_case("063")
    assert {f.part: f.value for f in found if f.metric == "ib.rate" and f.outcome == "fail"} == {"mlx5_5": 200}
    assert values(found, "ib.ports_at_rate") == [7]
    assert "cable or transceiver of mlx5_5" in suspects(found)
    assert "switch port split in two" in suspects(found)


def test_no_subnet_manager_is_one_cause() -> None:
    """Case 064: eight trained ports that wait for a subnet manager are one finding, not eight cables."""
    found = check_case("064")
    assert values(found, "ib.ports_initializing") == [8]
    assert values(found, "ib.sm_lid") == [0]
    assert [f.metric for f in found if f.outcome == "fail"] == ["ib.ports_active"]
    assert "subnet manager not running or not reachable (one cause), not eight cables" in suspects(found)


def test_a_polling_port_is_one_finding_without_its_nominal_rate() -> None:
    """Case 065: Polling is a cable, the nominal rate of a down port is nobody's fault, disabled it is not."""
    found = check_case("065")
    assert {f.part: f.value for f in found if f.metric == "ib.phys_state"} == {"mlx5_3": "Polling"}
    assert values(found, "ib.ports_active") == [7]
    assert not [f for f in found if f.metric == "ib.rate" and f.part == "mlx5_3"]
    assert "cable, transceiver or switch port of mlx5_3" in suspects(found)
    assert "disabled" not in suspects(found)


def test_the_number_counts_and_not_the_label_and_disabled_is_configuration() -> None:
    """Case 067: 400 Gb/s labelled EDR is 400; disabled ports are no cable fault."""
    found = check_case("067")
    assert values(found, "ib.ports_active") == [2]
    assert set(values(found, "ib.rate")) == {400}
    assert {f.part for f in found if f.value == "Disabled"} == {"mlx5_1", "mlx5_7"}
    assert "configuration: ports mlx5_1 and mlx5_7 disabled" in suspects(found)
    assert "cable" not in suspects(found)


def test_ports_of_another_layer_are_no_rails(tmp_path: Path) -> None:
    """Ethernet ports beside InfiniBand rails are neither slow nor down rails, and the other way round."""
    eth = ibstat(("mlx5_bond_0", "Active", "LinkUp", "100"), ("mlx5_9", "Down", "Disabled", "40"), layer="Ethernet")
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*GOOD) + eth, RAILS)) == "pass"
    roce = ibstat(*GOOD, layer="Ethernet") + ibstat(("mlx5_8", "Down", "Polling", "10"))
    assert outcome(read_text(tmp_path, "ibstat", roce, RAILS | {"fabric": "roce"})) == "pass"
    assert outcome(read_text(tmp_path, "ibstat", roce, RAILS)) == "fail"


def test_one_more_port_than_expected_is_no_fault_and_one_fewer_is(tmp_path: Path) -> None:
    """Rails are as many good ports as expected; with one missing, the one in doubt is named."""
    extra = [*GOOD, ("mlx5_8", "Active", "LinkUp", "200")]
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*extra), RAILS)) == "pass"
    reading = read_text(tmp_path, "ibstat", ibstat(*extra[1:]), RAILS)
    assert outcome(reading) == "fail"
    assert "mlx5_8" in suspects(list(reading.findings))
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*GOOD[1:]), RAILS)) == "fail"


def test_without_an_expectation_ports_are_observed(tmp_path: Path) -> None:
    """A state is no judgement: what should be there was not said."""
    text = ibstat(*GOOD, ("mlx5_8", "Down", "Disabled", "10"))
    assert outcome(read_text(tmp_path, "ibstat", text, {})) == "observed"


def test_a_tool_that_failed_or_another_question_is_not_measured(tmp_path: Path) -> None:
    """No adapter, a bad exit code and an expectation of another tool each leave the input not measured."""
    assert outcome(read_text(tmp_path, "ibstat", "", RAILS, exit_code=0)) == "not-measured"
    panic = "ibpanic: [812] main: can't list IB device names: (No such file or directory)\n"
    assert outcome(read_text(tmp_path, "ibstat", panic, RAILS, exit_code=255)) == "not-measured"
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*GOOD), RAILS, exit_code=255)) == "not-measured"
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*GOOD), RAILS | {"max_symbol_errors": 0})) == "not-measured"
    assert outcome(read_text(tmp_path, "ibstat", ibstat(*GOOD), RAILS | {"vm.swappiness": 1})) == "not-measured"


def test_a_cut_or_damaged_ibstat_never_passes_unearned(tmp_path: Path) -> None:
    """Eight good ports, cut anywhere or damaged: pass only while eight whole active ports of 400 are left."""
    text = ibstat(*GOOD)

    def answered(broken: str) -> bool:
        rates = [float(r) for r in re.findall(r"^\s*Rate:\s*(\d+)", broken, re.M)]
        return broken.count("State: Active") >= 8 and len(rates) >= 8 and sorted(rates)[-8] >= 400

    for broken in [*every_cut(text), *(damaged(text, seed) for seed in range(300))]:
        if outcome(read_text(tmp_path, "ibstat", broken, RAILS, exit_code=0)) == "pass":
            assert answered(broken), broken


@pytest.mark.parametrize("number", ["063", "064", "065", "067"])
def test_no_damage_makes_a_bad_fabric_good(tmp_path: Path, number: str) -> None:
    """The failing port cases, cut and damaged anywhere, are read without an error and do not pass."""
    survives(tmp_path, number, lambda broken: not re.search("Initializing|Polling|Disabled|Rate: 200", broken))
    assert (CASES / number / "case.yaml").is_file()


def test_congestion_and_relay_noise_are_no_link_errors() -> None:
    """Case 068: two ports in one text are two ports; waits and relays are told and fail nothing."""
    found = check_case("068")
    assert values(found, "ib.PortXmitWait") == [22730118, 36510733]
    assert [(f.part, f.value) for f in found if f.metric == "ib.PortRcvSwitchRelayErrors"] == [("Lid 1204 port 2", 7)]
    assert values(found, "ib.ports_read") == [2]
    assert suspects(found) == ""


PERF = (CASES / "068" / "perfquery.txt").read_text()


@pytest.mark.parametrize(
    ("old", "new", "expect", "is_"),
    [
        (
            "SymbolErrorCounter:..............0",
            "SymbolErrorCounter:..............12",
            {"max_symbol_errors": 10},
            "fail",
        ),
        ("SymbolErrorCounter:..............0", "SymbolErrorCounter:..............9", {"max_symbol_errors": 10}, "pass"),
        ("SymbolErrorCounter:..............0\n", "", {"max_symbol_errors": 10}, "not-measured"),
        ("LinkDownedCounter:...............0", "LinkDownedCounter:...............3", {}, "fail"),
        ("LinkDownedCounter:...............0", "LinkDownedCounter:...............1", {}, "pass"),
        ("LinkErrorRecoveryCounter:........0", "LinkErrorRecoveryCounter:........1", {}, "fail"),
        ("PortRcvErrors:...................0", "PortRcvErrors:...................9", {}, "fail"),
        ("LinkDownedCounter:...............0", "LinkDownedCounter:...............x", {}, "not-measured"),
        ("x", "x", {"max_effective_errors": 0}, "not-measured"),
        ("x", "x", {"expected_ports": 3}, "not-measured"),
    ],
)
def test_link_error_counters_are_judged(tmp_path: Path, old: str, new: str, expect: dict[str, int], is_: str) -> None:
    """Each link error counter against its limit, or by what it is; a counter that is not there is not measured."""
    assert outcome(read_text(tmp_path, "perfquery", PERF.replace(old, new), expect)) == is_


def test_a_full_counter_never_passes(tmp_path: Path) -> None:
    """A plain 8-bit counter at 255 says at least 255: over a limit it fails, under one it is not measured."""
    text = "# Port counters: Lid 5 port 1 (CapMask: 0x1200)\nPortSelect:......1\nLinkDownedCounter:...............255\n"
    assert outcome(read_text(tmp_path, "perfquery", text, {"max_link_downed": 3})) == "fail"
    assert outcome(read_text(tmp_path, "perfquery", text, {"max_link_downed": 300})) == "not-measured"


def test_a_failed_query_is_not_measured(tmp_path: Path) -> None:
    """What perfquery prints when the node does not answer, with its exit code, proves nothing."""
    text = "perfquery: iberror: failed: classportinfo query\n"
    assert outcome(read_text(tmp_path, "perfquery", text, {}, exit_code=255)) == "not-measured"


def test_two_ends_are_one_cable() -> None:
    """Case 070: exit code 1 means bad ports; ALL is no port; host and switch with the same flaps share a cable."""
    found = check_case("070")
    failed = {(f.part, f.metric): f.value for f in found if f.outcome == "fail" and f.part}
    assert failed == {
        ("gx-r02-n07 mlx5_2 port 1", "ib.symbol_errors"): 5120,
        ("gx-r02-n07 mlx5_2 port 1", "ib.link_downed"): 4,
        ("MF0;leaf-07:MQM9700/U1 port 33", "ib.link_downed"): 4,
    }
    assert values(found, "ib.ports_checked") == [130]
    assert "the cable between gx-r02-n07 mlx5_2 and leaf-07 port 33" in suspects(found)
    assert not [f for f in found if f.metric == "ib.exit_code"]


CLEAN = (
    "\n## Summary: 4 nodes checked, 0 bad nodes found\n"
    "##          133 ports checked, 0 ports have errors beyond threshold\n"
)
TAIL = "## Thresholds: \n## Suppressed:\n"


def test_a_scan_is_clean_only_when_it_ended(tmp_path: Path) -> None:
    """No bad port and a whole summary pass; without its end, with unanswered queries or a bad exit code none does."""
    assert outcome(read_text(tmp_path, "ibqueryerrors", CLEAN + TAIL, {}, exit_code=0)) == "pass"
    assert outcome(read_text(tmp_path, "ibqueryerrors", CLEAN, {}, exit_code=0)) == "not-measured"
    failures = CLEAN + "## Thresholds: \n##          2 PMA query failures\n## Suppressed:\n"
    assert outcome(read_text(tmp_path, "ibqueryerrors", failures, {}, exit_code=0)) == "not-measured"
    assert outcome(read_text(tmp_path, "ibqueryerrors", CLEAN + TAIL, {}, exit_code=255)) == "not-measured"
    assert outcome(read_text(tmp_path, "ibqueryerrors", CLEAN + TAIL, {}, exit_code=1)) == "not-measured"


def test_a_scan_with_loose_thresholds_does_not_answer_a_strict_question(tmp_path: Path) -> None:
    """Ports under the scan's threshold are not listed, so a stricter limit is not measured; suppressed ones neither."""
    loose = CLEAN + "## Thresholds: [SymbolErrorCounter = 10]\n## Suppressed:\n"
    assert outcome(read_text(tmp_path, "ibqueryerrors", loose, {"max_symbol_errors": 0})) == "not-measured"
    assert outcome(read_text(tmp_path, "ibqueryerrors", loose, {"max_symbol_errors": 10})) == "pass"
    hidden = CLEAN + "## Thresholds: \n## Suppressed: LinkDownedCounter\n"
    assert outcome(read_text(tmp_path, "ibqueryerrors", hidden, {"max_link_downed": 0})) == "not-measured"


def test_a_scan_with_congestion_only_passes_and_tells(tmp_path: Path) -> None:
    """PortXmitWait over its threshold makes the tool exit 1 and is no link error."""
    text = (
        'Errors for 0x200000 "leaf1"\n   GUID 0x200000 port ALL: [PortXmitWait == 77]\n'
        "   GUID 0x200000 port 2: [PortXmitWait == 77 (77.000)]\n"
        + CLEAN.replace("0 bad nodes", "1 bad nodes").replace("0 ports have", "1 ports have")
        + TAIL
    )
    reading = read_text(tmp_path, "ibqueryerrors", text, {}, exit_code=1)
    assert outcome(reading) == "pass"
    assert values(list(reading.findings), "ib.PortXmitWait") == [77]


def test_the_named_link_partner_names_the_cable(tmp_path: Path) -> None:
    """With --report-port the scan says what is at the other end, even where only one end counts."""
    text = (
        'Errors for 0x200000 "leaf1"\n   GUID 0x200000 port 2: [SymbolErrorCounter == 77]\n'
        "       Link info:      2   2[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  "
        '0x0000000000100004      5    1[  ] "node2 HCA-1" (Could be 12X )\n'
        + CLEAN.replace("0 bad nodes", "1 bad nodes").replace("0 ports have", "1 ports have")
        + TAIL
    )
    reading = read_text(tmp_path, "ibqueryerrors", text, {}, exit_code=1)
    assert outcome(reading) == "fail"
    assert "the cable between leaf1 port 2 and node2 HCA-1" in suspects(list(reading.findings))


def test_counters_cut_or_damaged_never_pass_unearned(tmp_path: Path) -> None:
    """perfquery passes only with both counters at 0 in what is left; a scan with bad ports never passes."""
    survives(
        tmp_path,
        "068",
        lambda broken: all(
            re.search(rf"^{n}:\.+0+\s*$", broken, re.M) for n in ("SymbolErrorCounter", "LinkDownedCounter")
        ),
    )
    survives(tmp_path, "070", lambda broken: False)


def test_two_lanes_of_four_are_half_the_rate() -> None:
    """Case 072: IB-HDR on 2x is 100, whatever the recommendation says; the -E- line is about an option."""
    found = check_case("072")
    rates = {f.part: f.value for f in found if f.metric == "mlxlink.rate"}
    assert rates == {"mt4123_pciconf0": 200, "mt4123_pciconf1": 100}
    assert {f.part: f.value for f in found if f.metric == "mlxlink.width"} == {
        "mt4123_pciconf0": 4,
        "mt4123_pciconf1": 2,
    }
    assert set(values(found, "mlxlink.speed")) == {"IB-HDR"}
    assert "cable type (splitter/HDR100) or two dead lanes on mt4123_pciconf1" in suspects(found)
    assert not [f for f in found if f.outcome == "not-measured"]


def dump(**fields: str) -> str:
    """One mlxlink dump with counters."""
    told = {
        "State": "Active",
        "Physical state": "LinkUp",
        "Speed": "IB-NDR",
        "Width": "4x",
        "Recommendation": "No issue was observed",
        "Time Since Last Clear [Min]": "130.0",
        "Symbol Errors": "0",
        "Symbol BER": "15E-255",
        "Effective Physical Errors": "0",
        "Effective Physical BER": "15E-255",
        "Raw Physical Errors Per Lane": "5121,4980,5240,4711",
        "Raw Physical BER": "3E-8",
        "Link Down Counter": "0",
    } | {key.replace("_", " "): value for key, value in fields.items()}
    return "\nOperational Info\n----------------\n" + "".join(f"{k:<32}: {v}\n" for k, v in told.items())


ASKED = {"expected_rate_gbit_per_s": 400, "max_symbol_errors": 0, "max_link_downed": 0, "max_effective_errors": 0}


@pytest.mark.parametrize(
    ("fields", "expect", "is_", "says"),
    [
        ({}, ASKED, "pass", ""),
        ({"Symbol_Errors": "4"}, ASKED, "fail", "cable or transceiver of mlx5_3"),
        ({"Symbol_Errors": "4"}, {}, "fail", "cable or transceiver of mlx5_3"),
        ({"Symbol_Errors": "3"}, {}, "pass", ""),
        ({"Symbol_Errors": "N/A"}, ASKED, "not-measured", "does not say this"),
        ({"Symbol_BER": "5E-9"}, {}, "fail", "dirty optics"),
        ({"Raw_Physical_BER": "5E-4"}, {}, "fail", "dirty optics"),
        ({"Speed": "IB-HDR"}, ASKED, "fail", "forced speed"),
        ({"Speed": "400G"}, ASKED, "pass", ""),
        ({"Speed": "N/A"}, ASKED, "not-measured", "speed or width"),
        ({"State": "Polling", "Recommendation": "Cable is unplugged"}, ASKED, "fail", "not plugged in"),
        ({"State": "Disable", "Recommendation": "The port is closed by command"}, {}, "fail", "configuration"),
        ({"Link_Down_Counter": "3"}, ASKED, "fail", "cable or transceiver of mlx5_3"),
    ],
)
def test_a_link_is_judged_by_rate_and_errors(
    tmp_path: Path, fields: dict[str, str], expect: dict[str, int], is_: str, says: str
) -> None:
    """State, lanes, counters and bit error rates, each against what was expected or its published limit; both forms."""
    reading = read_text(tmp_path, "mlxlink", dump(**fields), expect, command="mlxlink -d mlx5_3 -c", exit_code=0)
    assert outcome(reading) == is_
    assert says in suspects(list(reading.findings))
    told = dict(re.findall(r"^(.+?) +: (.*)$", dump(**fields), re.M))
    lanes = {"Raw Physical Errors Per Lane": {"values": told.pop("Raw Physical Errors Per Lane").split(",")}}
    document = {"result": {"output": {"Operational Info": told, "Counters": lanes}}, "status": {"code": 0}}
    as_json = read_text(tmp_path, "mlxlink", json.dumps(document, indent=1), expect, command="mlxlink -d mlx5_3 --json")
    assert outcome(as_json) == is_


def test_equal_lanes_point_to_the_module() -> None:
    """Case 074: the same count on every lane is the module, and lanes are not added to the total."""
    found = check_case("074")
    assert {f.part: f.value for f in found if f.outcome == "fail"} == {
        "ens5f0np0 rx_symbol_err_phy": 9388104,
        "ens5f0np0 rx_crc_errors_phy": 9410022,
    }
    assert values(found, "eth.lanes_equal") == ["true"]
    assert "transceiver module as a whole (not supported or underpowered) on ens5f0np0" in suspects(found)
    assert "fibre" not in suspects(found)


def nic(**counters: int) -> str:
    good = {"rx_crc_errors_phy": 0, "rx_symbol_err_phy": 0, "link_down_events_phy": 0, "rx_pcs_symbol_err_phy": 0}
    return "NIC statistics:\n" + "".join(f"     {name}: {value}\n" for name, value in (good | counters).items())


@pytest.mark.parametrize(
    ("counters", "expect", "is_", "says"),
    [
        ({"rx_corrected_bits_phy": 88_000_000, "rx_err_lane_0_phy": 44_000_000}, {"max_symbol_errors": 0}, "pass", ""),
        ({"rx_corrected_bits_phy": 10**9, "rx_bits_phy": 10**12}, {}, "fail", "dirty optics"),
        ({"rx_corrected_bits_phy": 10**6, "rx_bits_phy": 10**12}, {}, "pass", ""),
        (
            {"rx_symbol_err_phy": 90, "rx_err_lane_0_phy": 0, "rx_err_lane_2_phy": 90},
            {},
            "fail",
            "fibre or connector of lane 2",
        ),
        ({"rx_discards_phy": 90, "rx_prio3_pause": 7}, {"max_symbol_errors": 0}, "pass", ""),
        ({"tx_pause_storm_error_events": 1}, {}, "fail", "not the cable"),
        ({"module_high_temp": 1}, {}, "fail", "airflow"),
        ({"link_down_events_phy": 1}, {"max_link_downed": 0}, "fail", "cable"),
        ({"link_down_events_phy": 1}, {}, "pass", ""),
        ({}, {"max_effective_errors": 0}, "pass", ""),
        ({}, {"expected_ports": 1}, "not-measured", "does not answer"),
    ],
)
def test_ethernet_counters_are_told_apart(
    tmp_path: Path, counters: dict[str, int], expect: dict[str, int], is_: str, says: str
) -> None:
    """Corrected bits are fine, uncorrected ones are not, pauses and drops are congestion and not the cable."""
    reading = read_text(tmp_path, "ethtool-S", nic(**counters), expect, command="ethtool -S eth4", exit_code=0)
    assert outcome(reading) == is_
    assert says in suspects(list(reading.findings))


def test_a_card_without_counters_is_not_measured(tmp_path: Path) -> None:
    """No statistics, or none of the asked kind, prove nothing."""
    assert outcome(read_text(tmp_path, "ethtool-S", "no stats available\n", {}, exit_code=94)) == "not-measured"
    virtual = "NIC statistics:\n     rx_queue_0_packets: 12\n"
    assert outcome(read_text(tmp_path, "ethtool-S", virtual, {"max_symbol_errors": 0})) == "not-measured"
    assert outcome(read_text(tmp_path, "ethtool-S", virtual, {})) == "not-measured"


def test_links_cut_or_damaged_never_pass_unearned(tmp_path: Path) -> None:
    """The failing link cases never pass; a good link passes only while its asked values are in the text."""
    survives(tmp_path, "072", lambda broken: "2x" not in broken)
    survives(tmp_path, "074", lambda broken: re.search(r"rx_(symbol_err|crc_errors)_phy:\s*\d{3}", broken) is None)
    good = dump()
    for broken in [*every_cut(good), *(damaged(good, seed) for seed in range(300))]:
        if outcome(read_text(tmp_path, "mlxlink", broken, ASKED)) in ("pass", "marginal"):
            for key in ("Symbol Errors", "Effective Physical Errors", "Link Down Counter"):
                assert re.search(rf"^\s*{key}\s*:\s*0+\s*$", broken, re.M), broken


def test_a_log_of_many_megabytes_is_read_line_by_line(tmp_path: Path) -> None:
    """Counters are taken from a stream: no more lines are held than ports are known."""

    def lines() -> Iterator[str]:
        for port in range(1, 200):
            yield f"# Port counters: Lid 5 port {port} (CapMask: 0x1200)"
            yield from ("SymbolErrorCounter:..............0" for _ in range(500))

    stream = lines()
    assert len(parse_perfquery(stream)) == 199
    with pytest.raises(ParseError):
        parse_ethtool(f"     counter_{n}: 1" if n else "NIC statistics:" for n in range(10**6))
