"""What comes over the wire from an agent: one document, or one line that says why there is none."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import CopiesDoc, KernelLog, NodeDoc, NvmlDoc, TogetherDoc, encode
from pytest_gpuready.parse.agent import copies_doc, envelope, node_doc, nvml_doc, together_doc

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
