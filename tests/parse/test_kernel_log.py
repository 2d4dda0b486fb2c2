"""Xids and SXids out of kernel-log lines of several driver generations (lines made by hand after published formats)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.parse.kernel_log import NOT_STARTED, XIDS, sxids, xids


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(t=10.0 + i, text=text) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "number", "bdf", "pid", "name"),
    [
        ("NVRM: Xid (PCI:0000:91:00): 48, pid=8123, name=python3, DBE on Ch 3", 48, "0000:91:00.0", 8123, "python3"),
        ("NVRM: Xid (PCI:0000:a0:1d): 64, pid='<unknown>', name=<unknown>, Row Remapper", 64, "0000:a0:1d.0", -1, ""),
        ("NVRM: Xid (PCI:0000:20:1c): 63, pid=2217, Row Remapper: New row", 63, "0000:20:1c.0", 2217, ""),
        ("NVRM: Xid (0000:03:00): 31, Ch 0000002c, engmask 00000101", 31, "0000:03:00.0", -1, ""),
        ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal", 149, "0009:01:00.0", -1, ""),
        ("NVRM: Xid (PCI:0000:C3:00 GPU-I:05): 13, pid=77, name=a.out, Graphics", 13, "0000:c3:00.0", 77, "a.out"),
        ("NVRM: Xid (PCI:0000:9b:00): 43", 43, "0000:9b:00.0", -1, ""),
    ],
)
def test_forms_of_an_xid_line(text: str, number: int, bdf: str, pid: int, name: str) -> None:
    """Every known form gives number, address with function 0, and process where the line has one."""
    (xid,) = xids(lines(text))
    assert (xid.number, xid.bdf, xid.pid, xid.name) == (number, bdf, pid, name)


def test_application_xids_are_not_hardware() -> None:
    """13, 31, 43, 45 and 69 belong to a program; 121 and 154 are notes; all else, unknown numbers too, is hardware."""
    told = {n: xids(lines(f"NVRM: Xid (PCI:0000:38:00): {n}, pid=1, name=x, text"))[0] for n in range(1, 400)}
    assert {n for n, xid in told.items() if xid.kind == "application"} == {13, 31, 43, 45, 69}
    assert {n for n, xid in told.items() if xid.kind == "information"} == {121, 154}
    assert all(xid.hardware for n, xid in told.items() if n not in {13, 31, 43, 45, 69, 121, 154})


def test_recorded_and_failed_remap_are_both_hardware() -> None:
    """63 (recorded) and 64 (failed) are two numbers with two meanings, and both count."""
    assert XIDS[63] != XIDS[64]
    assert XIDS[63][0] == XIDS[64][0] == "hardware"


def test_line_that_begins_as_an_xid_and_cannot_be_read() -> None:
    """An Xid line of an unknown form does not vanish: it is hardware without an address."""
    (xid,) = xids(lines("NVRM: Xid (somewhere else entirely)- 79"))
    assert (xid.number, xid.bdf, xid.hardware) == (0, "", True)


def test_gpu_that_never_answered_has_no_number() -> None:
    """Three lines of one record, no Xid: the GPU named in the first line has fallen off the bus, as with Xid 79."""
    text = (
        "NVRM: The NVIDIA GPU 0000:c4:00.0 NVRM: (PCI ID: 10de:2335) installed in this system has "
        "NVRM: fallen off the bus and is not responding to commands."
    )
    (xid,) = xids(lines(text, "NVRM: The NVIDIA probe routine failed for 1 device(s)."))
    assert (xid.number, xid.bdf, xid.hardware) == (79, "0000:c4:00.0", True)


def test_the_same_sentence_as_three_records() -> None:
    """Where each line is a record of its own the address still comes from the first one."""
    found = xids(
        lines(
            "NVRM: The NVIDIA GPU 0000:c4:00.0",
            "NVRM: (PCI ID: 10de:2335) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        )
    )
    assert [(xid.number, xid.bdf) for xid in found] == [(79, "0000:c4:00.0")]


def test_numbered_and_spoken_79_are_one_event() -> None:
    """The driver says the sentence once more beside Xid 79: one event, not two."""
    found = xids(
        lines(
            "NVRM: GPU at PCI:0000:91:00: GPU-00000000-0000-4000-8000-000000000001",
            "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
        )
    )
    assert [(xid.number, xid.bdf) for xid in found] == [(79, "0000:91:00.0")]


def test_two_silent_gpus_are_two_events() -> None:
    """Two GPUs that fall off the bus in the same second are told apart by address."""
    log = [
        LogLine(t=38.1, text="NVRM: GPU 0000:91:00.0: GPU has fallen off the bus."),
        LogLine(t=38.2, text="NVRM: GPU 0000:ba:00.0: GPU has fallen off the bus."),
    ]
    assert [xid.bdf for xid in xids(log)] == ["0000:91:00.0", "0000:ba:00.0"]


def test_gsp_storm_counts_its_lines() -> None:
    """Four time-outs among register tables and stack lines are four Xids 119 of one GPU."""
    storm = [
        text
        for n in range(4)
        for text in (
            f"NVRM: Xid (PCI:0000:4d:00): 119, pid=3117{n}, name=worker, Timeout after 6s of waiting for RPC response",
            "NVRM: GPU2 RPC history (CPU -> GSP):",
            "NVRM:      0    76   GSP_RM_CONTROL        0x0000000020801a12 0x0000000000000060",
        )
    ]
    assert [(xid.number, xid.bdf) for xid in xids(lines(*storm))] == [(119, "0000:4d:00.0")] * 4


def test_sxid_is_one_event_and_no_xid() -> None:
    """Three lines of an NVSwitch are one non-fatal event of the switch, and no GPU has an Xid."""
    log = lines(
        "nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 41 egress non-posted PRIV error (First)",
        "nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 12028, Severity 0 Engine instance 41 Sub-engine instance 00",
        "nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 12028, Data {0x00000004, 0x00000000}",
    )
    assert xids(log) == ()
    (event,) = sxids(log)
    assert (event.number, event.bdf, event.fatal, event.link) == (12028, "0000:86:00.0", False, 41)


def test_fatal_sxid() -> None:
    """A fatal event is fatal, and two switches are two events."""
    found = sxids(
        lines(
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 07 LTSSM Fault Up",
        )
    )
    assert [(event.bdf, event.fatal, event.link) for event in found] == [
        ("0000:c1:00.0", True, 30),
        ("0000:c3:00.0", True, 7),
    ]


def test_sxid_whose_first_line_is_lost() -> None:
    """A severity line without its event still counts, fatal by its severity; an unknown word counts as fatal."""
    found = sxids(
        lines(
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Severity 1 Engine instance 28",
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11001, Something nobody has seen",
        )
    )
    assert [event.fatal for event in found] == [True, True]


@pytest.mark.parametrize(
    ("text", "number", "bdf"),
    [
        ("NVRM: Xid(PCI:0000:91:00): 79, GPU has fallen off the bus", 79, "0000:91:00.0"),
        ("NVRM: Xid  (PCI:0000:91:00): 79", 79, "0000:91:00.0"),
        ("NVRM: xid (PCI:0000:91:00): 79", 79, "0000:91:00.0"),
        ("NVRM: XID (PCI:0000:91:00): 79", 79, "0000:91:00.0"),
        ("NVRM: Xid [PCI:0000:91:00]: 79", 79, "0000:91:00.0"),
        ("NVRM: Xid (PCI:0000:91:00) 79", 79, "0000:91:00.0"),
        ("NVRM: Xid 79 on GPU 0000:91:00.0", 79, "0000:91:00.0"),
        ("NVRM: GPU0 Xid: 48", 48, ""),
        ("NVRM: Xid (PCI:0000:91:00): x79", 0, "0000:91:00.0"),
        ("NVRM: Xid (): 79", 0, ""),
        ("NVRM: Xid [elsewhere] 79", 0, ""),
    ],
)
def test_another_spelling_is_no_excuse(text: str, number: int, bdf: str) -> None:
    """Blanks, capitals and brackets that differ do not hide an Xid; what cannot be read is hardware."""
    (xid,) = xids(lines(text))
    assert (xid.number, xid.bdf, xid.hardware) == (number, bdf, True)


def test_two_xids_in_one_line_are_two() -> None:
    """A line that holds a program's Xid and a hardware one gives both, each with its own address and text."""
    found = xids(
        lines("NVRM: Xid (PCI:0000:91:00): 31, pid=1, name=x, fault NVRM: Xid (PCI:0000:92:00): 48, pid=2, DBE")
    )
    assert [(x.number, x.bdf, x.pid, x.text) for x in found] == [
        (31, "0000:91:00.0", 1, "fault"),
        (48, "0000:92:00.0", 2, "DBE"),
    ]


def test_off_the_bus_beside_a_programs_xid() -> None:
    """The sentence counts as Xid 79 also where its line has a number that condemns nobody."""
    found = xids(lines("NVRM: Xid (PCI:0000:91:00): 31, GPU has fallen off the bus."))
    assert sorted((x.number, x.bdf) for x in found) == [(31, "0000:91:00.0"), (79, "0000:91:00.0")]


@pytest.mark.parametrize("text", ["RPC: 1234 xid 0x77 sent", "svc: xid 4711 (0x1267) dropped", "nvidia: taxid (x)"])
def test_what_others_call_xid_is_none(text: str) -> None:
    """The remote procedure calls of the kernel have an xid too, and it is nobody's error."""
    assert xids(lines(text)) == ()


@pytest.mark.parametrize(
    ("text", "number", "bdf", "fatal"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034 Fatal, Link 30", 20034, "0000:85:00.0", True),
        ("nvidia-nvswitch3: SXid(PCI:0000:85:00.0): 20034, Fatal", 20034, "0000:85:00.0", True),
        ("nvidia-nvswitch3: SXID [PCI:0000:85:00.0]: 20034, FATAL", 20034, "0000:85:00.0", True),
        ("nvidia-nvswitch3: SXid (switch 3): 20034, Fatal", 20034, "", True),
        ("nvidia-nvswitch3: SXid (switch 3): 12028, Non-fatal, Link 1", 12028, "", False),
        ("nvidia-nvswitch3: SXid 20034 fatal", 20034, "", True),
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): , Fatal", 0, "", True),
    ],
)
def test_another_spelling_of_an_sxid(text: str, number: int, bdf: str, fatal: bool) -> None:
    """An SXid of an unknown form is an event all the same, and fatal unless it says otherwise."""
    (event,) = sxids(lines(text))
    assert (event.number, event.bdf, event.fatal) == (number, bdf, fatal)
    assert xids(lines(text)) == ()


@given(st.lists(st.text(max_size=120), max_size=12))
def test_any_text_is_read_without_a_crash(texts: list[str]) -> None:
    """No line of a broken machine makes the parser raise; each Xid it finds has a class."""
    log = lines(*texts, *(f"NVRM: Xid ({text}" for text in texts))
    found = xids(log)
    assert all(xid.kind in ("hardware", "application", "information") for xid in found)
    assert len(sxids(log)) <= len(log)


def test_the_xid_of_another_subsystem_is_none() -> None:
    """RPC and file systems have xids of their own; without the driver's word or a PCI address it is none of ours."""
    lines = [
        LogLine(t=1.0, text="RPC: 1234 xid (0x5f2a1c) status -11"),
        LogLine(t=2.0, text="XFS (nvme0n1): log xid [4711] replayed"),
        LogLine(t=3.0, text="Xid (PCI:0000:19:00): 79, GPU has fallen off the bus."),
    ]
    assert [xid.number for xid in xids(lines)] == [79]


def test_a_gpu_that_could_not_be_started() -> None:
    """Both lines of one attempt are one event of the hardware class on their GPU; another attempt is another one."""
    begun = [
        LogLine(t=12.1, text="NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1436)"),
        LogLine(t=12.2, text="NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0"),
        LogLine(t=61.0, text="NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1436)"),
    ]
    found = xids(begun)
    assert [(x.number, x.bdf, x.hardware, x.t) for x in found] == [
        (NOT_STARTED, "0000:3b:00.0", True, 12.1),
        (NOT_STARTED, "0000:3b:00.0", True, 61.0),
    ]
    assert found[0].meaning == "GPU initialisation failed"


def test_a_failed_start_without_an_address() -> None:
    """It goes with the failure just before it, and never with another line of the driver that has an address."""
    bare = "NVRM: rm_init_adapter failed, device minor number 0"
    (alone,) = xids(lines(bare))
    assert (alone.number, alone.bdf) == (NOT_STARTED, "")
    other = xids(lines("NVRM: Xid (PCI:0000:91:00): 31, pid=1, name=x, MMU Fault", bare))
    assert [(x.number, x.bdf) for x in other] == [(31, "0000:91:00.0"), (NOT_STARTED, "")]
    near = [
        LogLine(t=5.0, text="NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1436)"),
        LogLine(t=5.1, text=bare),
    ]
    assert [x.bdf for x in xids(near)] == ["0000:3b:00.0"]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["pcieport 0000:00:01.0: AER: nvme 0000:01:00.0 has fallen off the bus"], []),
        (["mlx5_core 0000:3b:00.0: PCIe Bus Error: device fallen off the bus"], []),
        (
            [
                "NVRM: Xid (PCI:0000:19:00): 31, pid=1",
                "pcieport 0000:00:01.0: nvme 0000:01:00.0 has fallen off the bus",
            ],
            [],
        ),
        (["NVRM: GPU at PCI:0000:19:00: GPU-0", "pcieport 0000:18:00.0: 0000:19:00.0 has fallen off the bus"], [79]),
        (["NVRM: The NVIDIA GPU 0000:19:00.0", "fallen off the bus and is not responding to commands."], [79]),
        (["nvidia 0000:19:00.0: GPU has fallen off the bus"], [79]),
        (["NVRM: GPU 0000:19:00.0: GPU has fallen off the bus."], [79]),
    ],
)
def test_what_else_falls_off_the_bus(texts: list[str], found: list[int]) -> None:
    """A disk or network card that fell off the bus is no GPU: the driver says so, or a near line of it names it."""
    assert [xid.number for xid in xids(lines(*texts)) if xid.hardware] == found
