"""Who was tested, when and where: the facts of page one and the environment, each with the machine it belongs to."""

from __future__ import annotations

import math
from datetime import MAXYEAR, timedelta

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, NodeEntry
from pytest_gpuready.certificate.findings import without_verdict
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.words import NBSP

Pairs = list[tuple[str, str]]


def nodes_text(certificate: Certificate) -> str:
    names = [words.clean(node.name, 60) for node in certificate.nodes]
    if len(names) > 3:
        return f"{words.grouped(len(names))} nodes, {folded(names, 6)}"
    return words.listed(names) or "no node"


def _own_names(nodes: list[NodeEntry]) -> str:
    """What the machines call themselves, where that is another name than the site file's."""
    other = [node for node in nodes if node.host and node.host != node.name]
    if len(nodes) == 1:
        return f", calls itself {words.clean(other[0].host, 80)}" if other else ""
    told = [f"{words.clean(node.name, 40)} calls itself {words.clean(node.host, 60)}" for node in other]
    return f"; {words.listed(told, 3)}" if told else ""


def hardware_text(certificate: Certificate) -> str:
    """Expected GPUs by model, and how many of them are there."""
    gpus = [gpu for node in certificate.nodes for gpu in node.gpus]
    if not gpus:
        return "no GPU expected"
    models = list(dict.fromkeys((gpu.name, gpu.memory_mib) for gpu in gpus if gpu.name))
    said = []
    for name, mib in models[:3]:
        count = sum((gpu.name, gpu.memory_mib) == (name, mib) for gpu in gpus)
        memory = f", {words.grouped(mib)}{NBSP}MiB" if mib else ""
        short = len(models) == 1 and count < len(gpus) == sum(gpu.present for gpu in gpus)
        of_all = f" of {len(gpus)}" if short else ""
        said.append(f"{count}{of_all}{NBSP}\u00d7{NBSP}{words.clean(name, 60)}{memory}")
    present = sum(gpu.present for gpu in gpus)
    if present < len(gpus):
        said.append(f"{present} of {len(gpus)} expected GPUs found")
    return "; ".join(said) if said else f"{len(gpus)} GPUs expected, {present} found"


def measured(certificate: Certificate) -> str:
    """When the raw outputs were taken, first start to last end; "" where there is none with a time."""
    spans = []
    for entry in certificate.evidence:
        start = words.moment(entry.started)
        if start is None or not math.isfinite(entry.duration_s) or start.year == MAXYEAR:
            continue
        spans.append((start, start + timedelta(seconds=min(max(entry.duration_s, 0.0), 1e7))))
    if not spans:
        return ""
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return words.times_text(first.isoformat(), last.isoformat())


def facts(certificate: Certificate) -> Pairs:
    """Who, what and when, in the order of reading; only what somebody stated."""
    node = certificate.nodes[0] if len(certificate.nodes) == 1 else None
    rack = f", rack {words.clean(node.rack, 60)}" if node and node.rack else ""
    serial = f"{rack}, serial {words.clean(node.system_serial, 60)}" if node and node.system_serial else rack
    site, profile = certificate.site, certificate.profile
    replay = certificate.basis == "replay"
    name = nodes_text(certificate) + _own_names(certificate.nodes) + serial
    said = [
        ("Recording of" if replay else "Node" if node else "Nodes", name),
        ("Hardware in the recording" if replay else "Hardware", hardware_text(certificate)),
    ]
    if certificate.basis != "hardware":
        said.append(("Handed over by, to", f"nobody: a {certificate.basis} is not handed over"))
    elif site is not None:
        said += [("Handed over by", site.provider)] if site.provider else []
        agreed = ", ".join(text for text in (site.customer, site.agreement) if text)
        said += [("Received by", agreed)] if agreed else []
    taken = measured(certificate)
    said.append(("Recorded" if replay else "Measured", taken or "no raw output with a time"))
    if replay or not taken:
        said.append(("Judged", words.times_text(certificate.issued, certificate.issued)))
    said.append(("Profile", f"{profile.name} {profile.version}" if profile else "none: unknown hardware"))
    levels = f"{certificate.level_reached} of {certificate.level_asked} asked for is reached"
    said.append(("Level", levels + (", kept going past gates" if certificate.keep_going else "")))
    counts = certificate.counts
    missing, others = without_verdict(certificate), without_verdict(certificate, required=False)
    cells = f"{counts.clauses} on {words.count_text(counts.cells, 'part')}"
    tail = f"{words.count_text(len(missing), 'clause')} without verdict" if missing else "none missing"
    tail += f"; {len(others)} not required without a value" if others else ""
    said.append(("Clauses", f"{cells}, {tail}"))
    return said


def environment(certificate: Certificate) -> tuple[list[tuple[NodeEntry, Pairs]], Pairs]:
    """The environment of every node, and that of the machine that judged.

    A key that begins with the name of a node belongs to it and loses the name.
    """
    rest = dict(certificate.environment)
    nodes = []
    for node in sorted(certificate.nodes, key=lambda node: -len(node.name)):
        own = {key: rest.pop(key) for key in list(rest) if key.startswith(f"{node.name} ")}
        pairs = [
            ("Calls itself", node.host),
            ("System", node.system),
            ("System serial", node.system_serial),
            ("Rack", node.rack or ""),
            ("Kernel", node.kernel),
            ("Driver", node.driver),
            ("CUDA", node.cuda),
            ("Virtual machine", node.virtual),
            ("Boot id", node.boot_id),
        ]
        pairs = [(name, text) for name, text in pairs if text]
        named = ((key.removeprefix(f"{node.name} "), text) for key, text in own.items())
        pairs += [(key, text) for key, text in named if (key, text) != ("kernel", node.kernel)]
        nodes.append((node, pairs))
    order = {id(node): place for place, node in enumerate(certificate.nodes)}
    nodes.sort(key=lambda pair: order[id(pair[0])])
    made_by = [] if certificate.product in {f"{key} {text}" for key, text in rest.items()} else [certificate.product]
    return nodes, [*rest.items(), *(("made by", product) for product in made_by)]


SAME_ROWS_AT_MOST = 40
SAME_VALUES_AT_MOST = 4


def same_environment(certificate: Certificate) -> tuple[list[tuple[str, list[tuple[str, str]]]], Pairs]:
    """The environment of several nodes: name -> (value, nodes) pairs, the commonest value first, and that of the
    machine that judged. What is each node's own (boot id, serial, what it calls itself) stands in certificate.json.
    """
    values: dict[str, dict[str, list[str]]] = {}

    def add(name: str, text: str, node: str) -> None:
        if text:
            values.setdefault(name, {}).setdefault(text, []).append(node)

    for node in certificate.nodes:
        for name, text in (
            ("System", node.system),
            ("Kernel", node.kernel),
            ("Driver", node.driver),
            ("CUDA", node.cuda),
            ("Virtual machine", node.virtual),
        ):
            add(name, text, node.name)
    names = {node.name for node in certificate.nodes}
    judging = []
    for key, text in certificate.environment.items():
        node_name, space, name = key.partition(" ")
        if space and node_name in names:
            if name != "kernel":
                add(name, text, node_name)
        else:
            judging.append((key, text))
    made_by = [] if certificate.product in {f"{key} {text}" for key, text in judging} else [certificate.product]
    rows = []
    for name, found in list(values.items())[:SAME_ROWS_AT_MOST]:
        ordered = sorted(found.items(), key=lambda item: -len(item[1]))
        told = [
            (text, "" if len(nodes) == len(names) else folded(nodes, 8))
            for text, nodes in ordered[:SAME_VALUES_AT_MOST]
        ]
        rest = ordered[SAME_VALUES_AT_MOST:]
        told += [(f"and {len(rest)} more values", folded([n for _, nodes in rest for n in nodes], 4))] if rest else []
        rows.append((name, told))
    return rows, [*judging[:SAME_ROWS_AT_MOST], *(("made by", product) for product in made_by)]
