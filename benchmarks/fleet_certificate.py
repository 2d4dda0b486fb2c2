"""What the certificate of many nodes costs: `PYTHONPATH=. python benchmarks/fleet_certificate.py [NODES...]`.

A store is made with the answers of so many nodes of eight GPUs (250, 500 and 1,000 where none is named; the answers are
those of the demo recording, names and identifiers changed), level 1 is judged from it, and the certificate is built and
written as JSON, HTML and JUnit. Printed are CPU seconds of each step and the peak memory of a process that did nothing
else, answers and measurements in it. `read` is the judging, of which a run does most before; `CPU s` is all the others.
Four fleets of each size:

- good: one node in 250 has a GPU with ECC errors, one in 500 never answered;
- same: one clause fails on every GPU;
- silent: no node was ever reached;
- bad: a third of the cells fail, and every other one has a test that broke.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.certificate import background
from pytest_gpuready.certificate.build import Facts, Record, build
from pytest_gpuready.certificate.html import render
from pytest_gpuready.certificate.junit import junit_chunks
from pytest_gpuready.certificate.nodes import node_entries
from pytest_gpuready.certificate.written import json_chunks
from pytest_gpuready.inventory import NodeFound, choose_profile, load_site, resolve
from pytest_gpuready.model import CommandResult, Outcome
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes.after import AfterProbe
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.transport.replay import DEMO, Replay
from tests.nodes import eight_gpus

KINDS = ("good", "same", "silent", "bad")
SILENCE = "expected a login within 10 s, found none; see that it is up and lets us in"
STEPS = ("read", "build", "json", "html", "junit")


def main() -> None:
    """Each size and kind in a process of its own."""
    if len(sys.argv) > 3 and sys.argv[1] == "--one":
        folder = Path(sys.argv[4] if len(sys.argv) > 4 else tempfile.mkdtemp(prefix="fleet-"))
        folder.mkdir(parents=True, exist_ok=True)
        one(int(sys.argv[2]), sys.argv[3], folder)
        return
    steps = " ".join(f"{step:>6}" for step in STEPS)
    print(
        f"{'fleet':7} {'nodes':>5} {'cells':>7}  {steps} {'CPU s':>6} {'RSS MB':>6}     MB: json    html   junit",
        flush=True,
    )
    for kind in KINDS:
        for nodes in sys.argv[1:] or ("250", "500", "1000"):
            subprocess.run([sys.executable, __file__, "--one", nodes, kind], check=True)


def one(count: int, kind: str, folder: Path) -> None:
    """One certificate; its files are left in the folder."""
    names = [f"node{n:04d}" for n in range(1, count + 1)]
    store = Store(folder, Replay(DEMO))
    docs = stored(store, names, kind)
    site_file = folder / "site.yaml"
    nodes = "".join(f"  {name}: {{gpus: 8, nvlink: full, virtual: true}}\n" for name in names)
    site_file.write_text(f"site: 1\nprofile: h200-sxm\nlevel: 1\nnodes:\n{nodes}")
    site = load_site(site_file)
    profile = choose_profile(site, None, docs)
    if profile is None:
        raise SystemExit("expected the shipped profile h200-sxm, found none")
    inventory = resolve(site, docs, profile=profile)
    allowed = {name: value for doc in docs.values() if doc.node_doc for name, value in doc.node_doc.environment.items()}
    probes = [NodeProbe(allowed), NvmlProbe(), AfterProbe(2, profile)]
    findings = Findings(store=store, probes=probes, profile=profile, inventory=inventory)
    log_of = functools.cache(lambda name: background.latest_log(docs, store, name))
    agreed = {outcome.value: Record(outcome=outcome.value) for outcome in Outcome}
    spent: dict[str, float] = {}

    def said(outcome: str, label: str) -> Record:
        """A test that agrees; of the bad fleet one that broke."""
        return Record(outcome="ERROR", reason=f"RuntimeError: {label} is bad") if kind == "bad" else agreed[outcome]

    @contextmanager
    def step(name: str) -> Iterator[None]:
        before = time.process_time()
        yield
        spent[name] = time.process_time() - before

    with step("read"):
        records = {
            (clause.id, part.name): [said(findings.verdict(clause, part).outcome.value, part.label)]
            for clause in profile.up_to(1)
            for part in inventory.parts(clause.per)
        }
    before = peak_mb()
    with step("build"):
        certificate = build(
            findings=findings,
            records=records,
            facts=Facts(
                started="2026-11-30T11:04:02Z",
                issued="2026-11-30T11:16:40Z",
                finished=True,
                level_asked=1,
                basis="hardware",
                command="pytest -m level1",
                site=background.site_entry(site),
                environment=background.environment(docs, {}),
                nodes=tuple(node_entries(findings, docs)),
                evidence=tuple(background.evidence(store)),
            ),
            log_of=lambda part: background.log_lines(log_of(part.node), inventory.slot(part)),
        )
    sizes = []
    for name, chunks in (
        ("json", json_chunks(certificate)),
        ("html", (page.encode() for page in map(render, [certificate]))),
        ("junit", junit_chunks(certificate)),
    ):
        path = folder / f"certificate.{name}"
        with step(name), path.open("wb") as file:
            file.writelines(chunks)
        sizes.append(path.stat().st_size / 1e6)
    times = " ".join(f"{spent[name]:6.2f}" for name in STEPS)
    said_sizes = " ".join(f"{size:7.2f}" for size in sizes)
    print(
        f"{kind:7} {count:5} {certificate.counts.cells:7}  {times} {sum(spent.values()) - spent['read']:6.2f} "
        f"{peak_mb():6.0f}      {said_sizes}   {certificate.judged}, {before:.0f} MB before the certificate",
        flush=True,
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stored(store: Store, names: list[str], kind: str) -> dict[str, NodeFound]:
    """The store filled with what the nodes answered, and their documents."""
    silent = set(names if kind == "silent" else names[41::500] if kind == "good" else ())
    docs = {}
    for place, name in enumerate(names):
        if name in silent:
            why = f"{name}: {SILENCE}"
            for probe in ("node", "nvml"):
                store.put(key_of(probe, name), Taken(problem=why))
            docs[name] = NodeFound(node=why, nvml=why)
            continue
        results = answers(name, place, kind)
        for probe, result in results.items():
            store.put(key_of(probe, name), Taken(results=[result]))
        docs[name] = NodeFound(
            node=node_doc(results["node"]),
            nvml=nvml_doc(results["nvml"]),
            boot_id=envelope(results["node"], "node").boot_id,
        )
    return docs


@functools.cache
def recorded() -> dict[str, CommandResult]:
    """What the two probes of level 1 printed on the recorded node."""
    return {r.command.argv[3]: r for r in eight_gpus() if r.command.argv[3] in ("node", "nvml")}


def answers(name: str, place: int, kind: str) -> dict[str, CommandResult]:
    """What they print on a node, its own names in it."""
    made = {}
    for probe, result in recorded().items():
        document = json.loads(result.stdout)
        data: dict[str, Any] = document["data"]
        document["host"] = name
        if probe == "node":
            data["hostname"] = name
        for index, gpu in enumerate(data["gpus"] if probe == "nvml" else ()):
            number = place * 8 + index + 1
            gpu["uuid"] = f"GPU-{number:08d}-0000-4000-8000-{number:012d}"
            gpu["serial"] = f"165{number:010d}"
            if kind == "good" and place % 250 == 16 and index == 5:
                gpu.update(persistence=False, ecc_uncorrected_volatile=2)
            if kind in ("same", "bad"):
                gpu.update(persistence=False)
            if kind == "bad":
                gpu.update(ecc_uncorrected_volatile=2, remap_pending=1, remap_failure=1, recovery_action=1, nvlinks=[])
                gpu.update(mig_current=True, compute_mode=3, power_default_mw=500000, fabric_state=1)
                gpu.update(vbios="0", inforom_valid=False)
        text = json.dumps(document, separators=(",", ":")) + "\n"
        command = dataclasses.replace(result.command, node=name)
        made[probe] = dataclasses.replace(result, command=command, stdout=text, started="2026-11-30T11:04:11Z")
    return made


if __name__ == "__main__":
    main()
