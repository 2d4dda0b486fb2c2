"""Expected beside found: slots, assumptions, NVLink, virtual machines, profiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.errors import InventoryError, ProfileError
from pytest_gpuready.inventory import NodeFound, Site, applies, choose_profile, denied, node_name, resolve
from pytest_gpuready.inventory.resolve import NOTHING_FOUND, NOTHING_SAYS_SO, ONE_OF_A_BOARD
from pytest_gpuready.model import Inventory, Node
from tests.inventory.hand_made import bdf, gpu_doc, healthy, node_found, pci_gpu

SiteOf = Callable[[str], Site]
H200 = profiles.load("h200-sxm")


def one(site: Site | None, found: NodeFound, profile: str | None = "h200-sxm") -> tuple[Inventory, Node]:
    inventory = resolve(site, {"gpu-07.example": found}, profile=profiles.load(profile) if profile else None)
    (node,) = inventory.nodes
    return inventory, node


def test_without_a_site_file_the_bus_says_what_is_expected() -> None:
    """Two cards on the bus are two expected GPUs, and the certificate says so."""
    inventory, node = one(None, healthy(2))
    assert [s.bdf for s in node.slots] == [bdf(0), bdf(1)]
    assert "expected 2 GPUs: found on the PCI bus" in inventory.assumptions
    assert "profile h200-sxm: the one for PCI id 10de:2335" in inventory.assumptions
    assert (node.name, node.system, node.driver, node.cuda) == (
        "gpu-07.example",
        "Example Server 8",
        "580.159.04",
        "13.0",
    )
    assert (node.boot_id, node.virtual, node.nvlink, node.nvswitch) == ("b1", "", True, True)


def test_with_nothing_there_one_gpu_is_expected() -> None:
    """A node without any GPU has one empty slot: it can never be green for lack of parts."""
    inventory, node = one(None, node_found([], []), None)
    assert [(s.part.name, s.gpu) for s in node.slots] == [("gpu-07.example/gpu0", None)]
    assert NOTHING_FOUND in inventory.assumptions


def test_a_node_that_cannot_be_asked_still_expects_one() -> None:
    """Where both agents failed there is a slot, a problem, and no claim about the bus."""
    inventory, node = one(None, NodeFound(node="no python there", nvml="no python there"), None)
    assert len(node.slots) == 1
    assert inventory.problems == {node.name: "no python there; no python there"}
    assert NOTHING_FOUND not in inventory.assumptions
    assert any(line.startswith("the node could not be asked") for line in inventory.assumptions)


def test_a_gpu_lost_before_it_had_an_address_is_expected() -> None:
    """NVML counts eight and opens seven in a sandbox without PCI: eight are expected."""
    found = node_found([], [gpu_doc(i) for i in range(7)], lost={"7": "GpuIsLost"}, pci_visible=False)
    inventory, node = one(None, found)
    assert len(node.slots) == 8
    assert node.slots[7].gpu is None
    assert "no PCI bus is visible: GPUs are known by NVML alone" in inventory.assumptions
    assert "expected 8 GPUs: 7 shown by NVML alone, 1 counted by NVML that cannot be opened" in inventory.assumptions
    assert not any(s.gpu.on_bus for s in node.slots if s.gpu)


def test_a_declared_count_keeps_missing_gpus(site_of: SiteOf) -> None:
    """Eight declared and seven found is one empty slot, named after the declared node, and nothing is assumed."""
    inventory, node = one(
        site_of("site: 1\nprofile: h200-sxm\ndiagnostics: builtin\nnodes: {node01: {gpus: 8}}\n"), healthy(7)
    )
    assert [s.part.name for s in node.slots] == [f"node01/gpu{i}" for i in range(8)]
    assert [s.gpu is None for s in node.slots] == [False] * 7 + [True]
    assert inventory.assumptions == ()


def test_gpus_beyond_the_count_are_extra(site_of: SiteOf) -> None:
    """A ninth card is named as unexpected."""
    _, node = one(site_of("site: 1\nnodes: {a: {gpus: 2}}\n"), healthy(3))
    assert node.extra_gpus == (bdf(2),)


def test_a_lost_gpu_without_address_beyond_the_count_is_extra(site_of: SiteOf) -> None:
    """Two declared, two answering, and a third and fourth that NVML cannot open: both are unexpected, by index."""
    cards = [gpu_doc(i) for i in range(2)]
    bus, lost = [pci_gpu(i) for i in range(2)], {"2": "GpuIsLost", "3": "Unknown"}
    two = site_of("site: 1\nnodes: {a: {gpus: 2}}\n")
    _, node = one(two, node_found(bus, cards, lost=lost))
    assert node.extra_gpus == ("NVML index 2 (GpuIsLost)", "NVML index 3 (Unknown)")
    listed = site_of(f"site: 1\nnodes: {{a: {{gpus: [{{bdf: '{bdf(0)}'}}, {{bdf: '{bdf(1)}'}}]}}}}\n")
    assert one(listed, node_found(bus, cards, lost={"2": "GpuIsLost"}))[1].extra_gpus == ("NVML index 2 (GpuIsLost)",)


def test_a_lost_gpu_without_address_fills_an_empty_slot_first(site_of: SiteOf) -> None:
    """Of three that NVML cannot open one is on the bus, one may be the missing one, and the third is unexpected."""
    lost = {"2": "GpuIsLost", "3": "GpuIsLost", "4": "GpuIsLost"}
    found = node_found([pci_gpu(i) for i in range(3)], [gpu_doc(0), gpu_doc(1)], lost=lost)
    _, node = one(site_of("site: 1\nnodes: {a: {gpus: 4}}\n"), found)
    assert [slot.gpu is None for slot in node.slots] == [False, False, False, True]
    assert node.extra_gpus == ("NVML index 4 (GpuIsLost)",)
    assert one(None, found)[1].extra_gpus == ()


def test_a_list_matches_by_address_uuid_and_serial(site_of: SiteOf) -> None:
    """Slots keep the order of the list, whatever the addresses are; the module is checked and a difference told."""
    inventory, node = one(
        site_of(
            "site: 1\nnodes:\n  a:\n    gpus:\n"
            "      - {serial: '1650000000002', module: 7}\n"
            "      - {uuid: gpu-00000000-0000-4000-8000-000000000000}\n"
            "      - {bdf: 00000000:29:00.0}\n"
        ),
        healthy(4),
    )
    assert [s.bdf for s in node.slots] == [bdf(2), bdf(0), bdf(1)]
    assert node.extra_gpus == (bdf(3),)
    assert "a GPU 0 (serial 1650000000002): declared in module 7, found in module 3" in inventory.assumptions


def test_two_entries_for_one_gpu_are_an_error(site_of: SiteOf) -> None:
    """An address and a serial number of the same card would hide a missing one: both are named with the line."""
    site = site_of(
        f"site: 1\nnodes:\n  a:\n    gpus:\n      - {{serial: '1650000000000'}}\n      - {{bdf: '{bdf(0)}'}}\n"
    )
    assert denied(site, {"a": healthy(2)}, profile=H200) == {
        "a": "site.yaml line 6 $.nodes.a.gpus[1]: expected every GPU once, found serial 1650000000000 and 0000:19:00.0 "
        "to be the same one at 0000:19:00.0; keep one"
    }


def test_a_board_with_two_gpus_has_one_serial_number(site_of: SiteOf) -> None:
    """The serial number takes the GPU of its board that no other entry names, in whatever order they stand."""
    board = node_found([pci_gpu(0), pci_gpu(1)], [gpu_doc(0, serial="B1"), gpu_doc(1, serial="B1")])
    _, node = one(site_of(f"site: 1\nnodes: {{a: {{gpus: [{{serial: B1}}, {{bdf: '{bdf(0)}'}}]}}}}\n"), board)
    assert [s.bdf for s in node.slots] == [bdf(1), bdf(0)]


def test_a_missing_listed_gpu_keeps_name_and_module(site_of: SiteOf) -> None:
    """The empty slot of a serial number that is not there can still be found by a technician."""
    site = site_of("site: 1\nnodes: {a: {gpus: [{serial: 'X1', module: 5}, {bdf: '0000:ff:00.0'}]}}\n")
    _, node = one(site, healthy(0))
    assert [s.where for s in node.slots] == ["a GPU 0 module 5 serial X1", "a GPU 1 0000:ff:00.0"]


def test_a_dead_gpu_takes_its_own_place(site_of: SiteOf) -> None:
    """A card that is on the bus and silent is the one missing by serial, not a missing and an unexpected one."""
    found = node_found([pci_gpu(0), pci_gpu(1)], [gpu_doc(0)])
    site = site_of("site: 1\nnodes: {a: {gpus: [{serial: '1650000000000'}, {serial: '1650000000001'}]}}\n")
    inventory, node = one(site, found)
    assert [s.bdf for s in node.slots] == [bdf(0), bdf(1)]
    assert node.extra_gpus == ()
    assert any("taken to be the GPU at" in line for line in inventory.assumptions)


def test_a_stranger_does_not_take_a_listed_place(site_of: SiteOf) -> None:
    """A healthy card with another serial is unexpected, and the declared one is missing."""
    _, node = one(site_of("site: 1\nnodes: {a: {gpus: [{serial: 'X1'}]}}\n"), healthy(1))
    assert node.slots[0].gpu is None
    assert node.extra_gpus == (bdf(0),)


def single(**gpu: object) -> NodeFound:
    refused = {"nvlink_count": None, "errors": {"nvlink_count": "NotSupported"}, "virtualization_mode": 1, **gpu}
    return node_found([pci_gpu(0)], [gpu_doc(0, **refused)])


def test_one_gpu_of_a_board_in_a_vm_has_no_nvlink() -> None:
    """NVML's NotSupported for the links of a single passed-through card is believed, and printed."""
    inventory, node = one(None, single())
    assert (node.nvlink, node.nvswitch, node.virtual) == (False, False, "NVML: passthrough")
    assert ONE_OF_A_BOARD in inventory.assumptions
    topology = H200.clause("NVL-1")
    assert topology
    assert applies(topology, node) == ONE_OF_A_BOARD


@pytest.mark.parametrize(
    "found",
    [
        single(virtualization_mode=0),
        single(errors={"nvlink_count": "Unknown"}),
        single(nvlink_count=18, errors={}),
        healthy(2, virtual="kvm"),
        NodeFound(node="no answer", nvml="no answer"),
    ],
)
def test_everywhere_else_nvlink_is_expected(found: NodeFound) -> None:
    """Bare metal, another error, links shown, two cards, or no answer: links that are missing must show."""
    assert one(None, found)[1].nvlink


def test_nvlink_as_declared_stands_above_what_is_not_seen(site_of: SiteOf) -> None:
    """none takes NVLink out where NVML counts no link, and full keeps it although NVML shows none."""
    none = one(site_of("site: 1\nnodes: {a: {nvlink: none}}\n"), single(nvlink_count=0))[1]
    full = one(site_of("site: 1\nnodes: {a: {nvlink: full}}\n"), single())[1]
    assert (none.nvlink, none.nvswitch, none.nvlink_none) == (False, False, "the site file declares nvlink: none")
    assert (full.nvlink, full.nvswitch) == (True, True)


def test_nvlink_that_is_there_cannot_be_declared_away(site_of: SiteOf) -> None:
    """nvlink: none beside links that NVML counts is an error with its line, with a profile and without."""
    site = site_of("site: 1\nnodes:\n  a:\n    nvlink: none\n")
    found = node_found([pci_gpu(0), pci_gpu(1)], [gpu_doc(0, nvlink_count=0), gpu_doc(1)])
    for profile in (H200, None):
        assert denied(site, {"a": found}, profile=profile) == {
            "a": f"site.yaml line 4 $.nodes.a.nvlink: expected nvlink: full, since NVML counts 18 NVLinks on {bdf(1)}, "
            "found none; correct it, or exclude the NVL clauses with a reason"
        }


def test_what_nothing_confirms_is_said_beside_nvlink_none(site_of: SiteOf) -> None:
    """A GPU whose links could not be counted is named where none is declared; one that has no such thing is not."""
    site = site_of("site: 1\nnodes: {a: {gpus: 3, nvlink: none}}\n")
    gpus = [
        gpu_doc(0, nvlink_count=None, errors={"nvlink_count": "Unknown"}),
        gpu_doc(1, nvlink_count=None, errors={"nvlink_count": "NotSupported"}),
        gpu_doc(2, nvlink_count=0),
    ]
    inventory, node = one(site, node_found([pci_gpu(i) for i in range(3)], gpus))
    assert node.nvlink_none == "the site file declares nvlink: none"
    assert [line for line in inventory.assumptions if "nvlink" in line] == [
        f"nvlink: none is declared, and nothing confirms it for {bdf(0)}: its NVLinks could not be counted ('Unknown')"
    ]


def test_a_boot_that_nobody_names_is_said() -> None:
    """Where the kernel gives no boot id a reboot between two measurements would not be seen: that is said."""
    says = "boot id unknown: a reboot in between would not show"
    assert says in one(None, dataclasses.replace(healthy(2), boot_id=""))[0].assumptions
    assert says not in one(None, healthy(2))[0].assumptions


def test_a_model_without_nvlink_expects_none() -> None:
    """An L40S node has no NVLink and says whose word that is."""
    card = {"pci_id": "10de:26b9", "nvlink_count": None}
    node = one(None, node_found([pci_gpu(0, "10de:26b9")], [gpu_doc(0, **card)]), "l40s")[1]
    assert (node.nvlink, node.nvlink_none) == (False, "the profile l40s has no NVLink")


def test_virtual_machines_are_declared_or_detected(site_of: SiteOf) -> None:
    """Kernel and NVML tell a guest; NVML's host modes do not; a declaration wins and stays strict."""
    assert one(None, healthy(2, virtual="kvm"))[1].virtual == "kvm"
    assert "virtual machine (kvm): what it hides is not required" in one(None, healthy(2, virtual="kvm"))[0].assumptions
    assert one(None, node_found([pci_gpu(0)], [gpu_doc(0, virtualization_mode=2)]))[1].virtual == "NVML: vGPU"
    assert one(None, node_found([pci_gpu(0)], [gpu_doc(0, virtualization_mode=3)]))[1].virtual == ""
    bare, node = one(site_of("site: 1\nnodes: {a: {virtual: false}}\n"), healthy(2, virtual="kvm"))
    assert node.virtual == ""
    assert "declared bare metal and held to it, although the machine says kvm" in bare.assumptions


def test_a_virtual_machine_that_nothing_shows_is_told(site_of: SiteOf) -> None:
    """virtual: true without a hypervisor in sight is taken at its word, and the certificate says so."""
    site = site_of("site: 1\nnodes: {a: {virtual: true}}\n")
    inventory, node = one(site, healthy(2))
    assert (node.virtual, NOTHING_SAYS_SO in inventory.assumptions) == ("declared", True)
    for shown in (healthy(2, virtual="kvm"), node_found([pci_gpu(0)], [gpu_doc(0, virtualization_mode=1)])):
        inventory, node = one(site, shown)
        assert (node.virtual != "declared", NOTHING_SAYS_SO in inventory.assumptions) == (True, False)


def test_needs_follow_the_node() -> None:
    """A single card has no peer; two with NVLink have all."""
    topology, concurrent, fabric = (H200.clause(c) for c in ("NVL-6", "PCIE-8", "GPU-27"))
    assert topology
    assert concurrent
    assert fabric
    two, alone = one(None, healthy(2))[1], one(None, healthy(1))[1]
    assert [applies(c, two) for c in (topology, concurrent, fabric)] == ["", "", ""]
    assert "fewer than two" in applies(topology, alone)
    assert "fewer than two" in applies(concurrent, alone)
    assert applies(fabric, alone) == ""


def test_stand_ins_name_themselves_or_are_declared(site_of: SiteOf) -> None:
    """A GPU or driver that calls itself a stand-in sets the basis; so does the site file; real names do not."""
    assert one(None, healthy(2))[0].stand_in == ""
    named = node_found([pci_gpu(0)], [gpu_doc(0, name="H200 Stand-In")])
    assert "names itself a stand-in" in one(None, named)[0].stand_in
    assert one(site_of("site: 1\nstand_in: a laptop\n"), healthy(2))[0].stand_in == "a laptop"


def test_node_names_are_safe(site_of: SiteOf) -> None:
    """A host name becomes letters, digits, dot, dash and underscore, 64 at most; a declared node gives its own."""
    assert node_name(None, "gpu 7/ä" + "x" * 100) == ("gpu-7--" + "x" * 100)[:64]
    assert node_name(None, "../x") == "x"
    assert node_name(None, "") == "node"
    assert node_name(site_of("site: 1\nnodes: {node01: {}}\n"), "gpu7") == "node01"


def test_a_declared_node_that_did_not_answer_is_kept(site_of: SiteOf) -> None:
    """Of two declared nodes the silent one has all its slots, and a problem."""
    site = site_of("site: 1\nnodes: {a: {gpus: 8}, b: {gpus: 8}}\n")
    inventory = resolve(site, {"a": healthy(8)}, profile=H200)
    assert [len(n.slots) for n in inventory.nodes] == [8, 8]
    assert inventory.problems == {"b": "the node did not answer"}
    with pytest.raises(InventoryError, match="found one of 'c'"):
        resolve(site, {"a": healthy(8), "c": healthy(8)}, profile=H200)


def test_no_node_at_all_is_an_error(site_of: SiteOf) -> None:
    """A run over nothing must not end as an empty certificate; a declared node is enough to be missed."""
    with pytest.raises(InventoryError, match="expected at least one node"):
        resolve(None, {}, profile=H200)
    assert len(resolve(site_of("site: 1\nnodes: {a: {gpus: 8}}\n"), {}, profile=H200).parts("gpu")) == 8


def test_the_profile_is_that_of_the_cards_found() -> None:
    """Without a word from anybody the PCI id chooses; unknown cards have no profile."""
    chosen = choose_profile(None, None, {"a": healthy(8)})
    assert chosen == H200
    assert choose_profile(None, None, {"a": node_found([pci_gpu(0, "10de:ffff")], [])}) is None
    assert choose_profile(None, None, {"a": node_found([], [])}) is None


def test_unknown_cards_are_said_to_have_no_profile() -> None:
    """Where no profile was chosen the certificate says for which PCI id."""
    inventory, _ = one(None, node_found([pci_gpu(0, "10de:ffff")], []), None)
    assert any(line.startswith("no profile:") and "10de:ffff" in line for line in inventory.assumptions)
    nothing, _ = one(None, node_found([], []), None)
    said = "no profile: none is named, and no GPU was found, so no profile fits; no limit of a model applies"
    assert said in nothing.assumptions


def test_exclusions_that_no_profile_hears_are_told(site_of: SiteOf) -> None:
    """Without a profile nothing is taken out, and the certificate says which exclusions were ignored."""
    site = site_of("site: 1\nexclude: [{clause: GPU-19, reason: x}, {clause: GPU-10, reason: y}]\n")
    inventory, _ = one(site, node_found([pci_gpu(0, "10de:ffff")], []), None)
    assert "no profile, so the site file's exclusions are ignored: GPU-19, GPU-10" in inventory.assumptions
    assert not any("ignored" in line for line in one(site, healthy(2))[0].assumptions)


def test_a_profile_for_other_cards_is_an_error(site_of: SiteOf) -> None:
    """An agreed B200 and a found H200 is a contradiction with its line; a dead node contradicts nothing."""
    site = site_of("site: 1\nprofile: b200\n")
    with pytest.raises(
        InventoryError, match=r"site.yaml line 2 \$.profile: expected a profile for the GPUs found \(10de:2335\)"
    ):
        choose_profile(site, None, {"a": healthy(8)})
    with pytest.raises(InventoryError, match="profile 'b200': expected"):
        choose_profile(None, "b200", {"a": healthy(8)})
    assert choose_profile(site, None, {"a": node_found([], [])}) == profiles.load("b200")


def test_one_foreign_card_does_not_unmake_the_profile() -> None:
    """Seven right cards and a wrong one load the profile, so that GPU-2 can fail on the wrong one."""
    cards = [pci_gpu(i) for i in range(7)] + [pci_gpu(7, "10de:2330")]
    assert choose_profile(None, "h200-sxm", {"a": node_found(cards, [])}) == H200


def test_two_profiles_named_are_an_error(site_of: SiteOf) -> None:
    """The command line does not silently replace what was agreed; the same profile twice is fine."""
    site = site_of("site: 1\nprofile: h200-sxm\n")
    with pytest.raises(InventoryError, match="found h200-sxm here and base on the command line"):
        choose_profile(site, "base", {"a": healthy(8)})
    assert choose_profile(site, "h200-sxm", {"a": healthy(8)}) == H200


def test_a_profile_file_is_relative_to_the_site_file(site_of: SiteOf, tmp_path: Path) -> None:
    """The site file names a profile beside itself; one that is not there is a ProfileError."""
    own = 'profile: ours\nextends: h200-sxm\nversion: "1"\ntitle: Ours\npci_ids: ["10de:2335"]\n'
    (tmp_path / "ours.yaml").write_text(own)
    chosen = choose_profile(site_of("site: 1\nprofile: ours.yaml\n"), None, {"a": healthy(8)})
    assert chosen
    assert chosen.name == "ours"
    with pytest.raises(ProfileError, match="expected a file to read"):
        choose_profile(site_of("site: 1\nprofile: theirs.yaml\n"), None, {"a": healthy(8)})


def test_exclusions_stand_in_the_clauses(site_of: SiteOf) -> None:
    """An excluded clause carries its reason, the digest stays that of the agreed profile."""
    chosen = choose_profile(site_of("site: 1\nexclude: [{clause: NVL-6, reason: known}]\n"), None, {"a": healthy(8)})
    assert chosen
    assert {c.id: c.excluded for c in chosen.clauses if c.excluded} == {"NVL-6": "known"}
    assert chosen.sha256 == H200.sha256


def test_what_the_site_file_says_against_the_profile_is_an_error(site_of: SiteOf) -> None:
    """An unknown clause, NVLink where the model has none, and all excluded are told with their lines."""
    text = "site: 1\nnodes:\n  a: {nvlink: full}\nexclude:\n  - {clause: NVL-66, reason: x}\n"
    with pytest.raises(InventoryError) as caught:
        choose_profile(site_of(text), "l40s", {})
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert "site.yaml line 5 $.exclude[0].clause: expected a clause of the profile l40s, found 'NVL-66'" in lines[0]
    assert "site.yaml line 3 $.nodes.a.nvlink: expected nvlink: none, found full: L40S (l40s) has no NVLink" in lines[1]
    everything = "".join(f"  - {{clause: {c.id}, reason: x}}\n" for c in H200.clauses)
    with pytest.raises(InventoryError) as caught:
        choose_profile(site_of("site: 1\nexclude:\n" + everything), "h200-sxm", {})
    for level in (1, 2):
        says = f"$.exclude: expected a required clause with a limit to remain at level {level}, found all excluded"
        assert says in str(caught.value)


def test_no_level_is_excluded_as_a_whole(site_of: SiteOf) -> None:
    """All promises of level 2 taken out is an error that names it; one of them kept is enough."""
    must = [c.id for c in H200.clauses if c.level == 2 and c.required and c.limit and not c.not_applicable]
    out = "".join(f"  - {{clause: {clause}, reason: x}}\n" for clause in must)
    with pytest.raises(InventoryError, match=r"line 2 .*to remain at level 2, found all excluded; keep one"):
        choose_profile(site_of("site: 1\nexclude:\n" + out), "h200-sxm", {})
    kept = out.replace("  - {clause: PCIE-1, reason: x}\n", "")
    assert choose_profile(site_of("site: 1\nexclude:\n" + kept), "h200-sxm", {})


def test_the_look_for_the_gpus_cannot_be_excluded(site_of: SiteOf) -> None:
    """A missing GPU is never excused by taking GPU-1 out."""
    with pytest.raises(InventoryError) as caught:
        choose_profile(site_of("site: 1\nexclude: [{clause: GPU-1, reason: x}]\n"), "h200-sxm", {})
    assert str(caught.value) == (
        "site.yaml line 2 $.exclude[0].clause: expected every declared GPU to be looked for, "
        "found GPU-1 (gpu.present) excluded; declare fewer GPUs instead"
    )


SMALL = """profile: small
version: "1"
title: What a bus shows
clauses:
  A-1:
    {suite: gpu_health, level: 1, per: gpu, metric: gpu.present, action: look,
     limit: {equals: on the bus and answered by NVML, source: {kind: declared, cite: site file}}}
  A-2: {suite: dcgm_levels, level: 2, per: gpu, needs: dcgm, metric: dcgm.memory, action: look,
     limit: {equals: passed, source: {kind: rule, cite: it passes}}}
"""


def test_a_level_without_clauses_is_an_error(site_of: SiteOf, tmp_path: Path) -> None:
    """A level that nothing is promised for cannot be aimed at; what DCGM alone would promise counts with it alone."""
    (tmp_path / "small.yaml").write_text(SMALL)
    has = r"profile small has clauses up to level 1 without DCGM \(diagnostics: builtin\), found level: 2"
    with pytest.raises(InventoryError, match=rf"line 2 \$\.level: expected 1: {has}; correct one"):
        choose_profile(site_of("site: 1\nlevel: 2\nprofile: small.yaml\ndiagnostics: builtin\n"), None, {})
    assert choose_profile(site_of("site: 1\nlevel: 2\nprofile: small.yaml\n"), None, {})
    assert choose_profile(site_of("site: 1\nlevel: 4\ndiagnostics: builtin\n"), "h200-sxm", {}) == H200


def test_an_unknown_profile_is_told_with_its_line(site_of: SiteOf) -> None:
    """A site file that names no shipped profile gets the near name, at its line."""
    with pytest.raises(
        ProfileError, match=r"site\.yaml line 2 \$\.profile: .*found 'h200' \(did you mean 'h200-sxm'\?\)"
    ):
        choose_profile(site_of("site: 1\nprofile: h200\n"), None, {})


def test_a_node_with_fewer_gpus_than_most_lacks_some() -> None:
    """Where nobody declared a number, what most nodes have is expected of each; of two nodes neither is the rule."""
    docs = {"a": healthy(2), "b": healthy(2), "c": healthy(1), "d": NodeFound(node="no answer", nvml="")}
    inventory = resolve(None, docs, profile=H200)
    assert [len(node.slots) for node in inventory.nodes] == [2, 2, 2, 2]
    assert inventory.node("c").slots[1].gpu is None
    assert "c: expected 2 GPUs, as most of the nodes have: 1 found" in inventory.assumptions
    assert [len(node.slots) for node in resolve(None, {"a": healthy(2), "c": healthy(1)}, profile=H200).nodes] == [2, 1]
