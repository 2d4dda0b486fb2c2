"""Judges iperf3, nvbandwidth and gpu-burn: rates of a wire or a link, and a burn's own verdict."""

from __future__ import annotations

from statistics import median

from pytest_gpuready.audit.asked import unanswered
from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.gpu_burn import Burn, Gpu
from pytest_gpuready.parse.gpu_burn import gpu_burn as read_burn
from pytest_gpuready.parse.iperf3 import Flow, Iperf3
from pytest_gpuready.parse.iperf3 import iperf3 as read_iperf3
from pytest_gpuready.parse.nvbandwidth import Bandwidths, Case
from pytest_gpuready.parse.nvbandwidth import nvbandwidth as read_nvbandwidth

TOOL = "the tool's own verdict"
_CONTEXT = ("fabric", "nvswitch", "bare_metal", "under_load")
_WIRE = ("min_rate_gbit_per_s", "max_retransmits", *_CONTEXT)
_GPUS = ("expected_gpus", "gpus_per_node", "expected_model", *_CONTEXT)
SHORT_BURN_SECONDS = 600
OUTLIER = 0.85
"""A GPU below this share of the median of its neighbours is named: one slow link hides in a sum."""


def iperf3(given: Given) -> Reading:
    """A test over one TCP or UDP path."""
    text, whole = given.text()
    expect = given.expect
    try:
        test = read_iperf3(text)
    except ParseError as error:
        return Reading(findings=(*_not_iperf3(expect, str(error)), *_exit_code(given)))
    metric = "net.udp_throughput" if test.protocol == "UDP" else "net.tcp_throughput"
    ended_by = test.error or ("" if whole else "the document is too long to be read whole")
    if ended_by:
        findings = [*_not_iperf3(expect, _why(ended_by), metric=metric, error=ended_by)]
    else:
        findings = [finding for flow in test.flows for finding in _flow(flow, test, metric, expect)]
    return Reading(
        findings=(*findings, *unanswered(given, "iperf3", _WIRE), *_exit_code(given)),
        tool_version=test.version,
        not_covered=tuple(_iperf3_not_covered(test)),
    )


def _why(error: str) -> str:
    if "busy" in error:
        return "test scheduling (one test per server at a time); retry, do not judge the link"
    if "interrupt" in error or "terminated" in error:
        return "the test was interrupted"
    return "no connection between client and server" if "connect" in error else "the test itself, not the link"


def _not_iperf3(
    expect: Expectations, why: str, *, metric: str = "net.tcp_throughput", error: str = ""
) -> list[Finding]:
    floor, most = expect.number("min_rate_gbit_per_s"), expect.count("max_retransmits")
    found = [
        Finding(
            metric=metric,
            value=error or None,
            outcome="not-measured",
            expected="" if floor is None else f"at least {floor:g} Gbit/s",
            source="" if floor is None else expect.source,
            suspect=why,
            advice="run it again" if error else "",
        )
    ]
    if most is not None:
        found.append(_retransmits(None, most, expect, part=""))
    return found


def _flow(flow: Flow, test: Iperf3, metric: str, expect: Expectations) -> list[Finding]:
    floor, most = expect.number("min_rate_gbit_per_s"), expect.count("max_retransmits")
    part = " ".join(word for word in (test.host, flow.name) if word)
    short = flow.seconds is not None and test.asked_seconds is not None and flow.seconds < 0.9 * test.asked_seconds
    outcome: Outcome
    suspect = ""
    if flow.rate_gbit_per_s is None or short:
        outcome = "not-measured"
        suspect = (
            f"it ran {flow.seconds:g} of {test.asked_seconds:g} s"
            if short
            else "this side does not know what arrived: read the other's"
        )
    elif floor is None:
        outcome = "observed"
    else:
        outcome = "pass" if flow.rate_gbit_per_s >= floor else "fail"
        suspect = "" if outcome == "pass" else f"path to {part or 'the server'}: NIC rate, MTU, one core, or loss"
    found = [
        Finding(
            metric=metric,
            part=part,
            value=round(flow.rate_gbit_per_s, 4) if flow.rate_gbit_per_s is not None else None,
            unit="Gbit/s" if flow.rate_gbit_per_s is not None else "",
            outcome=outcome,
            expected="" if floor is None else f"at least {floor:g} Gbit/s",
            source="" if floor is None else expect.source,
            suspect=suspect,
            advice="use several streams (-P), and ib_write_bw for an RDMA wire" if outcome == "fail" else "",
        )
    ]
    if most is not None or flow.retransmits is not None:
        found.append(_retransmits(flow.retransmits, most, expect, part=part))
    if flow.lost_percent is not None:
        found.append(Finding(metric="net.udp_lost", part=part, value=flow.lost_percent, unit="%", outcome="observed"))
    return found


def _retransmits(value: int | None, most: int | None, expect: Expectations, *, part: str) -> Finding:
    outcome: Outcome = "observed"
    if most is not None:
        outcome = "not-measured" if value is None else "pass" if value <= most else "fail"
    return Finding(
        metric="net.tcp_retransmits",
        part=part,
        value=value,
        outcome=outcome,
        expected="" if most is None else f"at most {most}",
        source="" if most is None else expect.source,
        suspect={
            "fail": "loss on the path: cable, port errors or a full buffer",
            "not-measured": "not counted here",
        }.get(outcome, ""),
    )


def _iperf3_not_covered(test: Iperf3) -> list[str]:
    said = ["TCP over the host's stack says little about RDMA and nothing about GPUDirect."] if test.flows else []
    if test.flows and not any(flow.name for flow in test.flows):
        said.append("One direction only.")
    if test.streams == 1:
        said.append("One stream: a single core may be the limit above some tens of Gbit/s.")
    return said


def nvbandwidth(given: Given) -> Reading:
    """Copies between host and GPUs and between GPUs. No floor is in the vocabulary: figures are observed."""
    text, whole = given.text()
    try:
        bandwidths = read_nvbandwidth(text)
    except ParseError as error:
        bad = Finding(metric="nvbandwidth", outcome="not-measured", suspect=str(error))
        return Reading(findings=(bad, *_exit_code(given)))
    findings = [finding for case in bandwidths.cases for finding in _case(case, bandwidths)]
    if bandwidths.error or not bandwidths.cases or not whole:
        why = bandwidths.error or "no test case is in the document"
        findings.append(Finding(metric="nvbandwidth", outcome="not-measured", suspect=why))
    findings += _hardware(given.expect, len(bandwidths.gpus), bandwidths.gpus)
    findings += unanswered(given, "nvbandwidth", _GPUS)
    not_covered = ["Passed means that data arrived unchanged, not that the figure is that of a healthy machine."]
    if any(case.status == "Waived" for case in bandwidths.cases):
        not_covered.append("Waived tests ran on nothing (too few GPUs, or not supported here).")
    if any("all_to_host" in case.name or "host_to_all" in case.name for case in bandwidths.cases):
        not_covered.append(
            "Tests with all GPUs at once share switches and the CPU: compare with the same kind of machine."
        )
    return Reading(
        findings=(*findings, *_exit_code(given)), tool_version=bandwidths.version, not_covered=tuple(not_covered)
    )


def _case(case: Case, bandwidths: Bandwidths) -> list[Finding]:
    metric = f"nvbandwidth.{case.name}"
    if case.status == "Waived":
        return [Finding(metric=metric, outcome="not-applicable", source=TOOL, suspect="waived by the tool")]
    if case.status != "Passed" or not case.values:
        wrong = "pattern" in case.error or "Invalid value" in case.error
        return [
            Finding(
                metric=metric,
                value=case.error or case.status,
                outcome="fail" if wrong else "not-measured",
                source=TOOL,
                suspect="data arrived changed: link or memory" if wrong else f"the test ended as {case.status}",
            )
        ]
    figures = case.by_gpu()
    known = [figure for figure in figures if figure is not None]
    middle = median(known)
    slower = "latency" in case.name
    found = [
        Finding(metric=metric, part="lowest", value=min(case.values), unit=case.unit, outcome="observed"),
        Finding(metric=metric, part="highest", value=max(case.values), unit=case.unit, outcome="observed"),
    ]
    for index, figure in enumerate(figures):
        if figure is None or len(known) < 3 or slower or figure >= OUTLIER * middle:
            continue
        name = bandwidths.gpus[index] if index < len(bandwidths.gpus) else str(index)
        found.append(
            Finding(
                metric=metric,
                part=f"GPU {name}",
                value=figure,
                unit=case.unit,
                outcome="observed",
                suspect=f"GPU {name}: {figure:g} beside {middle:g} of others (PCIe generation or width, NVLink)",
            )
        )
    return found


def gpu_burn(given: Given) -> Reading:
    """A burn with its own verdict for each GPU; no end, no verdict."""
    try:
        burn = read_burn(given.lines())
    except ParseError as error:
        return Reading(
            findings=(Finding(metric="gpu_burn", outcome="not-measured", suspect=str(error)), *_exit_code(given))
        )
    ended = burn.tested is not None
    findings = [finding for index, gpu in sorted(burn.gpus.items()) for finding in _burnt(index, gpu, ended=ended)]
    judged = sum(1 for gpu in burn.gpus.values() if gpu.verdict)
    if not ended:
        why = "; ".join(burn.messages[:3]) or "'Tested N GPUs' is missing: the burn was cut short"
        findings.append(Finding(metric="gpu_burn", outcome="not-measured", suspect=why))
    elif judged != burn.tested:
        findings.append(
            Finding(
                metric="gpu_burn", value=judged, outcome="not-measured", expected=f"{burn.tested} GPUs", source=TOOL
            )
        )
    elif burn.messages:
        findings.append(Finding(metric="gpu_burn", outcome="not-measured", suspect="; ".join(burn.messages[:3])))
    if burn.seconds is not None:
        findings.append(Finding(metric="gpu_burn.seconds", value=burn.seconds, unit="s", outcome="observed"))
    findings += _hardware(given.expect, judged if ended else None, burn.models)
    findings += unanswered(given, "gpu-burn", _GPUS)
    return Reading(findings=(*findings, *_exit_code(given)), not_covered=tuple(_burn_not_covered(burn)))


def _burnt(index: int, gpu: Gpu, *, ended: bool) -> list[Finding]:
    outcome: Outcome
    suspect = ""
    if gpu.verdict == "FAULTY" or gpu.errors > 0:
        outcome, suspect = "fail", f"GPU {index}: silent data corruption in compute or memory"
    elif gpu.died:
        outcome, suspect = "not-measured", f"GPU {index}: its process died; OK at the end says nothing"
    elif not ended or not gpu.verdict:
        outcome, suspect = "not-measured", f"GPU {index}: no verdict at the end"
    elif not gpu.processed:
        outcome, suspect = "not-measured", f"GPU {index}: no progress line shows work on it"
    else:
        outcome = "pass"
    part = f"GPU {index}"
    found = [
        Finding(
            metric="gpu_burn.verdict",
            part=part,
            value="FAULTY" if outcome == "fail" else gpu.verdict or None,
            outcome=outcome,
            expected="OK",
            source=TOOL,
            suspect=suspect,
            advice="check the kernel log for Xids, then swap the GPU" if outcome == "fail" else "",
        )
    ]
    for name, value, unit in (
        ("errors", gpu.errors or None, ""),
        ("rate", gpu.gflops, "Gflop/s"),
        ("temperature", gpu.hottest_celsius, "deg C"),
    ):
        if value is not None:
            found.append(Finding(metric=f"gpu_burn.{name}", part=part, value=value, unit=unit, outcome="observed"))
    return found


def _burn_not_covered(burn: Burn) -> list[str]:
    said = [
        "gpu-burn compares results with the first one on the same GPU: a fault that spoils all alike is not seen.",
        "FP16, BF16, FP8 and INT8 were not tested; only FP32, TF32 or FP64.",
    ]
    if burn.seconds is not None and burn.seconds < SHORT_BURN_SECONDS:
        said.append(f"{burn.seconds} s is a short burn: heat has not settled.")
    return said


def _hardware(expect: Expectations, gpus: int | None, names: tuple[str, ...]) -> list[Finding]:
    found = []
    for key in ("expected_gpus", "gpus_per_node"):
        wanted = expect.count(key)
        if wanted is not None:
            outcome: Outcome = "not-measured" if not gpus else "pass" if gpus == wanted else "fail"
            found.append(
                Finding(metric="gpus", value=gpus, outcome=outcome, expected=str(wanted), source=expect.source,
                        suspect="" if outcome == "pass" else f"{gpus or 'no'} GPUs are in the output")
            )  # fmt: skip
    model = expect.text("expected_model")
    if model is None and names:
        found.append(Finding(metric="gpu.model", value=sorted(set(names)), outcome="observed"))
    if model is not None:
        others = [name for name in names if model.casefold() not in name.casefold()]
        outcome = "not-measured" if not names else "fail" if others else "pass"
        found.append(
            Finding(
                metric="gpu.model", value=list(others or names), outcome=outcome, expected=model, source=expect.source
            )
        )
    return found


def _exit_code(given: Given) -> list[Finding]:
    if given.exit_code in (None, 0):
        return []
    return [
        Finding(
            metric="exit_code",
            value=given.exit_code,
            outcome="not-measured",
            expected="0",
            source="the command's exit code",
            suspect="the program ended badly; read its last lines",
        )
    ]
