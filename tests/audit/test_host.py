"""The sysctl reader: values against expectations in any spelling and any language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.parse.sysctl import name_of, path_of
from tests.audit.case_reading import check_case, outcome, read_text, survives, suspects, values


def test_a_missing_key_is_known_by_its_path_in_any_language() -> None:
    """Case 082: a translated reason is no obstacle, a dash inside a name stays, the value that is there is judged."""
    found = check_case("082")
    assert values(found, "sysctl.vm.swappiness") == [60]
    missing = [f for f in found if f.metric == "sysctl.net.bridge.bridge-nf-call-iptables"]
    assert [(f.outcome, f.value) for f in missing] == [("not-measured", "missing")]
    assert "host configuration (vm.swappiness)" in suspects(found)
    assert "br_netfilter not loaded" in suspects(found)


@pytest.mark.parametrize(
    ("text", "expect", "is_"),
    [
        ("vm.swappiness = 10\n", {"vm.swappiness": "<=10"}, "pass"),
        ("vm.swappiness = 11\n", {"vm.swappiness": "<=10"}, "fail"),
        ("vm/swappiness = 10\n", {"vm.swappiness": 10}, "pass"),
        ("vm.swappiness=10\n", {"vm/swappiness": "10"}, "pass"),
        ("net.ipv4.tcp_rmem = 4096\t87380\t16777216\n", {"net.ipv4.tcp_rmem": "4096 87380 16777216"}, "pass"),
        ("net.ipv4.tcp_rmem = 4096\t87380\t16777216\n", {"net.ipv4.tcp_rmem": ">=16777216"}, "not-measured"),
        ("net.core.rmem_max = 268435456\n", {"net.core.rmem_max": ">=268435456"}, "pass"),
        ("net.ipv4.ip_forward = 1\n", {"vm.swappiness": "<=10"}, "not-measured"),
        ("vm.swappiness = 10\nvm.swappiness = 60\n", {"vm.swappiness": "<=10"}, "not-measured"),
        (
            "* Applying /etc/a.conf ...\nvm.swappiness = 60\nvm.swappiness = 10\n",
            {"vm.swappiness": "<=10"},
            "pass",
        ),
        ("vm.swappiness = \n", {"vm.swappiness": "<=10"}, "not-measured"),
        ("sysctl: permission denied on key 'vm.swappiness'\n", {"vm.swappiness": "<=10"}, "not-measured"),
        ('error: "vm.swappiness" is an unknown key\n', {"vm.swappiness": "<=10"}, "not-measured"),
        ("vm.swappiness = 10\n", {"vm.swappiness": "<=10", "expected_gpus": 8}, "not-measured"),
        ("vm.swappiness = 10\n", {}, "observed"),
        ("", {"vm.swappiness": "<=10"}, "not-measured"),
    ],
)
def test_a_value_is_held_against_what_was_expected(tmp_path: Path, text: str, expect: dict[str, Any], is_: str) -> None:
    """Equality, bounds, several numbers, both spellings; what is not there or cannot be compared is not measured."""
    assert outcome(read_text(tmp_path, "sysctl", text, expect)) == is_


def test_a_bad_exit_code_leaves_something_unread(tmp_path: Path) -> None:
    """The values that are there pass, the run does not: the error output says what is missing."""
    reading = read_text(tmp_path, "sysctl", "vm.swappiness = 10\n", {"vm.swappiness": "<=10"}, exit_code=255)
    assert outcome(reading) == "not-measured"
    assert [f.outcome for f in reading.findings if f.metric == "sysctl.vm.swappiness"] == ["pass"]


def test_dots_and_slashes_change_places() -> None:
    """A name is a path in either spelling; the dot of a VLAN stays a dot."""
    assert path_of("net.ipv4.conf.eth0/100.rp_filter") == "net/ipv4/conf/eth0.100/rp_filter"
    assert path_of("net/ipv4/conf/eth0.100/rp_filter") == "net/ipv4/conf/eth0.100/rp_filter"
    assert name_of("net/ipv4/conf/eth0.100/rp_filter") == "net.ipv4.conf.eth0/100.rp_filter"


def test_cut_or_damaged_never_pass_unearned(tmp_path: Path) -> None:
    """The case never passes while its value is too high."""
    survives(tmp_path, "082", lambda broken: re.search(r"swappiness\s*=\s*0*(\d|10)\s*$", broken, re.M) is not None)
