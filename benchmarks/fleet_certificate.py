"""What the certificate of many nodes costs: `python benchmarks/fleet_certificate.py [NODES...]` (250 500 1000).

A store is made with the answers of so many nodes of eight GPUs (those of the demo recording, names and identifiers
changed), level 1 is judged from it, and the certificate is built and written as JSON, HTML and JUnit. Printed are CPU
seconds of each step and the peak memory of a process that did nothing else. Four fleets of each size:
- good: one node in 250 has a GPU with ECC errors, one in 500 never answered;
- same: one clause fails on every GPU;
- silent: no node was ever reached;
- bad: every cell that can fail or lack a value does.
"""

from __future__ import annotations

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

REPOSITORY = Path(__file__).parent.parent
KINDS = ("good", "same", "silent", "bad")


def main() -> None:
    """Each size and kind in a process of its own."""
    if len(sys.argv) > 2 and sys.argv[1] == "--one":
        one(int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]) if len(sys.argv) > 4 else None)
        return
    print(f"{'fleet':7} {'nodes':>5} {'cells':>7}  {'read':>6} {'build':>6} {'json':>6} {'html':>6} {'junit':>6} "
          f"{'CPU s':>6} {'RSS MB':>7}  {'json':>7} {'html':>7} {'junit':>7} MB", flush=True)  # fmt: skip
    for kind in KINDS:
        for nodes in sys.argv[1:] or ("250", "500", "1000"):
            subprocess.run([sys.executable, __file__, "--one", nodes, kind], check=True)


def one(count: int, kind: str, keep: Path | None) -> None:
    """One certificate; its files are left in `keep`."""
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "src")]
    from pytest_gpuready.campaign.findings import Findings
    from pytest_gpuready.campaign.store import Store, Taken, key_of
    from pytest_gpuready.certificate import background
    from pytest_gpuready.certificate.build import Facts, Record, build
    from pytest_gpuready.certificate.html import render
    from pytest_gpuready.certificate.junit import junit
    from pytest_gpuready.certificate.nodes import node_entries
    from pytest_gpuready.certificate.written import json_chunks
    from pytest_gpuready.inventory import NodeFound, choose_profile, load_site, resolve
    from pytest_gpuready.model import Outcome
    from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
    from pytest_gpuready.probes.after import AfterProbe
    from pytest_gpuready.probes.node import NodeProbe
    from pytest_gpuready.probes.nvml import NvmlProbe
    from pytest_gpuready.transport.replay import DEMO, Replay

    folder = keep or Path(tempfile.mkdtemp(prefix="fleet-"))
    names = [f"node{n:04d}" for n in range(1, count + 1)]
    silent = set(names if kind == "silent" else names[41::500] if kind == "good" else ())
    folder.mkdir(parents=True, exist_ok=True)
    site_file = folder / "site.yaml"
    site_file.write_text(
        "site: 1\nprofile: h200-sxm\nlevel: 1\nnodes:\n"
        + "".join(f"  {name}: {{gpus: 8, nvlink: full, virtual: true}}\n" for name in names)
    )
    (folder / "store").mkdir(exist_ok=True)
    docs: dict[str, NodeFound] = {}
    store = Store(folder, Replay(DEMO))
    for place, name in enumerate(names):
        if name in silent:
            why = f"{name}: expected a login within 10 s, found none; see that it is up and lets us in"
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
    site = load_site(site_file)
    profile = choose_profile(site, None, docs)
    inventory = resolve(site, docs, profile=profile)
    allowed = {name: value for doc in docs.values() if doc.node_doc for name, value in doc.node_doc.environment.items()}
    probes = [NodeProbe(allowed), NvmlProbe(), AfterProbe(2, profile)]
    findings = Findings(store=store, probes=probes, profile=profile, inventory=inventory)
    def said(outcome: str, label: str) -> Record:
        """A test that agrees; of the bad fleet one that broke."""
        return Record(outcome="ERROR", reason=f"RuntimeError: {label} is bad") if kind == "bad" else agreed[outcome]

    agreed = {outcome.value: Record(outcome=outcome.value) for outcome in Outcome}
    spent: dict[str, float] = {}

    @contextmanager
    def step(name: str) -> Iterator[None]:
        before = time.process_time()
        yield
        spent[name] = time.process_time() - before

    log_of = functools.cache(lambda name: background.latest_log(docs, store, name))

    with step("read"):
        records = {
            (clause.id, part.name): [said(findings.verdict(clause, part).outcome.value, part.label)]
            for clause in profile.up_to(1)
            for part in inventory.parts(clause.per)
        }
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
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
    sizes = {}
    for name, write in (
        ("json", lambda: json_chunks(certificate)),
        ("html", lambda: [render(certificate).encode()]),
        ("junit", lambda: [junit(certificate)]),
    ):
        path = folder / f"certificate.{name}"
        with step(name), path.open("wb") as file:
            file.writelines(write())
        sizes[name] = path.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    mine = sum(spent.values()) - spent["read"]
    print(
        f"{kind:7} {count:5} {certificate.counts.cells:7}  "
        + " ".join(f"{spent[name]:6.2f}" for name in ("read", "build", "json", "html", "junit"))
        + f" {mine:6.2f} {peak:7.0f}  {sizes['json']:7.2f} {sizes['html']:7.3f} {sizes['junit']:7.2f}"
        + f"   ({base:.0f} MB before the certificate; {certificate.judged})",
        flush=True,
    )


def answers(name: str, place: int, kind: str) -> dict[str, object]:
    """What the two probes printed on a node, its own names in it."""
    import dataclasses

    from tests.nodes import eight_gpus

    if not _PLAIN:
        _PLAIN.update({r.command.argv[3]: r for r in eight_gpus() if r.command.argv[3] in ("node", "nvml")})
    made = {}
    for probe, result in _PLAIN.items():
        document = json.loads(result.stdout)
        data = document["data"]
        document["host"] = name
        if probe == "node":
            data["hostname"] = name
        else:
            for index, gpu in enumerate(data["gpus"]):
                number = place * 8 + index + 1
                gpu["uuid"] = f"GPU-{number:08d}-0000-4000-8000-{number:012d}"
                gpu["serial"] = f"165{number:010d}"
            if kind == "good" and place % 250 == 16:
                data["gpus"][5].update(_SLOW, ecc_uncorrected_volatile=2)
            if kind == "same":
                for gpu in data["gpus"]:
                    gpu.update(_SLOW)
            if kind == "bad":
                for gpu in data["gpus"]:
                    _spoil(gpu)
        text = json.dumps(document, separators=(",", ":")) + "\n"
        made[probe] = dataclasses.replace(
            result, command=dataclasses.replace(result.command, node=name), stdout=text, started="2026-11-30T11:04:11Z"
        )
    return made


_PLAIN: dict[str, object] = {}
_SLOW = {"persistence": False}


def _spoil(gpu: dict[str, object]) -> None:
    """Much of what NVML says another thing than any profile asks for."""
    gpu.update(_SLOW, ecc_uncorrected_volatile=2, remap_pending=1, remap_failure=1, recovery_action=1, mig_current=True)
    gpu.update(compute_mode=3, power_default_mw=500000, fabric_state=1, vbios="0", inforom_valid=False, nvlinks=[])


if __name__ == "__main__":
    main()
