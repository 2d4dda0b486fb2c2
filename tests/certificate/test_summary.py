"""The certificate on a terminal: about ten lines, plain ASCII, never wider than asked for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, ExclusionEntry, PartEntry, WatchEntry
from pytest_gpuready.certificate.summary import finding_block, summary_lines
from tests.certificate import samples

EVERY: tuple[Callable[[], Certificate], ...] = (
    samples.accepted,
    samples.rejected,
    samples.incomplete,
    samples.stopped,
    samples.replay,
    samples.stand_in,
    samples.rack,
    samples.excluded_rejected,
    samples.virtual,
    samples.lost,
    samples.foreign,
    samples.empty,
    samples.hostile,
)


def _lines(certificate: Certificate, width: int = 100) -> list[str]:
    return [f"{label:<11} {text}" for label, text in summary_lines(certificate, "gpuready-out", width)]


def _cell(certificate: Certificate, clause_id: str, part: str) -> tuple[PartEntry, ClauseEntry]:
    clause = next(c for suite in certificate.suites for c in suite.clauses if c.id == clause_id)
    return next(p for p in clause.parts if p.part == part), clause


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_lines_are_ascii_and_fit(sample: Callable[[], Certificate], width: int) -> None:
    """Whatever the document holds, each line is printable ASCII and no wider than asked for; `page` is the last."""
    lines = _lines(sample(), width)
    for line in lines:
        assert len(line) <= width, line
        assert all(" " <= char <= "~" for char in line), line
    assert lines[-1] == "page        gpuready-out/certificate.html"
    assert lines[-2] == "signed      no: not signed"


def test_accepted() -> None:
    """An acceptance names node, basis, level, profile, counts, what came closest and what was excluded."""
    lines = _lines(samples.accepted())
    assert lines[0].startswith("ACCEPTED    node01, basis hardware, level 2 of 2, profile h200-sxm")
    assert lines[1] == "clauses     78 on 148 parts: 1 EXCLUDED, 29 OBSERVED, 116 PASS, 2 NOT APPLICABLE; none missing"
    assert lines[2] == "excluded    1 clause (1 of 42 of level 1): GPU-32 (the site sets NCCL_NVLS_ENABLE=0 on purpose)"
    assert lines[3] == "closest     PCIE-6 Copy from the GPU, pinned 55.30 GB/s on GPU 0, limit >= 50 (+10.6 %)"


@pytest.mark.parametrize("sample", [samples.excluded, samples.excluded_rejected])
def test_every_exclusion_is_named(sample: Callable[[], Certificate]) -> None:
    """The terminal counts the excluded clauses and names all of them with their reasons, on any verdict."""
    lines = _lines(sample())
    told = " ".join(" ".join(line.split()) for line in lines)
    assert (
        "excluded 10 clauses (9 of 42 of level 1, 1 of 36 of level 2): GPU-2 to GPU-9 (agreed); NVL-1 (Demo/ of the "
        "provider); PCIE-8 (no reason given)"
    ) in told


def test_no_exclusion_is_cut() -> None:
    """However many clauses were taken out, the terminal names each of them."""
    entries = [ExclusionEntry(clause=f"SUITE-{2 * n}", reason=samples.LONG[: n + 1]) for n in range(150)]
    lines = _lines(msgspec.structs.replace(samples.accepted(), exclusions=entries))
    text = " ".join(" ".join(line[12:] for line in lines).split())
    assert all(f"{entry.clause}, " in text for entry in entries)
    assert "151 clauses (1 of 42 of level 1): " in text


def test_hidden_is_counted_apart() -> None:
    """What the virtual machine hides is no observation."""
    assert any("6 HIDDEN, " in line for line in _lines(samples.virtual()))


def test_a_count_names_what_it_counts() -> None:
    """Where the value alone says nothing, the reason names the things behind it."""
    assert any(
        line.startswith(
            "why         GPU-32 Foreign NCCL or CUDA settings 2 (NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1), expected"
        )
        for line in _lines(samples.foreign())
    )


def test_a_missing_gpu_is_one_line() -> None:
    """What a GPU that is gone left unmeasured is one line with its cause."""
    lines = [line for line in _lines(samples.lost()) if "NOT MEASURED on" in line]
    assert len(lines) == 1
    assert lines[0].startswith("missing     ")
    assert "clauses NOT MEASURED on GPU 3: GPU 3 is absent (NVML shows 7 GPUs" in lines[0]


def test_marginal_is_named() -> None:
    """The closest number says that it is MARGINAL."""
    assert any(
        line.startswith("closest     PCIE-5") and line.endswith(", MARGINAL") for line in _lines(samples.marginal())
    )


def test_rejected() -> None:
    """A rejection names the part, why, what to do next, what is open and what was blocked."""
    text = "\n".join(_lines(samples.rejected()))
    assert text.startswith("REJECTED    node01, basis hardware, level 1 of 2 reached, profile h200-sxm")
    for said in (
        "part        node01 GPU 0 module 2 0000:19:00.0",
        "why         GPU-9 Uncorrected ECC errors 2, expected 0",
        "PCIE-1 GPU 5: PCIe generation under load 3, expected >= 5; also PCIE-2, PCIE-4 to PCIE-6",
        "do next     drain node01, reset GPU 0",
        "missing     PCIE-9, PCIE-16 NOT MEASURED on GPU 2",
        "missing     PCIE-6 UNSTABLE on GPU 1",
        "blocked     PCIE-3 NOT TESTED",
    ):
        assert said in text


def test_incomplete_is_not_an_acceptance() -> None:
    """An incomplete run says so, says what is missing and how to go on; one that still runs says that too."""
    text = "\n".join(_lines(samples.stopped()))
    assert "nothing failed, and this is not an acceptance: 25 of 78 clauses have no verdict" in text
    assert "do next     pytest -m level2" in text
    assert "the run has not ended" not in text
    assert "running     the run has not ended" in "\n".join(_lines(samples.incomplete()))


@pytest.mark.parametrize(("sample", "word"), [(samples.replay, "REPLAY"), (samples.stand_in, "STAND-IN")])
def test_other_bases_certify_nothing(sample: Callable[[], Certificate], word: str) -> None:
    """A replay and a stand-in never begin with the verdict, and say that they certify no hardware."""
    lines = _lines(sample())
    assert lines[0].startswith(f"{word:<11} would be ACCEPTED: node01")
    assert "certifies no hardware" in lines[1]
    assert not any(line.startswith("ACCEPTED") for line in lines)


def test_without_any_clause() -> None:
    """A run that could open nothing gives its reason."""
    assert "no profile knows this hardware" in " ".join(_lines(samples.empty()))


def test_block_marks_the_failing_gpu() -> None:
    """The neighbours stand side by side, the failing one marked, with kernel log, watch and digests under them."""
    lines = finding_block(*_cell(samples.rejected(), "PCIE-1", "node01/gpu5"))
    assert lines[0].split() == ["GPU0", "GPU1", "GPU2", "GPU3", "GPU4", ">GPU5<", "GPU6", "GPU7"]
    assert lines[1].split() == ["pcie.link.generation", "5", "5", "5", "5", "5", "3", "5", "5"]
    assert "kernel log" in lines
    assert any(line.startswith("watch       power 77-129 W") for line in lines)
    assert any(line.startswith("evidence    sha256 ") for line in lines)
    assert all(len(line) <= 100 for line in lines)


def test_block_of_many_gpus_keeps_the_nearest() -> None:
    """Of 72 GPUs the failing one and at most eight beside it are shown."""
    part, clause = _cell(samples.one_node_of_72(), "PCIE-5", "node01/gpu40".replace("node01", "rack01"))
    shown = {f"rack01/gpu{n}": "55.40" for n in range(72)} | {part.part: "6.71"}
    lines = finding_block(msgspec.structs.replace(part, neighbours={"pcie.h2d.bandwidth": shown}), clause)
    heads = lines[0].split()
    assert heads == ["GPU36", "GPU37", "GPU38", "GPU39", ">GPU40<", "GPU41", "GPU42", "GPU43", "GPU44"]
    assert max(len(line) for line in lines) <= 100


def test_block_bears_wide_values_and_hostile_text() -> None:
    """Wide values cost columns, never the failing one; control characters and long lines are tamed."""
    part, clause = _cell(samples.rejected(), "PCIE-1", "node01/gpu5")
    wide = {f"node01/gpu{n}": "on the bus and answered by NVML" for n in range(8)}
    hostile = msgspec.structs.replace(
        part,
        neighbours={"gpu.present": wide, samples.NASTY: {"node01/gpu5": samples.NASTY}},
        log=[samples.NASTY, samples.LONG],
        watch=WatchEntry(facts={samples.NASTY: samples.LONG}),
        evidence=[samples.NASTY],
        repeats=[samples.NASTY],
    )
    lines = finding_block(hostile, clause)
    assert ">GPU5<" in lines[0]
    for line in lines:
        assert len(line) <= 100, line
        assert all(" " <= char <= "~" for char in line), line


def test_block_without_evidence_is_empty() -> None:
    """A part that has nothing to show adds no line."""
    assert (
        finding_block(
            PartEntry(part="node01", outcome="FAIL"),
            _cell(samples.accepted(), "PCIE-1", "node01/gpu0")[1],
        )
        == []
    )
