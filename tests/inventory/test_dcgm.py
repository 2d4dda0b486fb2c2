"""Whether DCGM is asked follows from the site file, else from what is installed; and the choice is printed."""

from __future__ import annotations

import pytest

from pytest_gpuready.inventory import applies
from pytest_gpuready.inventory.dcgm import dcgm_of
from pytest_gpuready.inventory.found import NodeFound
from pytest_gpuready.model import Node
from pytest_gpuready.model.agent_doc import DcgmDoc, KernelLog, NodeDoc
from pytest_gpuready.profiles import load

DOC = DcgmDoc(
    path="/usr/bin/dcgmi",
    host_engine=[7],
    diagnostics={"9": "nvvs"},
    plugins={
        "/x/plugins/cuda12": ["libMemtest.so.4"],
        "/x/plugins/cuda13": ["libMemory.so.4", "libNVBandwidth.so.4", "libTargetedPower.so.4", "libcurand.so"],
        "/x/plugins/cudaless": ["libpluginCommon.so.4"],
    },
    sku_file="/x/diag-skus.yaml",
    sku_sha256="0a1b2c3d4e5f6071",
    skus={"2335": ["- name: H200\n  id: '2335'\n  memory_bandwidth:\n    minimum_bandwidth: 2333\n"]},
    environment={"DCGM_NCCL_TESTS_BIN_PATH": "/opt/nccl-tests"},
    machine="x86_64",
)


class SaidSite:
    """The one thing of a site file that counts here."""

    def __init__(self, diagnostics: str) -> None:
        self.diagnostics = diagnostics


def found(doc: DcgmDoc | None) -> NodeFound:
    node = NodeDoc(hostname="n", kernel="6", kernel_log=KernelLog(), dcgm=doc)
    return NodeFound(node=node, nvml="")


@pytest.mark.parametrize(
    ("diagnostics", "doc", "asked", "assumed"),
    [
        (None, DOC, True, "diagnostics: DCGM, since /usr/bin/dcgmi is there"),
        (None, None, False, "no dcgmi on the PATH"),
        ("builtin", DOC, False, ""),
        ("dcgm", None, True, ""),
        ("both", DOC, True, ""),
    ],
)
def test_who_decides(diagnostics, doc, asked, assumed):
    """A declaration decides and assumes nothing; without one, what is there decides and is printed."""
    said: list[str] = []
    site = SaidSite(diagnostics) if diagnostics else None
    _, none = dcgm_of(site, found(doc), "13.0", said)
    assert (none == "") is asked
    assert (assumed in said[0]) if assumed else said == []


def test_what_is_installed_is_known_before_it_runs():
    """Plug-ins of the driver's CUDA version, floors of the model, and who is in the way."""
    known, _ = dcgm_of(None, found(DOC), "13.0", [])
    assert known.plugins == ("memory", "targeted_power", "nvbandwidth")
    assert known.floors == {"2335": {"memory_bandwidth.minimum_bandwidth": "2333"}}
    assert known.busy == ("nvvs (pid 9)",)
    assert known.sku_file == "/x/diag-skus.yaml (sha256 0a1b2c3d4e5f)"


def test_a_damaged_sku_entry_is_a_problem_not_a_floor():
    """Nonsense in the SKU file is told where floors would stand."""
    doc = DcgmDoc(path="/usr/bin/dcgmi", skus={"2335": ["- name: ["]})
    known, _ = dcgm_of(None, found(doc), "", [])
    assert known.floors == {}
    assert known.sku_problem.startswith("diag-skus.yaml: expected")


def test_tests_that_need_more_apply_where_it_is_set_up():
    """nccl_tests and rist need their variable, nvbandwidth DCGM 4, the CPU's EUD a machine with an Arm CPU."""
    clauses = {clause.metric: clause for clause in load("h200-sxm").clauses}
    known, _ = dcgm_of(None, found(DOC), "13.0", [])
    node = Node(name="n", slots=(), dcgm=known, dcgm_none="")
    assert applies(clauses["dcgm.nccl_tests"], node) == ""
    assert "DCGM_RIST_BIN_PATH is not set" in applies(clauses["dcgm.rist"], node)
    assert "no NVIDIA CPU" in applies(clauses["dcgm.cpu_eud"], node)
    assert applies(clauses["dcgm.nvbandwidth"], node) == ""
    old, _ = dcgm_of(
        None, found(DcgmDoc(path="/usr/bin/dcgmi", sku_file="/usr/share/nvidia-validation-suite/x")), "", []
    )
    three = Node(name="n", slots=(), dcgm=old, dcgm_none="")
    assert applies(clauses["dcgm.nvbandwidth"], three) == "DCGM 3 has no such test"
    left, _ = dcgm_of(
        None,
        found(DcgmDoc(path="/usr/bin/dcgmi", version="4.6.0", sku_file="/usr/share/nvidia-validation-suite/x")),
        "",
        [],
    )
    assert applies(clauses["dcgm.nvbandwidth"], Node(name="n", slots=(), dcgm=left, dcgm_none="")) == ""
    closed, _ = dcgm_of(None, found(DcgmDoc(path="/usr/bin/dcgmi", environment_problem="Permission denied")), "", [])
    node = Node(name="n", slots=(), dcgm=closed, dcgm_none="")
    assert "not known to be set (Permission denied)" in applies(clauses["dcgm.rist"], node)
    plain = Node(name="n", slots=())
    assert all(applies(clause, plain) for clause in clauses.values() if clause.metric.startswith("dcgm."))
