"""Two recorded nodes, one GPU of which is 20 % slower than its peers and inside the limit that was agreed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import append
from tests.judged import cells, judged, parts
from tests.nodes import BDFS, as_another, eight_gpus

PROFILE = """profile: agreed
extends: h200-sxm
version: "1"
title: H200 with the floor that was agreed
pci_ids: ["10de:2335"]
clauses:
  PCIE-5:
    limit: {at_least: 40.0, ceiling: 63.0, unit: GB/s, source: {kind: contract, cite: annex B}}
"""
SITE = """site: 1
profile: ../agreed.yaml
nodes:
  "node[01-02]": {gpus: 8, nvlink: full, virtual: true, rack: r1}
environment: {NCCL_NVLS_ENABLE: "0"}
"""
SLOW = ("node02", BDFS[5])


def slower(result: CommandResult, share: float = 0.8) -> CommandResult:
    """Copies to the GPU reach this share of what they did."""
    document = json.loads(result.stdout)
    for copy in document["data"]["copies"]:
        if copy["kind"] == "h2d":
            copy["gb_per_s"] *= share
            copy["repeats"] = [rate * share for rate in copy["repeats"]]
    return dataclasses.replace(result, stdout=json.dumps(document) + "\n")


def record(folder: Path, *, again: float) -> Path:
    """Two nodes of eight GPUs each; the slow GPU's copies are recorded twice."""
    (folder / "agreed.yaml").write_text(PROFILE)
    results = []
    for number, name in enumerate(("node01", "node02"), 1):
        for one in eight_gpus():
            made = as_another(one, number, name)
            if (name, made.command.argv[-1]) == SLOW and made.command.argv[3] == "copies":
                retest = slower(made, again)
                results += [
                    slower(made),
                    dataclasses.replace(retest, command=dataclasses.replace(retest.command, repeat=1)),
                ]
            else:
                results.append(made)
    append(folder / "nodes", results, composed="two nodes made of one")
    (folder / "nodes" / "site.yaml").write_text(SITE)
    return folder / "nodes"


def test_the_slow_one_is_named_and_no_other(tmp_path: Path) -> None:
    """It was measured twice, both values stand in its line with the median of its peers; all others pass."""
    certificate = judged(tmp_path, record(tmp_path, again=0.81))
    bad = [part for part in parts(certificate, "PCIE-5") if part.outcome != "PASS"]
    assert [(part.part, part.outcome) for part in bad] == [("node02/gpu5", "FAIL")]
    assert cells(certificate, "FAIL", "UNSTABLE", "NOT MEASURED") == {"PCIE-5": (5,)}
    (slow,) = bad
    assert slow.expected == "at most 15 % below the median 55.25 of 7 peers in the node (or 6 robust sigmas)"
    assert slow.line.startswith(f"PCIE-5 pcie.h2d.bandwidth: expected {slow.expected} (rule: ")
    assert "found 44.31 GB/s, again 44.87 GB/s in 512 MiB pinned" in slow.line
    assert "44.31 GB/s, 20 % below the median 55.25 of 7 peers" in slow.reason
    assert "again 44.87 GB/s, 19 % below" in slow.reason
    assert "inside its own limit >= 40 GB/s" in slow.reason
    clause = next(c for suite in certificate.suites for c in suite.clauses if c.id == "PCIE-5")
    assert clause.limit == ">= 40 GB/s"
    assert clause.peers.startswith("at most 15 % below the median of its peers in the node and")
    assert [node.judged for node in certificate.nodes] == ["ACCEPTED", "REJECTED"]
    page = (tmp_path / "out" / "certificate.html").read_text()
    assert "at most 15" in page
    assert "of 7 peers in the node" in page


def test_who_was_slow_once_is_not_condemned(tmp_path: Path) -> None:
    """The second run is as fast as its peers: UNSTABLE, and the run is open, not REJECTED."""
    certificate = judged(tmp_path, record(tmp_path, again=1.0))
    assert certificate.judged == "INCOMPLETE"
    assert cells(certificate, "FAIL") == {}
    (part,) = [part for part in parts(certificate, "PCIE-5") if part.outcome == "UNSTABLE"]
    assert part.reason.startswith("runs disagree about the limit against peers: 44.31 GB/s, 55.39 GB/s")
