"""Versions of the driver's parts, from the texts that kernel and loader show."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.agent.driver_files import mapped_versions, module_version


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  2024\nGCC version: 11.4.0", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (a@b)", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86  Release Build", "570.86"),
    ],
)  # fmt: skip
def test_module_version_from_the_banner(tmp_path: Path, banner: str, version: str) -> None:
    """The version stands in the first line of the module's banner; compiler and dates are no versions."""
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(banner, encoding="ascii")
    assert module_version(tmp_path / "proc", tmp_path / "sys") == version


def test_module_version_from_sysfs_and_from_nowhere(tmp_path: Path) -> None:
    """Without the banner sysfs tells; without a loaded module there is no version."""
    assert module_version(tmp_path / "proc", tmp_path / "sys") == ""
    folder = tmp_path / "sys/module/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text("535.183.01\n", encoding="ascii")
    assert module_version(tmp_path / "proc", tmp_path / "sys") == "535.183.01"


def test_mapped_files_with_a_version_in_their_name() -> None:
    """Only the two libraries count, deleted files too; a file without a version has none."""
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04\n"
        "7f02-7f03 r-xp 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04 (deleted)\n"
        "7f04-7f05 r-xp 00000000 08:01 3 /usr/lib/libcudart.so.13.0.88\n"
    )
    assert mapped_versions(maps) == {"libnvidia-ml": "580.159.04", "libcuda": "580.159.04"}
    assert mapped_versions("7f00-7f01 r-xp 0 08:01 1 /usr/lib/wsl/lib/libnvidia-ml.so.1\n") == {}
