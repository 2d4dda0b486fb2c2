"""Host memory: CPU lists, the pattern, and counting of bytes that differ."""

from __future__ import annotations

import ctypes
import os

import pytest

from pytest_gpuready.agent import host_memory
from pytest_gpuready.agent.host_memory import PERIOD, bind_to, bytes_that_differ, cpu_list, cpu_text, write_pattern


@pytest.mark.parametrize("text", ["0", "0-3", "0-1,4", "2,8-9,11"])
def test_cpu_lists_read_and_write(text):
    """The kernel's notation of CPUs survives reading and writing."""
    assert cpu_text(cpu_list(text + "\n")) == text


def test_an_empty_list_has_no_cpu():
    """A device without CPUs near it gives an empty set."""
    assert cpu_list("\n") == set()


def test_binding_takes_the_near_cpus_that_are_allowed(tmp_path, monkeypatch):
    """Bound are CPUs next to the GPU which the process may use; the text says which."""
    bound = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: bound.append(cpus))
    folder = tmp_path / "bus/pci/devices/0000:19:00.0"
    folder.mkdir(parents=True)
    (folder / "local_cpulist").write_text("2-9\n")
    assert bind_to("0000:19:00.0", tmp_path) == "2-3"
    assert bound == [{2, 3}]


@pytest.mark.parametrize("content", ["8-9\n", "what\n"])
def test_binding_that_cannot_be_is_said(tmp_path, monkeypatch, content):
    """CPUs outside the allowed ones, or an unreadable list, leave the thread where it is and say so with ""."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("must not bind"))
    folder = tmp_path / "bus/pci/devices/0000:19:00.0"
    folder.mkdir(parents=True)
    (folder / "local_cpulist").write_text(content)
    assert bind_to("0000:19:00.0", tmp_path) == ""


def test_the_pattern_fills_all_and_repeats_off_the_page():
    """The pattern reaches the last byte and never repeats at a multiple of a page."""
    size = 2 * PERIOD + 5
    memory = ctypes.create_string_buffer(size)
    write_pattern(ctypes.addressof(memory), size)
    raw = memory.raw
    assert raw[:PERIOD] == raw[PERIOD : 2 * PERIOD]
    assert raw[-5:] == raw[:5]
    assert raw[:4096] != raw[2**20 : 2**20 + 4096]
    assert PERIOD % 4096


@pytest.mark.parametrize("wrong", [(), (0,), (17, 2**20 - 1, 2**20, 2**20 + 3)])
def test_differing_bytes_are_counted(wrong):
    """Every byte that differs counts once, at block edges too."""
    size = 2**20 + 4
    one, other = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    for place in wrong:
        other[place] = b"\x01"
    assert bytes_that_differ(ctypes.addressof(one), ctypes.addressof(other), size) == len(wrong)


def test_wiped_memory_is_not_zero():
    """Wiping writes a byte that fresh memory does not hold."""
    memory = ctypes.create_string_buffer(8)
    host_memory.wipe(ctypes.addressof(memory), 8)
    assert memory.raw == b"\x5a" * 8
