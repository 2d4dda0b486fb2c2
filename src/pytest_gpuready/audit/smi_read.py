"""Everything that a text of nvidia-smi says, section by section, and what was asked and is not in it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from pytest_gpuready.audit.nvlink_judge import counts, has_status, nvlink_findings
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome, worst
from pytest_gpuready.audit.smi_gpu import OWN, State, gpu_findings, shown, state
from pytest_gpuready.audit.smi_said import exit_findings, said_findings
from pytest_gpuready.audit.smi_sections import sections
from pytest_gpuready.audit.topo_judge import answers_links, topo_findings
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.nvlink import nvlink
from pytest_gpuready.parse.smi_csv import csv_header, key, numbered, queried
from pytest_gpuready.parse.smi_messages import Message
from pytest_gpuready.parse.smi_q import smi_q
from pytest_gpuready.parse.smi_table import smi_listed, smi_table
from pytest_gpuready.parse.smi_tree import SmiLog
from pytest_gpuready.parse.smi_values import SmiGpu
from pytest_gpuready.parse.smi_xml import smi_xml
from pytest_gpuready.parse.topo import topology

_LINES_AT_MOST = 100_000
_FINDINGS_AT_MOST = 20_000
"""Beyond this, findings of the same part are folded together: a log of the same command for days says little new."""
_FOLDED_AT_MOST = 100_000
_MESSAGES_AT_MOST = 500
_CONTEXT = {"under_load", "bare_metal", "gpus_per_node", "window_start"}
_METRIC = {
    "expected_gpus": "inventory.gpu_count",
    "expected_model": "gpu.model",
    "expected_mig": "gpu.mig",
    "expected_pcie_gen": "pcie.speed",
    "expected_pcie_width": "pcie.width",
    "nvswitch": "fabric.state",
    "expected_nvlinks_per_gpu": "nvlink.status",
    "expected_nvlinks_per_pair": "topo.nvlink_mesh",
    "expected_nvlink_pairs": "topo.nvlink_pairs",
    "max_replay_errors": "nvlink.replay_errors",
    "max_recovery_errors": "nvlink.recovery_errors",
}


class SmiReading:
    """Reads one input once."""

    def __init__(self, given: Given) -> None:
        self._given, self._expect = given, given.expect
        self._findings: list[Finding] = []
        self._messages: list[Message] = []
        self._open: list[str] = []
        self._version = ""
        self._kinds: set[str] = set()
        self._answered: set[str] = set()
        self._named: dict[str, str] = {}

    def reading(self, tool: str) -> Reading:
        """The reading under the name of one tool."""
        names = queried(self._given.command)
        room = _FINDINGS_AT_MOST
        for kind, lines in sections(self._given.lines()):
            self._section(kind, lines, names)
            if len(self._findings) > room:
                self._findings = folded(self._findings)
                room = max(_FINDINGS_AT_MOST, 2 * len(self._findings))
            if len(self._findings) > _FOLDED_AT_MOST:
                self._unsure(f"more than {_FOLDED_AT_MOST} different findings: what follows was not read")
                break
        self._findings += said_findings(self._messages, self._expect)
        self._answered |= {f.metric for f in self._findings}
        self._findings += exit_findings(self._given, self._findings)
        self._ask(tool)
        if not self._findings:
            self._findings.append(
                Finding(metric="smi.readable", outcome="not-measured", suspect="no output of nvidia-smi in the text")
            )
        return Reading(
            findings=tuple(self._findings),
            tool_version=self._version,
            not_covered=tuple(dict.fromkeys(self._covered())),
            named=tuple(self._named.items()),
        )

    def _section(self, kind: str, lines: Iterator[str | Message], names: Sequence[str]) -> None:
        text = self._listen(lines)
        try:
            if kind == "xml":
                self._log(smi_xml(text), kind)
            elif kind == "q":
                self._log(smi_q(text), kind)
            elif kind == "table":
                self._table(text)
            elif kind in ("listed", "nvlink"):
                self._links(list(itertools.islice(text, _LINES_AT_MOST)))
            elif kind == "topo":
                self._topology(text)
            elif kind == "csv":
                self._rows(text, csv_header(next(text, "")))
            elif names and not self._kinds:
                self._without_header(text, names)
        except ParseError as error:
            self._findings.append(
                Finding(metric="smi.readable", outcome="not-measured", suspect=str(error), advice="print it again")
            )
        for _ in text:  # what a parser did not need still holds messages
            pass
        if kind:
            self._kinds.add(kind)

    def _listen(self, lines: Iterable[str | Message]) -> Iterator[str]:
        for line in lines:
            if isinstance(line, str):
                yield line
            elif len(self._messages) < _MESSAGES_AT_MOST:
                self._messages.append(line)

    def _log(self, log: SmiLog, kind: str) -> None:
        self._version = self._version or log.driver
        found = len(log.gpus)
        some = any(word in self._given.command for word in (" -i ", " --id", " -i="))
        cut = log.complete is False or bool(log.repeated)
        cut = cut or (log.attached is not None and found != log.attached and not (some and found < log.attached))
        if log.complete is False:
            self._unsure("the document ends before its end mark")
        elif log.repeated:
            self._unsure(f"a GPU stands there twice: {', '.join(log.repeated)}")
        elif cut:
            self._unsure(f"{log.attached} GPUs attached, {found} of them in the text")
        elif log.short:
            self._unsure(f"less is said of {', '.join(log.short[:8])} than of the others")
        self._count(log.attached if some and log.attached is not None else found, cut, log.gpus)
        for gpu in log.gpus:
            self._findings += gpu_findings(gpu, self._expect)
        domains = {(g.word("fabric.cliqueId"), g.word("fabric.clusterUuid")) for g in log.gpus} - {("", "")}
        if len(domains) > 1:
            self._findings.append(
                Finding(
                    metric="fabric.domain",
                    outcome="fail",
                    value=sorted(" ".join(domain) for domain in domains),
                    source=OWN,
                    suspect="GPUs of one machine in different NVLink domains (IMEX or fabric manager)",
                )
            )
        self._gaps(log.gpus)

    def _table(self, text: Iterator[str]) -> None:
        table = smi_table(text)
        self._version = self._version or table.driver
        if not table.complete:
            self._unsure("the table ends before the box of its processes")
        for line in table.unread:
            self._unsure(f"a row is not readable: {line}")
        self._count(len(table.gpus), not table.complete or bool(table.unread), table.gpus)
        for gpu in table.gpus:
            self._findings += gpu_findings(gpu, self._expect)
        if len({gpu.bdf for gpu in table.gpus}) != len(table.gpus):
            self._unsure("a GPU stands in the table twice")

    def _links(self, lines: list[str]) -> None:
        try:
            gpus = nvlink(lines)
        except ParseError:
            listed = [gpu for line in lines if (gpu := smi_listed(line))]
            if not listed:
                raise
            self._count(len({gpu.index for gpu in listed}), False, listed)
            for one in listed:
                self._findings += gpu_findings(one, self._expect)
            return
        if len(lines) >= _LINES_AT_MOST:
            self._unsure(f"only the first {_LINES_AT_MOST} lines were read")
        links = list(nvlink_findings(gpus, self._expect))
        self._findings += links
        self._named.update({gpu.part: gpu.name for gpu in gpus if gpu.name})
        self._kinds |= {"nvlink"}
        if has_status(gpus):
            self._kinds.add("nvlink status")
        if counts(gpus, "errors"):
            self._kinds.add("nvlink errors")
        named = [gpu for gpu in gpus if gpu.index >= 0]
        silent = [gpu.part for gpu in gpus if not gpu.counters]
        if len(silent) < len(gpus) and silent:
            self._open.append(f"NVLink errors of {', '.join(silent[:16])}: not in this text")
        if named:
            self._count(len(named), len(named) < (self._expected() or 0), ())
        if {f.outcome for f in links if f.metric == "nvlink.status"} == {"not-applicable"}:
            self._without_links()

    def _without_links(self) -> None:
        """GPUs that have no NVLink and need none: that their headings are all there proves nothing more."""
        counted = self._findings[-1]
        if counted.metric == "inventory.gpu_count" and counted.outcome == "pass":
            self._findings[-1] = dataclasses.replace(counted, outcome="not-applicable")

    def _topology(self, text: Iterator[str]) -> None:
        topo = topology(text)
        self._findings += topo_findings(topo, self._expect, self._given.command)
        self._count(len(topo.gpus), False, ())
        self._findings.append(Finding(metric="inventory.nic_count", outcome="observed", value=len(topo.nics)))
        if not answers_links(topo):
            self._open.append("NVLink between the GPUs: this matrix leaves it out")

    def _rows(self, text: Iterator[str], names: Sequence[str]) -> None:
        seen: dict[str, SmiGpu] = {}
        merged: dict[tuple[str, str], Finding] = {}
        states: dict[str, State] = {}
        latest: dict[str, SmiGpu] = {}
        unread = 0
        rows = (line for line in text if line.strip())
        for number, row in numbered(rows, names):
            if isinstance(row, ParseError):
                unread += 1
                if unread <= 20:
                    self._unsure(str(row))
                continue
            self._version = self._version or row.word("driver_version")
            name = key(row, number)
            seen.setdefault(name, row)
            judged, latest[name] = state(row), row
            if judged == states.get(name):
                continue  # only what is shown has changed, and the latest of that is added in the end
            states[name] = judged
            _add(merged, gpu_findings(row, self._expect))
            if len(seen) > 4096:
                raise ParseError("nvidia-smi CSV: expected at most 4096 GPUs, found more")
        for row in latest.values():
            _add(merged, shown(row))
        self._count(len(seen), bool(unread), tuple(seen.values()))
        self._findings += merged.values()
        self._gaps(tuple(seen.values()))

    def _without_header(self, text: Iterator[str], names: Sequence[str]) -> None:
        """Rows whose names the command line has; text that does not look like them is none."""
        first = next((line for line in text if line.strip()), "")
        if first.count(",") >= len(names) - 1 > 0:
            self._kinds.add("csv")
            self._rows(itertools.chain((first,), text), names)

    def _expected(self) -> int | None:
        told = self._expect.count("expected_gpus")
        return told if told is not None else self._expect.count("gpus_per_node")

    def _count(self, found: int, cut: bool, gpus: Sequence[SmiGpu]) -> None:
        expected = self._expected()
        outcome: Outcome = "observed" if expected is None else "pass" if found == expected else "fail"
        if cut and expected is not None and found <= expected:
            outcome = "not-measured"
        broken = [gpu for gpu in gpus if any(c.kind == "fault" for c in gpu.cells.values())]
        lost: list[float | int | str] = [gpu.index if gpu.index >= 0 else gpu.part for gpu in broken]
        self._findings.append(
            Finding(
                metric="inventory.gpu_count",
                outcome=outcome,
                value=found,
                unit="GPUs",
                expected="" if expected is None else str(expected),
                source=self._expect.source if expected is not None else "",
                suspect="a GPU that is not listed: compare with lspci, look for Xid 79" if outcome == "fail" else "",
            )
        )
        if lost:
            self._findings.append(Finding(metric="gpu.needs_reset", outcome="observed", value=lost))

    def _unsure(self, why: str) -> None:
        self._findings.append(Finding(metric="smi.complete", outcome="not-measured", suspect=why[:300]))

    def _gaps(self, gpus: Sequence[SmiGpu]) -> None:
        names = {name for gpu in gpus for name in gpu.cells}
        for prefix, what in (("ecc.errors", "ECC errors"), ("remapped_rows", "row remapping"), ("pcie.", "PCIe link")):
            if gpus and not any(name.startswith(prefix) for name in names):
                self._open.append(f"{what}: not in this text")
        if self._expect.count("expected_pcie_gen") is None and any(n.startswith("pcie.link") for n in names):
            self._open.append("PCIe: held against the link's own maximum, which a wrong slot lowers too")

    def _ask(self, tool: str) -> None:
        """A finding for each expectation that nothing in the text answered."""
        only_words = not self._kinds and bool(self._messages)
        if only_words and all(m.what in ("kernel module", "library version") for m in self._messages):
            return
        answered = {f.metric for f in self._findings}
        if tool != "nvidia-smi":
            answered.add("fabric.state")
        for name in self._expect.keys():  # noqa: SIM118 - not a dict
            metric = _METRIC.get(name, name)
            if name in _CONTEXT or metric in answered or (name == "nvswitch" and not self._expect.flag("nvswitch")):
                continue
            cuda = only_words and all(m.what.startswith("cuda") for m in self._messages)
            self._findings.append(
                Finding(
                    metric=name if cuda else metric,
                    outcome="not-measured",
                    expected=self._expect.told(name),
                    source=self._expect.source,
                    suspect="nothing in this text answers it",
                )
            )
        own = {"nvidia-smi-nvlink": "nvlink.", "nvidia-smi-topo": "topo."}.get(tool, "")
        if own and not any(f.metric.startswith(own) for f in self._findings):
            self._findings.append(
                Finding(metric=f"{own}readable", outcome="not-measured", suspect=f"no {own[:-1]} lines in the text")
            )

    def _covered(self) -> Iterator[str]:
        yield from self._open
        if {"xml", "q", "table", "csv"} & self._kinds:
            yield "load: one look says nothing about bandwidth, throttling or errors under load"
            told = {f.metric for f in self._findings}
            if "gpu.ecc" in told and "gpu.ecc_aggregate" not in told:
                yield "ECC errors over the life of the board (aggregate): this text counts since the last boot only"
            if self._expected() is None:
                yield "absent GPUs: nvidia-smi does not list a GPU that left the bus; give expected_gpus"
        if "nvlink status" in self._kinds:
            yield "NVLink: an active link has not been shown to carry traffic without errors"
        if "nvlink errors" in self._kinds:
            yield "NVLink errors: counters since the driver was loaded; only their growth under load says something"
        if "topo" in self._kinds:
            yield "topology: shows what is configured, not that it carries traffic"


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for each metric, part, outcome and suspect: the latest."""
    kept: dict[tuple[str, str, str, str], Finding] = {}
    for finding in findings:
        kept[finding.metric, finding.part, finding.outcome, finding.suspect] = finding
    return list(kept.values())


def _add(merged: dict[tuple[str, str], Finding], more: Iterable[Finding]) -> None:
    for finding in more:
        place = (finding.metric, finding.part)
        merged[place] = _merge(merged[place], finding) if place in merged else finding


def _merge(before: Finding, now: Finding) -> Finding:
    """Two samples of one GPU: the worse of them, but a link speed that one sample settles is settled."""
    if before.metric == "pcie.speed" and {before.outcome, now.outcome} & {"pass"}:
        settled = [f for f in (before, now) if f.outcome in ("fail", "pass")]
        return min(settled, key=lambda f: f.outcome)
    return now if worst([before.outcome, now.outcome]) == now.outcome else before
