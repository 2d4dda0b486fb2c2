"""The first contact: what every node says about itself before anything is measured, and whether it is the right one.

A node that cannot be reached, answers as another one or belies the site file costs only itself: nothing that it said
counts, and it is asked for nothing more.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_gpuready.agent.lease import MUTE
from pytest_gpuready.campaign.leased import HeldError
from pytest_gpuready.campaign.store import Taken, key_of
from pytest_gpuready.errors import GpuReadyError, InventoryError, LeaseError, TransportError
from pytest_gpuready.inventory import NodeFound, Site, choose_profile, denied
from pytest_gpuready.inventory.identity import impostors, shared
from pytest_gpuready.inventory.nodeset import fold
from pytest_gpuready.inventory.standins import among_hardware
from pytest_gpuready.model import CommandResult, Node, Profile
from pytest_gpuready.model.agent_doc import NodeDoc, NvmlDoc
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes import Probe
from pytest_gpuready.transport import StoppedError, Transport, run_each
from pytest_gpuready.transport.rubbish import KEPT_BYTES, shortened

LONGEST_BYTES = 4 * 2**20
"""More than any node has to say of itself: of 16 GPUs and 2,000 kernel lines it is less than a tenth."""


@dataclass(slots=True)
class First:
    """What was taken: scope -> results, node -> its documents, and node -> why it is asked for nothing more."""

    taken: dict[str, Taken]
    docs: dict[str, NodeFound] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)

    def silent(self) -> list[str]:
        """Nodes of whose word about themselves nothing counts."""
        return [name for name, found in self.docs.items() if found.node_doc is None and found.nvml_doc is None]

    def refuse(self, node: str, why: str, probes: Sequence[Probe]) -> None:
        """Take nothing that this node said; it stays among the evidence."""
        self.unreached[node] = why
        self.docs[node] = NodeFound(node=why, nvml="")
        for probe in probes:
            key = key_of(probe.name, node)
            before = self.taken.get(key) or Taken()
            self.taken[key] = Taken(problem=why, earlier=[*before.earlier, *before.results])


def ask_here(probes: Sequence[Probe], name: str, transport: Transport) -> First:
    """The inventory's commands on this machine, side by side: neither needs the other. Ctrl-C ends them at once."""
    node = Node(name=name, slots=())
    taken: dict[str, Taken] = {}

    def take(probe: Probe) -> None:
        try:
            result = Taken(results=[transport.run(probe.command(node, node.part))])
        except TransportError as error:
            result = Taken(problem=str(error))
        taken[key_of(probe.name, name)] = result

    threads = [threading.Thread(target=take, args=(probe,), daemon=True) for probe in probes]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(timeout=0.05)
    except KeyboardInterrupt:
        transport.stop()
        raise
    nothing = Taken(problem=f"{name}: expected an answer, found that it could not be asked; start pytest again")
    first = First({key: taken.get(key, nothing) for key in (key_of(p.name, name) for p in probes)})
    first.docs[name] = _found(first.taken, name)
    return first


def ask_all(probes: Sequence[Probe], names: Sequence[str], transport: Transport, site: Site | None) -> First:
    """The inventory's commands on many nodes, one fan-out each: only who answers the first as itself is asked on.

    Raises:
        LeaseError: another run holds all of them.
    """
    first = First({})
    held: list[str] = []
    for probe in probes:
        left = {name: Node(name=name, slots=()) for name in names if name not in first.unreached}
        for command, outcome in run_each(transport, [probe.command(node, node.part) for node in left.values()]):
            if left.pop(command.node, None) is None:
                continue  # a second result, or one that nobody asked for
            key = key_of(probe.name, command.node)
            if isinstance(outcome, CommandResult):
                first.taken[key] = _bounded(outcome, probe)
            elif not isinstance(outcome, StoppedError):
                first.taken[key] = Taken(problem=str(outcome))
                held += [str(outcome)] if isinstance(outcome, HeldError) else []
        if len(held) == len(names):
            others = f" (and {len(held) - 1} more nodes)" if len(held) > 1 else ""
            raise LeaseError(f"{held[0]}{others}")
        if probe is probes[0]:
            _only_themselves(first, probes, names, site)
    for name in names:
        if name not in first.unreached:
            first.docs[name] = _found(first.taken, name)
    for name, why in shared(_gpus(first.docs)).items():
        first.refuse(name, why, probes)
    first.docs = {name: first.docs[name] for name in names}
    return first


def _bounded(result: CommandResult, probe: Probe) -> Taken:
    """The result; of a long one that is no answer to this probe, or longer than any, its beginning: all nodes' are held
    until the run is open."""
    if len(result.stdout) > LONGEST_BYTES:
        why = f"expected at most {LONGEST_BYTES // 2**20} MiB of {probe.name}, found {len(result.stdout)} bytes"
        problem = f"{result.command.node}: {why}; run the command on the node by hand"
        return Taken(problem=problem, earlier=[shortened(result)])
    if len(result.stdout) > KEPT_BYTES:
        try:
            envelope(result, probe.name)
        except GpuReadyError:
            return Taken(results=[shortened(result)])
    return Taken(results=[result])


def _only_themselves(first: First, probes: Sequence[Probe], names: Sequence[str], site: Site | None) -> None:
    """Refuse who did not answer the first command, or as another one than its name says."""
    answers: dict[str, tuple[str, str]] = {}
    for name in names:
        taken = first.taken.get(key_of(probes[0].name, name)) or Taken(problem=f"{name}: it could not be asked")
        why = taken.problem
        if not why:
            try:
                said = envelope(taken.results[0], probes[0].name)
                answers[name] = (said.host, said.boot_id)
            except GpuReadyError as error:
                why = str(error)
        if why:
            first.refuse(name, why, probes)
    for name, why in impostors(answers, site).items():
        first.refuse(name, why, probes)


def _gpus(docs: Mapping[str, NodeFound]) -> dict[tuple[str, str], list[str]]:
    """Every GPU by its UUID, and all serials of a node together -> the nodes that show it: no GPU is in two machines.

    One serial alone may be that of a board whose GPUs are given to several virtual machines.
    """
    seen: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, found in docs.items():
        gpus = found.nvml_doc.gpus if found.nvml_doc else ()
        for gpu in gpus:
            if gpu.uuid:
                seen["GPU", gpu.uuid].append(name)
        serials = sorted({gpu.serial for gpu in gpus if gpu.serial})
        if len(serials) > 1:
            seen["GPU serials", ", ".join(serials)].append(name)
    return seen


def read_first(probes: Sequence[Probe], names: Sequence[str], read: Mapping[str, Taken]) -> First:
    """The first contact that another process of this run had, from its store."""
    first = First(dict(read))
    for name in names:
        problems = [first.taken[key_of(probe.name, name)].problem for probe in probes]
        if all(problems):
            first.unreached[name] = problems[0]
        first.docs[name] = _found(first.taken, name)
    return first


def hold_to_site(first: First, probes: Sequence[Probe], site: Site | None, option: str | None) -> Profile | None:
    """Refuse who names itself a stand-in among hardware, and who belies the site file; returns the profile that the
    others are judged by (`choose_profile`): a node that is refused has no say in it.

    Raises:
        ProfileError: the profile does not load.
        InventoryError: it contradicts what is there, or the site file; or there is only one node, and it belies the
            site file: then the file itself has to be corrected.
    """
    for name, why in among_hardware(site, first.docs).items():
        first.refuse(name, f"{name}: {why}", probes)
    while True:  # each turn refuses somebody
        profile = choose_profile(site, option, first.docs)
        wrong = denied(site, first.docs, profile=profile)
        for name, why in wrong.items():
            if len(first.docs) == 1:
                raise InventoryError(why)
            first.refuse(name, f"{name}: {why}", probes)
        if not wrong:
            return profile


def not_leased(taken: Mapping[str, Taken]) -> list[str]:
    """A line about the nodes that said that nobody is kept off them between the commands of this run."""
    results = [result for one in taken.values() for result in one.results]
    names = sorted({result.command.node for result in results if MUTE in result.stderr.splitlines()})
    said = (
        "the lease cannot be written there (is /run/lock full?), so between its commands this run kept nobody else off"
    )
    return [f"{fold(names)}: {said}"] if names else []


def _found(taken: Mapping[str, Taken], node: str) -> NodeFound:
    """Both documents of a node, or one line each that says why there is none."""
    host = boot_id = ""
    try:
        result = _result(taken, "node", node)
        said = envelope(result, "node")
        host, boot_id = said.host, said.boot_id  # also where the rest cannot be read
        node_found: NodeDoc | str = node_doc(result)
    except GpuReadyError as error:
        node_found = str(error)
    try:
        nvml_found: NvmlDoc | str = nvml_doc(_result(taken, "nvml", node))
    except GpuReadyError as error:
        nvml_found = "" if str(error) == node_found else str(error)
    return NodeFound(node=node_found, nvml=nvml_found, host=host, boot_id=boot_id)


def _result(taken: Mapping[str, Taken], probe: str, node: str) -> CommandResult:
    held = taken.get(key_of(probe, node)) or Taken()
    if held.problem or not held.results:
        raise TransportError(
            held.problem or f"{node}: expected what {probe} printed, found nothing; start pytest again"
        )
    return held.results[-1]  # of a run that is continued what is said today
