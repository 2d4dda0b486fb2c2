"""sysctl: values and missing keys of procps, busybox and translated messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.sysctl import parse_sysctl
from tests.parse.damage import damages, read_or_refused

TEXT = "net.ipv4.ip_forward = 1\nvm.swappiness = 60\nsysctl: cannot stat /proc/sys/net/bridge/a-b: Aucun fichier\n"


@pytest.mark.parametrize(
    ("line", "key", "absent"),
    [
        ("sysctl: cannot stat /proc/sys/net/bridge/a-b: 没有那个文件或目录", "net/bridge/a-b", True),
        ("sysctl: permission denied on key 'net.ipv4.tcp_fastopen_key'", "net/ipv4/tcp_fastopen_key", False),
        ("sysctl: permission denied on key “net.ipv4.x”, ignoring", "net/ipv4/x", False),
        ('sysctl: reading key "net.ipv6.conf.all.stable_secret"', "net/ipv6/conf/all/stable_secret", False),
        ('error: "vm.foo" is an unknown key', "vm/foo", True),
    ],
)
def test_the_key_of_an_error_is_known(line: str, key: str, absent: bool) -> None:
    """By its path or between its quotation marks, in any language."""
    (missing,) = parse_sysctl([line]).missing
    assert (missing.key, missing.absent) == (key, absent)


def test_what_is_no_sysctl_is_refused() -> None:
    """Other text is refused."""
    with pytest.raises(ParseError, match="found neither"):
        parse_sysctl(["bash: sysctl: command not found"])


@settings(max_examples=150, deadline=None)
@given(damages(TEXT))
def test_damage_gives_values_or_a_refusal(text: str) -> None:
    """Never another error; a value is one that stands in the text."""
    found = read_or_refused(lambda: parse_sysctl(text.split("\n")))
    for value in found.values.values() if found else ():
        assert value in " ".join(text.split()) or not value
