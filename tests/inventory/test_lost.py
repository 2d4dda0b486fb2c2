"""From NVML's answer to the certificate: a GPU that cannot be opened and has no address is not passed over."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tests.judged import cells, judged, parts
from tests.nodes import demo_results, write_recording


def test_a_lost_gpu_that_nobody_declared_rejects_the_node(tmp_path: Path) -> None:
    """Two declared and two answering, and a third that NVML counts and cannot open: GPU-34 fails and names it."""
    results = []
    for result in demo_results():
        document = json.loads(result.stdout)
        if document["probe"] == "nvml":
            document["data"]["lost"] = {"2": "GpuIsLost"}
        results.append(dataclasses.replace(result, stdout=json.dumps(document) + "\n"))
    certificate = judged(tmp_path, write_recording(tmp_path / "node", results, gpus="2"), level=1)
    assert certificate.judged == "REJECTED"
    assert cells(certificate, "FAIL") == {"GPU-34": (-1,)}
    assert parts(certificate, "GPU-34")[0].detail == "NVML index 2 (GpuIsLost)"
