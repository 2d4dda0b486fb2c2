"""Expected beside found: site file, profile and the nodes' own answers become one `Inventory`.

Expected comes first: a GPU that should be there and is not keeps its slot. Whatever nobody declared is assumed in
the one way written here, and every assumption is a line on the certificate.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_gpuready import profiles
from pytest_gpuready.errors import InventoryError, ProfileError
from pytest_gpuready.inventory.dcgm import dcgm_of
from pytest_gpuready.inventory.found import NodeFound, gpus_found, models, pci_ids, unplaced
from pytest_gpuready.inventory.listed import listed, named_twice
from pytest_gpuready.inventory.site import DeclaredNode, Site, contradictions, level_unknown
from pytest_gpuready.inventory.standins import whole_run
from pytest_gpuready.model import Clause, Gpu, Inventory, Node, Part, Profile, Slot
from pytest_gpuready.model.agent_doc import GpuDoc
from pytest_gpuready.parse.yaml_file import shown

NOTHING_FOUND = "no NVIDIA GPU on the PCI bus or by NVML, and none declared: at least one is expected"
ONE_OF_A_BOARD = "one GPU of an HGX board in a virtual machine: NVML reports no NVLink; none is expected"
NOT_SUPPORTED = "NotSupported"
"""NVML's word for what a GPU does not have."""
NO_BOOT_ID = "boot id unknown: a reboot in between would not show"
NOTHING_SAYS_SO = "declared a virtual machine, although nothing says so: what it hides is not required"
SET_UP_BY = {"nccl_tests": "DCGM_NCCL_TESTS_BIN_PATH", "rist": "DCGM_RIST_BIN_PATH"}
"""Test that DCGM runs only where a variable names its program -> that variable."""
VIRTUALIZATION = {1: "NVML: passthrough", 2: "NVML: vGPU"}
"""NVML's modes of a guest; 3 and 4 are those of a host that serves guests, which is bare metal itself."""


def choose_profile(site: Site | None, option: str | None, docs: Mapping[str, NodeFound]) -> Profile | None:
    """The profile to judge by, with the site file's exclusions in its clauses.

    The command line or the site file names it; otherwise it is the shipped one for the PCI ids found, and None where
    none knows them. `sha256` stays that of the profile as agreed, without exclusions.

    Raises:
        ProfileError: it does not load.
        InventoryError: two profiles are named, it does not fit the GPUs found, or the site file contradicts it.
    """
    ids = pci_ids(docs)
    unknown = profiles.unknown(site.profile) if site and site.profile else ""
    if site and unknown:
        raise ProfileError(site.wrong(("profile",), unknown))
    named = profiles.load(site.profile, relative_to=site.directory) if site and site.profile else None
    if option:
        chosen = profiles.load(option)
        if site and named and named.sha256 != chosen.sha256:
            says = f"expected one profile, found {named.name} here and {chosen.name} on the command line; name one"
            raise InventoryError(site.wrong(("profile",), says))
    votes = models(docs) if len(docs) > 1 else ids
    profile = profiles.load(option) if option else named or profiles.for_pci_ids(votes)
    if profile is None:
        aims_too_high = level_unknown(site, profiles.load("base")) if site else ""
        if aims_too_high:
            raise InventoryError(aims_too_high)
        return None
    if ids and profile.pci_ids and not set(ids) & set(profile.pci_ids):
        says = (
            f"expected a profile for the GPUs found ({', '.join(sorted(set(ids)))}), found {profile.name} for "
            f"{', '.join(profile.pci_ids)}; name the right one, or the machine is not the one agreed"
        )
        raise InventoryError(site.wrong(("profile",), says) if site and named else f"profile {shown(option)}: {says}")
    lines = (*contradictions(site, profile), level_unknown(site, profile)) if site else ()
    if any(lines):
        raise InventoryError("\n".join(filter(None, lines)))
    reasons = {excluded.clause: excluded.reason for excluded in site.exclude} if site else {}
    clauses = tuple(dataclasses.replace(c, excluded=reasons.get(c.id, "")) for c in profile.clauses)
    return dataclasses.replace(profile, clauses=clauses)


def node_name(site: Site | None, hostname: str) -> str:
    """The name of the node that is called `hostname`: the site file's where it declares one node, else the host's."""
    if site and len(site.nodes) == 1:
        return site.nodes[0].name
    return re.sub(r"[^A-Za-z0-9._-]", "-", hostname).lstrip("._-")[:64] or "node"


def resolve(
    site: Site | None, docs: Mapping[str, NodeFound], *, profile: Profile | None, option: str | None = None
) -> Inventory:
    """Every expected node with every expected GPU, what was found in its place, and what was assumed.

    `profile` is what `choose_profile` chose, `option` what the command line named.

    Raises:
        InventoryError: a node answered that the site file does not declare, or there is none at all.
    """
    assumptions: list[str] = []
    if profile is None:
        ids = ", ".join(sorted(set(pci_ids(docs))))
        why = f"no single one is known for {ids}" if ids else "no GPU was found, so no profile fits"
        assumptions.append(f"no profile: none is named, and {why}; no limit of a model applies")
        if site and site.exclude:
            out = ", ".join(excluded.clause for excluded in site.exclude)
            assumptions.append(f"no profile, so the site file's exclusions are ignored: {out}")
    elif not option and not (site and site.profile):
        assumptions.append(f"profile {profile.name}: the one for PCI id {', '.join(profile.pci_ids)}")
    nodes: list[Node] = []
    problems: dict[str, str] = {}
    pairs = _pairs(site, docs)
    several = len(pairs) > 1
    usual = _usual_count([found for _, declared, found in pairs if found and not (declared and declared.count)])
    for name, declared, found in pairs:
        found_or_nothing = found or NodeFound(node="the node did not answer", nvml="")
        said: list[str] = []
        node = _node(name, declared, found_or_nothing, profile, said, usual=usual)
        dcgm, no_dcgm = dcgm_of(site, found_or_nothing, node.cuda, said)
        nodes.append(dataclasses.replace(node, dcgm=dcgm, dcgm_none=no_dcgm))
        assumptions += [f"{name}: {line}" for line in said] if several else said
        if found is None or found.problem:
            problems[name] = found_or_nothing.problem
    return Inventory(
        nodes=tuple(nodes),
        assumptions=tuple(dict.fromkeys(assumptions)),
        stand_in=whole_run(site, docs),
        problems=problems,
    )


def denied(site: Site | None, docs: Mapping[str, NodeFound], *, profile: Profile | None) -> dict[str, str]:
    """Of the nodes that belie the site file, why: two of its entries name one GPU there, or it declares no NVLink and
    NVML counts some."""
    wrong = {}
    for name, declared, found in _pairs(site, docs):
        if site and declared and found:
            lines = (*named_twice(site, declared, gpus_found(found)), *_denied(site, declared, found, profile))
            if lines:
                wrong[name] = "\n".join(lines)
    return wrong


def applies(clause: Clause, node: Node) -> str:
    """Why a clause does not apply to a node, "" where it does. What the profile itself takes out is not asked here."""
    return next(filter(None, (_lacks(need, node) for need in clause.needs)), "")


def _lacks(need: str, node: Node) -> str:
    """Why a node does not have what a clause needs, "" where it does."""
    if need in SET_UP_BY:
        known = node.dcgm
        if known is not None and SET_UP_BY[need] in known.environment:
            return ""
        unknown = known.environment_problem if known else ""
        why = f"is not known to be set ({unknown})" if unknown else f"is not set on {node.name}"
        return f"{SET_UP_BY[need]} {why}, so DCGM is not asked for {need}"
    lacks = {
        "peers": len(node.slots) < 2 and f"{node.name} has fewer than two expected GPUs, so there is no peer",
        "nvlink": not node.nvlink and (node.nvlink_none or f"no NVLink is expected on {node.name}"),
        "nvswitch": not node.nvswitch and (node.nvlink_none or f"no NVSwitch is expected on {node.name}"),
        "fp8": not node.fp8 and "the profile promises no FP8 of this model",
        "fp4": not node.fp4 and "the profile promises no FP4 and MXFP8 of this model",
        "dcgm": node.dcgm_none,
        "dcgm4": node.dcgm is not None and node.dcgm.version[:1] in "123" and _old(node.dcgm.version),
        "nvidia_cpu": not (node.dcgm and node.dcgm.machine == "aarch64") and f"no NVIDIA CPU is known on {node.name}",
    }
    return lacks[need] or ""


def _old(version: str) -> str:
    return f"DCGM {version} has no such test" if version else ""


def _pairs(site: Site | None, docs: Mapping[str, NodeFound]) -> list[tuple[str, DeclaredNode | None, NodeFound | None]]:
    if not docs and not (site and site.nodes):
        raise InventoryError("nodes: expected at least one node, found none; ask one, or declare it in the site file")
    if site is None or not site.nodes:
        return [(name, None, found) for name, found in docs.items()]
    if len(site.nodes) == 1 and len(docs) == 1:
        return [(site.nodes[0].name, site.nodes[0], next(iter(docs.values())))]
    declared = [node.name for node in site.nodes]
    for name in docs:
        if name not in declared:
            says = f"expected answers of {', '.join(declared)}, found one of {shown(name)}; declare it here"
            raise InventoryError(site.wrong(("nodes",), says))
    return [(node.name, node, docs.get(node.name)) for node in site.nodes]


def _node(
    name: str,
    declared: DeclaredNode | None,
    found: NodeFound,
    profile: Profile | None,
    assumptions: list[str],
    *,
    usual: int,
) -> Node:
    node, nvml = found.node_doc, found.nvml_doc
    gpus = gpus_found(found)
    if node and not found.boot_id:  # then no other document may name one either, else it counts as of another boot
        assumptions.append(NO_BOOT_ID)
    if node and not node.pci_visible:
        assumptions.append("no PCI bus is visible: GPUs are known by NVML alone")
    if declared and declared.gpus:
        slots, extra = listed(name, declared.gpus, gpus, assumptions)
    else:
        count = declared.count if declared else 0
        if not count:
            count = _assumed_count(found, gpus, assumptions, usual)
        slots = tuple(Slot(part=Part(node=name, index=i), gpu=gpus[i] if i < len(gpus) else None) for i in range(count))
        extra = gpus[count:]
    # A GPU that NVML cannot open and names no address of may be any that is missing; beyond these it is one too many.
    empty, nameless = sum(1 for slot in slots if slot.gpu is None), unplaced(found)
    virtual = _virtual(declared, found, assumptions)
    none = _no_nvlink(declared, found, profile, assumptions, single=len(slots) == 1, virtual=bool(virtual))
    return Node(
        name=name,
        slots=slots,
        host=found.host,
        boot_id=found.boot_id,
        kernel=node.kernel if node else "",
        driver=(nvml.driver if nvml else "") or (node.driver_module if node else ""),
        cuda=nvml.cuda if nvml else "",
        system=f"{node.system_vendor} {node.system_product}".strip() if node else "",
        system_serial=node.system_serial if node else "",
        virtual=virtual,
        nvlink=not none,
        nvswitch=not none and bool(profile and profile.nvswitch),
        fp8=bool(profile and profile.fp8),
        fp4=bool(profile and profile.fp4),
        nvlink_none=none,
        rack=declared.rack if declared else "",
        extra_gpus=(*(gpu.bdf for gpu in extra), *nameless[empty:]),
    )


def _usual_count(found: Sequence[NodeFound]) -> int:
    """How many GPUs most of these nodes have; 0 where there are fewer than three, or no number is that of most."""
    found = [each for each in found if not each.problem]
    counts = Counter(len(gpus_found(each)) + len(unplaced(each)) for each in found)
    usual, nodes = (counts.most_common(1) or [(0, 0)])[0]
    return usual if len(found) > 2 and 2 * nodes > len(found) else 0


def _assumed_count(found: NodeFound, gpus: tuple[Gpu, ...], assumptions: list[str], usual: int) -> int:
    """How many GPUs are expected where nobody declared a number: what bus and NVML count, and never none; `usual`
    where most other nodes have more."""
    hidden = len(unplaced(found))
    count = len(gpus) + hidden
    if count < usual:
        assumptions.append(f"expected {usual} GPUs, as most of the nodes have: {count} found")
        return usual
    if not count:
        nothing = f"the node could not be asked ({found.problem}), and no GPU is declared: at least one is expected"
        assumptions.append(nothing if found.problem else NOTHING_FOUND)
        return 1
    on_bus = sum(gpu.on_bus for gpu in gpus)
    said = [f"{on_bus} found on the PCI bus"] if on_bus else []
    said += [f"{len(gpus) - on_bus} shown by NVML alone"] if len(gpus) > on_bus else []
    said += [f"{hidden} counted by NVML that cannot be opened"] if hidden else []
    how = "found on the PCI bus" if on_bus == count else ", ".join(said)
    assumptions.append(f"expected {count} GPU{'s' if count > 1 else ''}: {how}")
    return count


def _virtual(declared: DeclaredNode | None, found: NodeFound, assumptions: list[str]) -> str:
    """What says that the node is a virtual machine, "" on bare metal. A declaration stands above what was detected."""
    detected = found.node_doc.virtual if found.node_doc else ""
    for gpu in found.nvml_doc.gpus if found.nvml_doc else ():
        detected = detected or VIRTUALIZATION.get(gpu.virtualization_mode or 0, "")
    if declared and declared.virtual is not None:
        if declared.virtual:
            if found.node_doc and not detected:
                assumptions.append(NOTHING_SAYS_SO)
            return detected or "declared"
        if detected:
            assumptions.append(f"declared bare metal and held to it, although the machine says {detected}")
        return ""
    if detected:
        assumptions.append(f"virtual machine ({detected}): what it hides is not required")
    return detected


def _denied(site: Site, declared: DeclaredNode, found: NodeFound, profile: Profile | None) -> tuple[str, ...]:
    """An error line where `nvlink: none` is declared and NVML counts links; a model without NVLink promises none."""
    linked = [gpu for gpu in found.nvml_doc.gpus if gpu.nvlink_count] if found.nvml_doc else []
    if declared.nvlink != "none" or not linked or (profile and not profile.nvlink):
        return ()
    says = (
        f"expected nvlink: full, since NVML counts {linked[0].nvlink_count} NVLinks on {linked[0].bdf}, found none; "
        "correct it, or exclude the NVL clauses with a reason"
    )
    return (site.wrong(("nodes", declared.key, "nvlink"), says),)


def _no_nvlink(
    declared: DeclaredNode | None,
    found: NodeFound,
    profile: Profile | None,
    assumptions: list[str],
    *,
    single: bool,
    virtual: bool,
) -> str:
    """Why no NVLink is expected on a node, "" where it is."""
    documents = found.nvml_doc.gpus if found.nvml_doc else []
    if declared and declared.nvlink:
        if declared.nvlink == "full":
            return ""
        if profile is None or profile.nvlink:
            assumptions += _uncounted(documents)
        return "the site file declares nvlink: none"
    seen = any(gpu.nvlink_count for gpu in documents)
    if profile is None:
        return "" if seen else "no profile says that there is NVLink, and NVML shows none"
    if not profile.nvlink:
        return f"the profile {profile.name} has no NVLink"
    refused = [gpu for gpu in documents if not gpu.nvlink_count and gpu.errors.get("nvlink_count") == NOT_SUPPORTED]
    if virtual and single and not seen and len(documents) == 1 and refused:
        assumptions.append(ONE_OF_A_BOARD)
        return ONE_OF_A_BOARD
    return ""


def _uncounted(documents: Sequence[GpuDoc]) -> list[str]:
    """A line for each GPU of which nobody knows whether it has the NVLinks that the site file denies."""
    asked = [(gpu.bdf, gpu.errors.get("nvlink_count", "")) for gpu in documents if gpu.nvlink_count is None]
    return [
        f"nvlink: none is declared, and nothing confirms it for {bdf}: its NVLinks could not be counted "
        f"({shown(why) if why else 'no answer'})"
        for bdf, why in asked
        if why != NOT_SUPPORTED
    ]
