"""How DCGM is installed is found from files and processes; of DCGM itself only its version is asked."""

from __future__ import annotations

import os

import pytest

from pytest_gpuready.agent.dcgm import entries, installed

SKUS = """version: "4.6.0"
spec: dcgm-diag-v1
skus:
  - name: Tesla K8
    id: '1194'
    pcie:
      is_allowed: true
  - name: H200 # remark
    id: '2335'
    memory_bandwidth:
      minimum_bandwidth: 2333
  - name: variant
    id: "233511aa"
    memory_bandwidth:
      minimum_bandwidth: 5
"""


@pytest.fixture
def machine(tmp_path):
    """A tree with DCGM 4 installed as packages do, a host engine and somebody's diagnostic."""
    binary = tmp_path / "usr/bin/dcgmi"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n[ \"$*\" = --version ] && printf '\\ndcgmi  version: 4.6.0\\n\\n'\n")
    binary.chmod(0o755)
    plugins = tmp_path / "usr/libexec/datacenter-gpu-manager-4/plugins/cuda13"
    plugins.mkdir(parents=True)
    for name in ("libMemory.so.4", "libTargetedPower.so.4", "nvbandwidth"):
        (plugins / name).write_text("")
    share = tmp_path / "usr/share/datacenter-gpu-manager-4"
    share.mkdir(parents=True)
    (share / "diag-skus.yaml").write_text(SKUS)
    for pid, words in (("7", "/usr/bin/nv-hostengine\0-n"), ("9", "/usr/libexec/nvvs\0--x"), ("11", "vim\0diag")):
        folder = tmp_path / "proc" / pid
        folder.mkdir(parents=True)
        (folder / "cmdline").write_text(words)
        (folder / "environ").write_text("DCGM_HOME_DIR=/opt/x\0HOME=/root\0")
    return tmp_path


def test_all_of_it_is_found(machine):
    """Version, path, folders, the entries of this model, engine, other diagnostics and the engine's DCGM variables."""
    doc = installed(machine, {"PATH": str(machine / "usr/bin"), "DCGM_MINE": "1"}, ["2335"])
    assert doc.path == str(machine / "usr/bin/dcgmi")
    assert doc.version == "4.6.0"
    assert list(doc.plugins.values()) == [["libMemory.so.4", "libTargetedPower.so.4"]]
    assert [entry.splitlines()[1].split()[1] for entry in doc.skus["2335"]] == ["'2335'", '"233511aa"']
    assert doc.host_engine == [7]
    assert doc.diagnostics == {"9": "nvvs"}
    assert doc.environment == {"DCGM_HOME_DIR": "/opt/x"}
    assert doc.sku_problem == ""
    assert doc.machine == os.uname().machine


def test_without_an_engine_our_own_variables_count(machine):
    """An embedded engine is our child and sees what we see."""
    (machine / "proc/7/cmdline").write_text("bash")
    doc = installed(machine, {"PATH": str(machine / "usr/bin"), "DCGM_MINE": "1", "OTHER": "2"}, [])
    assert doc.host_engine == []
    assert doc.environment == {"DCGM_MINE": "1"}


def test_no_dcgmi_on_the_path_is_no_dcgm(machine):
    """Files alone do not make an installation that can be run."""
    assert installed(machine, {"PATH": str(machine / "bin")}, ["2335"]) is None


def test_a_missing_or_unreadable_sku_file_is_said(machine):
    """Where floors cannot be known the document says why."""
    file = machine / "usr/share/datacenter-gpu-manager-4/diag-skus.yaml"
    file.unlink()
    environment = {"PATH": str(machine / "usr/bin")}
    assert "no diag-skus.yaml" in installed(machine, environment, ["2335"]).sku_problem
    file.mkdir()
    assert "directory" in installed(machine, environment, ["2335"]).sku_problem.lower()


def test_entries_are_bounded_and_only_of_this_model():
    """No more than eight entries of a model are kept, and none of another."""
    text = "".join(f"  - name: n{i}\n    id: '2335{i:04x}'\n" for i in range(20)) + SKUS
    assert len(entries(text, ["2335"])["2335"]) == 8
    assert entries(text, ["26b9"]) == {}


def test_a_dcgmi_that_says_nothing_has_no_version(machine, monkeypatch):
    """One that hangs, fails or prints something else costs seconds, and is told apart by where its packages lie."""
    monkeypatch.setattr("pytest_gpuready.agent.dcgm.VERSION_S", 0.2)
    binary = machine / "usr/bin/dcgmi"
    for text in ("exec sleep 60", "exit 3", "echo version: soon", "kill -9 $$"):
        binary.write_text(f"#!/bin/sh\n{text}\n")
        assert installed(machine, {"PATH": str(machine / "usr/bin")}, []).version == ""


def test_variables_of_an_engine_that_may_not_be_read_are_unknown(machine):
    """Another user's engine: its variables are not taken for absent."""
    environ = machine / "proc/7/environ"
    environ.unlink()
    environ.mkdir()
    doc = installed(machine, {"PATH": str(machine / "usr/bin")}, [])
    assert doc.environment == {}
    assert "nv-hostengine (pid 7)" in doc.environment_problem
