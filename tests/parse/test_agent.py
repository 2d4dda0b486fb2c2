"""What comes over the wire from an agent: one document, or one line that says why there is none."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import (
    AfterDoc,
    CopiesDoc,
    CopyDoc,
    GpuDoc,
    KernelLog,
    NodeDoc,
    NvLinkDoc,
    NvmlDoc,
    PciGpu,
    PciLink,
    TogetherDoc,
    WatchDoc,
    encode,
)
from pytest_gpuready.parse.agent import after_doc, copies_doc, envelope, node_doc, nvml_doc, together_doc

NODE = NodeDoc(hostname="node01", kernel="6.8.0", kernel_log=KernelLog(source="/dev/kmsg", complete=True))


def result(stdout: str, **other: object) -> CommandResult:
    command = Command(node="node01", argv=("python", "-m", "pytest_gpuready.agent", "node"), timeout_s=60.0)
    good = CommandResult(
        command=command, exit_code=0, stdout=stdout, stderr="", started="2026-12-01T00:00:00Z", duration_s=0.2
    )
    return dataclasses.replace(good, **other)  # type: ignore[arg-type]


def line(data: object, probe: str) -> str:
    return encode(probe=probe, host="node01", boot_id="0-1", data=data).decode() + "\n"


def says(stdout: str, **other: object) -> str:
    """The one line of the error that reading a node document gives."""
    with pytest.raises((ParseError, ToolError)) as caught:
        node_doc(result(stdout, **other))
    text = str(caught.value)
    assert "\n" not in text
    assert "on node01" in text
    return text


def test_each_document_comes_back_equal() -> None:
    """What the agent encodes is what the parser gives, for every probe."""
    assert node_doc(result(line(NODE, "node"))) == NODE
    assert nvml_doc(result(line(NvmlDoc(driver="580.1"), "nvml"))) == NvmlDoc(driver="580.1")
    assert copies_doc(result(line(CopiesDoc(bdf="0000:19:00.0"), "copies"))).bdf == "0000:19:00.0"
    assert together_doc(result(line(TogetherDoc(seconds=1.5), "copies-together"))).seconds == 1.5
    assert envelope(result(line(NODE, "node")), "node").boot_id == "0-1"


AFTER = AfterDoc(nvml=NvmlDoc(driver="580.1"), log=KernelLog(), bus=[])


def test_what_was_seen_after_one_level_answers_for_no_other() -> None:
    """The document after a level comes back equal, and is refused where another level is asked about."""
    assert after_doc(result(line(AFTER, "after-2")), 2) == AFTER
    with pytest.raises(ParseError, match="expected a document of probe 'after-3', found 'after-2'"):
        after_doc(result(line(AFTER, "after-2")), 3)


@pytest.mark.parametrize("field", ["nvml", "log", "bus"])
def test_a_look_after_the_load_that_lacks_a_part_is_refused(field: str) -> None:
    """NVML, kernel log and bus are always said: none of them has a default that would read as good."""
    data = msgspec.to_builtins(AFTER)
    del data[field]
    with pytest.raises(ParseError, match=field):
        after_doc(result(line(data, "after-2")), 2)


def test_a_gpu_on_the_bus_says_its_path() -> None:
    """A GPU without a word about the bridges above it is half a document, before the load and after it."""
    data = msgspec.to_builtins(
        AfterDoc(nvml=NvmlDoc(), log=KernelLog(), bus=[PciGpu(bdf="x", pci_id="y", link=PciLink())])
    )
    del data["bus"][0]["path"]
    with pytest.raises(ParseError, match="'path' of 'bus'"):
        after_doc(result(line(data, "after-2")), 2)


def test_half_a_document_is_refused() -> None:
    """A document that was cut off is no document."""
    assert "expected one line of JSON" in says(line(NODE, "node")[:90])


def test_garbage_is_shown_with_its_control_characters_escaped() -> None:
    """What was found instead stands in the message, 80 characters of it, harmless for a terminal."""
    text = says("\x1b[31mSegmentation fault\x07 " + "x" * 200)
    assert "\\x1b[31mSegmentation fault\\x07" in text
    assert "\x1b" not in text
    assert "x" * 81 not in text


def test_two_documents_are_refused() -> None:
    """A line before or after the document makes it unreadable: nobody picks the one that fits."""
    assert "expected one line of JSON" in says(line(NODE, "node") * 2)


def test_other_protocol_version_says_what_to_do() -> None:
    """An agent of another version is named as such, whatever else its document holds."""
    found = says('{"gpuready_agent": 2, "probe": "node", "something": "new"}')
    assert "expected agent protocol 1, found 2; install the same version" in found


def test_document_of_another_probe() -> None:
    """A good document of the wrong probe is refused."""
    assert "expected a document of probe 'node', found 'nvml'" in says(line(NvmlDoc(), "nvml"))


def test_unknown_field_is_refused() -> None:
    """A field that the protocol does not have is never silently dropped."""
    document = msgspec.to_builtins(NODE) | {"gpu_count": 8}
    assert "gpu_count" in says(line(document, "node"))


def test_field_of_the_wrong_type_is_refused() -> None:
    """A word where a number belongs makes the document unreadable."""
    document = msgspec.to_builtins(NODE) | {"memory_mib": "lots"}
    assert "memory_mib" in says(line(document, "node"))


def test_deadline_says_how_long() -> None:
    """A command that did not end in time says the deadline."""
    assert "expected an answer within 60 s, found none" in says("", exit_code=None, timed_out=True)


def test_process_that_cannot_be_killed_is_said() -> None:
    """A process in uninterruptible sleep is named, with what that means."""
    found = says("", exit_code=None, timed_out=True, unkillable="pid 4711 state D")
    assert "cannot be killed ('pid 4711 state D')" in found


def test_exit_code_comes_with_the_last_line_of_stderr() -> None:
    """A crash says its exit code and the last line that it left."""
    stderr = "Traceback (most recent call last):\nImportError: no module named msgspec\n\n"
    found = says("", exit_code=1, stderr=stderr)
    assert (
        "expected exit code 0, found exit code 1, last line on stderr 'ImportError: no module named msgspec'" in found
    )


def test_output_without_end_is_refused() -> None:
    """More than 16 MiB is no document."""
    assert "expected at most 16 MiB" in says("[" * (16 * 2**20 + 1))


@pytest.mark.parametrize("around", [True, False])
def test_a_document_nested_without_end_is_refused(around: bool) -> None:
    """Brackets inside brackets end as one line, not as an error of the interpreter, around the document and in it."""
    deep = "[" * 200_000 + "]" * 200_000
    good = line(NODE, "node").strip()
    found = says(good[:-1] + f',"x":{deep}}}' if around else good.replace('"gpus":[]', f'"gpus":{deep}'))
    assert "expected" in found


def gpu(index: int, **other: object) -> GpuDoc:
    fields: dict[str, object] = {"bdf": f"0000:{index:02x}:00.0", "uuid": f"GPU-{index}", **other}
    return GpuDoc(pci_id="10de:2335", index=index, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (NvmlDoc(gpus=[gpu(1), gpu(2, bdf="0000:01:00.0")]), "every GPU address in NVML once, found '0000:01:00.0'"),
        (NvmlDoc(gpus=[gpu(0xA, bdf="0000:0A:00.0"), gpu(0xA, uuid="other")]), "every GPU address in NVML once"),
        (NvmlDoc(gpus=[gpu(1), gpu(2, uuid="GPU-1")]), "every GPU UUID in NVML once, found 'GPU-1' more than once"),
        (
            NvmlDoc(gpus=[gpu(1, nvlinks=[NvLinkDoc(link=3), NvLinkDoc(link=3)])], window_s=0.2),
            "every NVLink of GPU 1 once, found '3'",
        ),
        (NvmlDoc(gpus=[gpu(1, nvlinks=[NvLinkDoc(link=0)])]), "some time apart, found 0 s"),
    ],
)
def test_nvml_that_contradicts_itself(document: NvmlDoc, said: str) -> None:
    """A GPU or NVLink that is there twice, or counters that were not watched, make the document unreadable."""
    with pytest.raises(ParseError) as caught:
        nvml_doc(result(line(document, "nvml")))
    assert said in str(caught.value)


def test_gpus_without_a_uuid_are_not_the_same() -> None:
    """A UUID that NVML did not give is no UUID that is there twice."""
    assert len(nvml_doc(result(line(NvmlDoc(gpus=[gpu(1, uuid=""), gpu(2, uuid="")]), "nvml"))).gpus) == 2


def test_a_bus_that_shows_an_address_twice() -> None:
    """Two entries of one bus address make the node document unreadable."""
    one = PciGpu(bdf="0000:19:00.0", pci_id="10de:2335", link=PciLink())
    assert "every GPU address on the bus once" in says(line(msgspec.structs.replace(NODE, gpus=[one, one]), "node"))


def watch(**other: object) -> WatchDoc:
    fields: dict[str, object] = {
        "samples": {"t": [0.1, 0.2, 0.3], "width": [16, None, 16]},
        "phases": [("h2d", 0.05, 0.25)],
        **other,
    }
    return WatchDoc(**{"period_s": 0.1, "before": {}, "after": {}, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (watch(period_s=0), "expected a period of the samples above 0 s, found 0"),
        (watch(period_s=-1e9), "expected a period of the samples above 0 s"),
        (watch(samples={"t": [0.1, 0.2], "width": [16]}), "columns of equal length, found 1 to 2"),
        (watch(samples={"width": [16]}), "columns of equal length"),
        (watch(samples={"t": [0.2, 0.1]}), "times of samples that ascend from 0"),
        (watch(samples={"t": [0.2, None]}), "times of samples that ascend from 0"),
        (watch(phases=[("h2d", -1e9, 1e9)]), "phase 'h2d' to begin at 0 or later"),
        (watch(phases=[("h2d", 0.2, 0.1)]), "phase 'h2d' to begin at 0 or later"),
        (watch(phases=[("h2d", 0.0, 90.0)]), "until phase 'h2d' ends at 90 s, found the last at 0.3 s"),
        (watch(phases=[("h2d", 0.0, 0.1), ("h2d", 0.1, 0.2)]), "every phase once, found 'h2d' more than once"),
    ],
)
def test_a_watch_that_contradicts_itself(seen: WatchDoc, said: str) -> None:
    """Samples and phases that cannot have been taken so make the copies unreadable."""
    with pytest.raises(ParseError) as caught:
        copies_doc(result(line(CopiesDoc(bdf="0000:19:00.0", watch=seen), "copies")))
    assert said in str(caught.value)


def test_a_watch_that_was_taken_is_read() -> None:
    """Holes in a column, a sampler that hung, and no samples at all are no contradiction."""
    hung = watch(phases=[("h2d", 0.0, 90.0)], errors={"sampler": "no answer within 5 s"})
    for seen in (watch(), hung, watch(samples={})):
        document = CopiesDoc(bdf="0000:19:00.0", watch=seen)
        assert copies_doc(result(line(document, "copies"))) == document


def test_a_kind_of_copy_that_is_there_twice() -> None:
    """Of two copies of one kind nobody picks the better one."""
    one = CopyDoc(kind="h2d", gb_per_s=55.0, repeats=[55.0], size_bytes=1, moved_bytes=1, verified=True)
    with pytest.raises(ParseError, match="every kind of copy once, found 'h2d' more than once"):
        copies_doc(result(line(CopiesDoc(bdf="0000:19:00.0", copies=[one, one]), "copies")))


def test_a_log_after_the_copies_is_read_whole() -> None:
    """A kernel log that leaves out what it must say is refused; copies without one, or without a watch, are read."""
    whole = CopiesDoc(bdf="0000:19:00.0", log_after=KernelLog(source="/dev/kmsg", complete=True, total_lines=9))
    assert copies_doc(result(line(whole, "copies"))) == whole
    raw = msgspec.to_builtins(whole)
    del raw["log_after"]["lines"]
    with pytest.raises(ParseError, match="expected 'lines' of 'log_after' in a CopiesDoc"):
        copies_doc(result(line(raw, "copies")))
    for field in ("log_after", "watch"):
        del raw[field]
        assert copies_doc(result(line(raw, "copies"))).log_after is None
