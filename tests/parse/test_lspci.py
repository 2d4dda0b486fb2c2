"""lspci: devices one at a time, the right lines of a link, what is lost is no one else's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.lspci import PciLinkText, lspci

HEAD = "47:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b2] (rev a1)"


def test_the_link_is_lnksta_alone() -> None:
    """LnkCap2 and LnkSta2 are something else, words in brackets are optional."""
    lines = [
        HEAD,
        "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM",
        "\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)",
    ]
    (device,) = lspci([*lines, "\tLnkCap2: Supported Link Speeds: 2.5-16GT/s", "\tLnkSta2: Speed 2.5GT/s, Width x1"])
    assert (device.could, device.link) == (PciLinkText(speed=16, width=16), PciLinkText(speed=16, width=8))
    assert device.wrong == []


def test_two_links_of_one_device_are_wrong() -> None:
    """Where a heading is lost two devices run into one, and that is seen."""
    (device,) = lspci([HEAD, "\tLnkSta: Speed 16GT/s, Width x16", "\tLnkSta: Speed 16GT/s, Width x8"])
    assert device.wrong == ["LnkSta stands there twice"]


def test_lines_without_a_heading_are_orphans() -> None:
    """Link lines after a blank line and no heading belong to nobody, and are not dropped."""
    assert [d.kind for d in lspci([HEAD, "", "\tLnkSta: Speed 16GT/s, Width x8"])] == ["gpu", "orphan"]


def test_unknown_speed_is_none() -> None:
    """A speed that lspci does not know is no number."""
    (device,) = lspci([HEAD, "\tLnkSta: Speed unknown, Width x16"])
    assert device.link == PciLinkText(speed=None, width=16)


@given(st.lists(st.text(max_size=50), max_size=15))
def test_any_text(lines: list[str]) -> None:
    """No text makes the parser raise."""
    for prefix in ("", "\t", "Slot:\t", "47:00.0 ", "\tLnkSta: ", "\tACSCtl: "):
        assert len(list(lspci([prefix + line for line in lines]))) <= 2 * len(lines) + 1
