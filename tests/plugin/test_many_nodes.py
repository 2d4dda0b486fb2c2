"""Runs over several nodes on a recording: each node has its own verdicts, whatever becomes of the others."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from lxml import etree

from pytest_gpuready.campaign.directory import claim
from pytest_gpuready.certificate.tables import ids_text
from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import CommandResult
from pytest_gpuready.parse.slurm_topology import SlurmTopology
from pytest_gpuready.transport.recording import append, encode_result, result_files
from pytest_gpuready.transport.replay import Replay
from tests.nodes import as_another, demo_results
from tests.plugin.conftest import Accept, Outcome
from tests.plugin.test_after_load import REVERSING, taken_last
from tests.plugin.test_run import comparable

NAMES = ("node01", "node02", "node03", "node04")
SITE = """site: 1
nodes:
  "node[01-04]": {gpus: 2, nvlink: full, virtual: true}
environment: {NCCL_NVLS_ENABLE: "0"}
"""
LEVEL1 = ("--gpuready-replay", "nodes", "-m", "level1")
LEVEL2 = ("--gpuready-replay", "nodes", "-m", "level2")
Change = Callable[[CommandResult], CommandResult | None]


def record(directory: Path, site: str = SITE, names: Sequence[str] = NAMES, level: int = 1, **changes: Change) -> None:
    """Nodes made of the recorded one, with what they print up to this level. A change takes a result out by None."""
    results: list[CommandResult] = []
    for number, name in enumerate(names, 1):
        for result in demo_results() if level > 1 else demo_results()[:2]:
            made: CommandResult | None = as_another(result, number, name)
            if made and name in changes:
                made = changes[name](made)
            results += [made] if made else []
    append(directory, results, nodes=names, composed="nodes made of one")
    (directory / "site.yaml").write_text(site)


def text(change: Callable[[str], str], *probes: str) -> Change:
    """Changes what is printed; by these probes, or by all."""
    return lambda result: (
        dataclasses.replace(result, stdout=change(result.stdout))
        if not probes or result.command.argv[3] in probes
        else result
    )


def said_of(run: Outcome, name: str) -> dict[str, list[str]]:
    """Clause -> the outcomes on the parts of one node."""
    return {
        clause["id"]: [p["outcome"] for p in clause["parts"] if p["part"].partition("/")[0] == name]
        for suite in run.certificate["suites"]
        for clause in suite["clauses"]
    }


def judged(run: Outcome) -> dict[str, str]:
    return {node["name"]: node["judged"] for node in run.certificate["nodes"]}


def lines(run: Outcome, name: str) -> str:
    return " ".join(node["why"][0] for node in run.certificate["nodes"] if node["name"] == name and node["why"])


def test_healthy_nodes_are_accepted_together(accept: Accept) -> None:
    """Every clause is one test a node; all parts of all nodes stand on the certificate, workers or not."""
    record(accept.path / "nodes", level=2)
    alone = accept(*LEVEL2, "-v")
    assert (alone.code, alone.status) == (0, "ACCEPTED")
    assert judged(alone) == dict.fromkeys(NAMES, "ACCEPTED")
    assert [p["part"] for p in alone.parts("GPU-1")] == [f"{name}/gpu{i}" for name in NAMES for i in (0, 1)]
    tests = [line for line in alone.result.stdout.lines if "::test_present[" in line]
    assert [re.search(r"\[(\w+)\]", line)[1] for line in tests] == list(NAMES)  # type: ignore[index]


BAD: dict[str, tuple[Change, str]] = {
    "dead": (lambda _result: None, "expected a recorded result, found none"),
    "silent": (text(lambda _text: ""), "expected one line of JSON, found ''"),
    "half": (text(lambda said: said[: len(said) // 2]), "expected"),
    "garbage": (text(lambda _text: "\x1b[31m<b>hello</b>\n" * 9), "expected"),
    "another host": (
        text(lambda said: said.replace('"node03"', '"node99"')),
        "to answer, found one that calls itself 'node99'",
    ),
    "a neighbour": (text(lambda said: said.replace('"node03"', '"node01"')), "calls itself 'node01'"),
    "another agent": (text(lambda said: re.sub(r'"gpuready_agent": ?\d+', '"gpuready_agent":99', said)), "99"),
    "another boot": (text(lambda said: re.sub(r'("boot_id": ?"\w{4})', r"\1ffff", said), "nvml"), "found one of boot"),
    "another host later": (text(lambda said: said.replace('"node03"', '"n"'), "nvml"), "found one of n;"),
}


def test_a_bad_node_costs_only_itself(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve nodes nine are bad in nine ways: each says why and has no verdict, the others are accepted."""
    monkeypatch.setattr("pytest_gpuready.grouped.MANY", 3)
    names = tuple(f"node{number:02d}" for number in range(1, 13))
    bad = dict(zip(names[2:-1], BAD, strict=True))
    site = SITE.replace("node[01-04]", "node[01-12]")
    changes = {name: functools.partial(called, BAD[kind][0], name) for name, kind in bad.items()}
    record(accept.path / "nodes", site, names, **changes)
    run = accept(*LEVEL1)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert judged(run) == {name: "INCOMPLETE" if name in bad else "ACCEPTED" for name in names}
    reasons = {p["part"].partition("/")[0]: p.get("reason", "") for p in run.parts("GPU-1")}
    assert [(kind, reasons[name]) for name, kind in bad.items() if BAD[kind][1] not in reasons[name]] == []
    assert {name for name in names if "PASS" in said_of(run, name)["GPU-1"]} == set(names) - set(bad)


def test_a_node_without_an_answer_is_one_block(accept: Accept) -> None:
    """A clause that lacks nothing but its answer is counted and has one short line; why it gave none is said once."""
    record(accept.path / "nodes", node02=lambda _result: None)
    run = accept(*LEVEL1, "-rA", "-v")
    assert (run.code, run.status) == (20, "INCOMPLETE")
    said = run.result.stdout.str()
    assert not re.search("^_+ test_", said, re.MULTILINE)
    assert len(re.findall(r"^_+ no answer \[node02\] _+$", said, re.MULTILINE)) == 1
    assert re.search("test_present\\[node02\\] NO ANSWER", said)
    clauses = len([c for c in said_of(run, "node02").values() if "NOT MEASURED" in c])
    assert run.result.parseoutcomes()["unanswered"] + run.result.parseoutcomes().get("xfailed", 0) >= clauses


def test_a_node_that_is_lost_on_the_way_is_told_once(accept: Accept) -> None:
    """Two nodes that gave no answer after their inventory: terminal, reasons and page tell that once, with all clauses,
    whether a command was still sent or not."""
    gone: Change = lambda result: result if result.command.argv[3] in ("node", "nvml") else None  # noqa: E731
    record(accept.path / "nodes", level=2, node02=gone, node03=gone)
    meta = accept.path / "nodes/recording.json"
    failed = {name: f"{name}: expected to log in by ssh, found no route to {name}" for name in ("node02", "node03")}
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "failed": failed}))
    run = accept(*LEVEL2)
    said = run.result.stdout.str()
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert not re.search("^_+ test_", said, re.MULTILINE)
    assert len(re.findall(r"^_+ no later answer \[node\[02-03\]\] _+$", said, re.MULTILINE)) == 1
    lacking = [clause for clause, outcomes in said_of(run, "node02").items() if "NOT MEASURED" in outcomes]
    assert len(lacking) > 20
    suites = {c["id"]: suite["id"] for suite in run.certificate["suites"] for c in suite["clauses"]}
    in_turn = sorted(lacking, key=lambda clause: (suites[clause] == "after_load", suites[clause]))  # as tests ran
    told = ["expected to log in by ssh, found no route to <node>", f"so no value of {ids_text(in_turn)}"]
    run.result.stdout.fnmatch_lines(told)
    required = {c["id"] for suite in run.certificate["suites"] for c in suite["clauses"] if c.get("required", True)}
    ids = ids_text([clause for clause in lacking if clause in required])
    assert run.certificate["why"] == [f"{ids} NOT MEASURED on 6 parts of node[02-03]: {told[0]}"]
    assert lines(run, "node02") == f"{ids} NOT MEASURED on 3 parts from node02 GPU 0 on: {failed['node02']}"
    assert (run.out / "certificate.html").read_text().count("route to node03") == 2  # of the worst, and node by node


def called(change: Change, name: str, result: CommandResult) -> CommandResult | None:
    """A change that is written for node03, on another node."""
    as_03 = dataclasses.replace(result, stdout=result.stdout.replace(f'"{name}"', '"node03"'))
    changed = change(as_03)
    return changed and dataclasses.replace(changed, stdout=changed.stdout.replace('"node03"', f'"{name}"'))


def test_of_a_long_answer_that_is_none_the_beginning_is_kept(accept: Accept) -> None:
    """What a node sends at the first contact is held for all nodes at once: of megabytes of some other JSON a little
    stays, and the store says so."""
    record(accept.path / "nodes", node02=text(lambda _said: json.dumps({"x": "y" * 1_000_000})))
    run = accept(*LEVEL1)
    assert judged(run) == {name: "INCOMPLETE" if name == "node02" else "ACCEPTED" for name in NAMES}
    assert max(path.stat().st_size for path in (run.out / "evidence").iterdir()) == 65_536
    assert "kept are the first 65536 bytes of it" in (run.out / "store/node@node02.json").read_text()


def test_one_machine_behind_two_names_is_neither(accept: Accept) -> None:
    """Two names that lead to one boot prove nothing about either of them."""
    boots: list[str] = []

    def same(said: str) -> str:
        boots.append(re.search(r'"boot_id": ?"([^"]+)"', said)[1])  # type: ignore[index]
        return said.replace(boots[-1], boots[0])

    record(accept.path / "nodes", node02=text(same), node03=text(same))
    run = accept(*LEVEL1)
    assert judged(run) == {"node01": "ACCEPTED", "node02": "INCOMPLETE", "node03": "INCOMPLETE", "node04": "ACCEPTED"}
    assert "behind node03 as well" in run.parts("GPU-1")[2]["reason"]


def test_a_failed_node_is_not_loaded_and_does_not_block_the_others(accept: Accept) -> None:
    """A gate of level 1 that fails on one node blocks level 2 there alone."""
    wrong = text(lambda said: said.replace('"0x', '"1x').replace("10de:2335", "10de:2330"))
    record(accept.path / "nodes", level=2, node02=wrong)
    run = accept(*LEVEL2)
    assert (run.code, run.status) == (1, "REJECTED")
    assert judged(run) == {**dict.fromkeys(NAMES, "ACCEPTED"), "node02": "REJECTED"}
    assert set(said_of(run, "node02")["PCIE-5"]) == {"NOT TESTED"}
    assert set(said_of(run, "node03")["PCIE-5"]) == {"PASS"}
    assert not list((run.out / "store").glob("copies@node02*"))
    assert len(list((run.out / "store").glob("copies@node03*"))) == 2


def test_a_selection_of_the_nodes_says_what_was_left_out(accept: Accept) -> None:
    """--gpuready-nodes judges the named nodes; the certificate says that the site file has more."""
    record(accept.path / "nodes", node04=lambda _result: None)
    run = accept(*LEVEL1, "--gpuready-nodes", "node[01-02]")
    assert (run.code, judged(run)) == (0, {"node01": "ACCEPTED", "node02": "ACCEPTED"})
    assert "2 of the 4 nodes of site.yaml were asked for: node[01-02]" in run.certificate["assumptions"]


def test_many_nodes_are_one_test_a_clause(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of nodes a clause is one test for all; what it finds is told part by part all the same."""
    monkeypatch.setattr("pytest_gpuready.grouped.MANY", 3)
    record(accept.path / "nodes", node02=text(lambda said: said.replace("10de:2335", "10de:2330")))
    run = accept(*LEVEL1)
    assert run.result.parseoutcomes()["failed"] == 1
    assert judged(run) == {**dict.fromkeys(NAMES, "ACCEPTED"), "node02": "REJECTED"}
    assert [p["part"] for p in run.parts("GPU-2") if p["outcome"] == "FAIL"] == ["node02/gpu0", "node02/gpu1"]


SKIPPED = ["PASS", "NOT TESTED"] * 4
SUITE = """
import pytest

@pytest.fixture
def named(part):
    return part.name

@pytest.mark.level(1)
@pytest.mark.clause("GPU-1")
def test_present({arguments}):
    "Every declared GPU is there."
    {body}
"""


@pytest.mark.parametrize(
    ("arguments", "body", "outcomes", "tests"),
    [
        ("measured, require", "require(measured)", ["PASS"] * 8, 4),
        ("measured, require, part", "assert part.index == 0 or part.node != 'node02'; require(measured)", None, 4),
        (
            "measured, require, part",
            "part.index and pytest.skip('no'); require(measured)",
            ["PASS", "NOT TESTED"] * 4,
            4,
        ),
        ("measured", "pass", ["NOT MEASURED"] * 8, 4),
        ("part, gpu, measured, require", "assert gpu.part == part; require(measured)", ["PASS"] * 8, 4),
        ("measured, require, named", "assert '/gpu' in named; require(measured)", ["PASS"] * 8, 8),
        ("measured, require, request", "assert request.getfixturevalue('part'); require(measured)", ["PASS"] * 8, 8),
    ],
)
def test_a_test_is_called_for_each_part(
    accept: Accept, arguments: str, body: str, outcomes: Sequence[str] | None, tests: int
) -> None:
    """What a test says of one GPU is not what it says of the next; other fixtures keep it a test a part."""
    record(accept.path / "nodes")
    (accept.path / "test_own.py").write_text(SUITE.format(arguments=arguments, body=body))
    run = accept("--gpuready-replay", "nodes", "-m", "level1", "test_own.py", suites=False)
    assert sum(run.result.parseoutcomes().get(word, 0) for word in ("passed", "failed")) == tests
    found = [p["outcome"] for p in run.parts("GPU-1")]
    assert found == (outcomes or ["PASS"] * 3 + ["NOT MEASURED"] + ["PASS"] * 4)


def test_workers_change_nothing(accept: Accept, pytester: pytest.Pytester) -> None:
    """With -n 2, the tests turned round and one node dead the certificate is the same but for times, of tests of a node
    and of a part; the look after the load is asked for first and still measured last; pytest's own JUnit has clause,
    outcome and limit as properties.
    """
    of_each_part = SUITE.format(arguments="measured, require, named", body="require(measured)")
    pytester.makepyfile(reversing=REVERSING, test_own=of_each_part.replace("test_present", "test_each"))
    record(accept.path / "nodes", SITE.replace("04", "02"), NAMES[:2], level=2, node02=lambda _result: None)
    arguments = (*LEVEL2, "-k", "not test_present", "test_own.py")
    alone = accept(*arguments, "--gpuready-out", "alone")
    shared = accept(*arguments, "-n", "2", "--junitxml", "own.xml", plugins=("reversing",))
    assert comparable(shared.certificate) == comparable(Outcome(alone.result, accept.path / "alone").certificate)
    assert alone.code == shared.code == 20
    assert judged(shared) == {"node01": "ACCEPTED", "node02": "INCOMPLETE"}
    assert taken_last(shared.out, gpus=2)
    cases = etree.parse(accept.path / "own.xml").getroot().findall(".//testcase")
    of_part = [{p.get("name") for p in case.iter("property")} for case in cases if "test_each" in case.get("name")]
    assert len(of_part) == 4
    assert all({"gpuready.clause", "gpuready.part", "gpuready.outcome", "gpuready.limit"} <= names for names in of_part)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpuready-nodes", "node[1-3]", "--gpuready-transport", "local"), "expected this machine"),
        (("--gpuready-transport", "ssh"), "expected nodes to reach by ssh, found none"),
        (("--gpuready-transport", "teleport"), "expected local, ssh, slurm, kubernetes, found 'teleport'"),
        (("--gpuready-nodes", "a[1-"), "expected node names like node[001-512], found 'a[1-'"),
        (("--gpuready-replay", "demo", "--gpuready-transport", "ssh"), "a replay reaches no node"),
        (("--gpuready-replay", "demo", "--gpuready-nodes", "node07"), "expected node node07 in the recording"),
        (("--gpuready-nodes", "n1", "--gpuready-transport", "kubernetes"), "expected kubernetes: {image: ...}"),
    ],
)
def test_what_cannot_be_reached_so_is_said_in_one_line(accept: Accept, arguments: Sequence[str], says: str) -> None:
    """Nothing runs, nothing is written, exit code 4; it is said once, without the name of a class."""
    run = accept(*arguments, "-m", "level1")
    assert run.code == 4
    said = [line for line in [*run.result.outlines, *run.result.errlines] if line]
    assert len(said) == 1
    assert said[0].startswith("gpuready: ")
    assert says in said[0]
    assert "Error" not in said[0]
    assert not run.out.exists()


def test_who_is_refused_the_directory_has_touched_no_node(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run in one directory ends before its first contact; a first one that fails there leaves no directory."""
    asked: list[str] = []
    run_one = Replay.run
    monkeypatch.setattr(Replay, "run", lambda self, command: asked.append(command.node) or run_one(self, command))
    record(accept.path / "nodes")
    held = claim(accept.path / "gpuready-out")
    run = accept(*LEVEL1)
    assert run.code == 20
    (line,) = run.result.errlines
    assert line.startswith(f"gpuready: INCOMPLETE: expected {accept.path / 'gpuready-out'} free, found another run")
    assert asked == []
    held.give_up()
    assert accept(*LEVEL1, "--gpuready-profile", "a100-80-sxm").code == 4
    assert set(asked) == set(NAMES)
    assert not run.out.exists()


IN_RACKS = """profile: ours
extends: h200-sxm
version: "1"
title: H200, compared within racks
pci_ids: ["10de:2335"]
clauses:
  PCIE-5:
    peers: {among: rack, worse: lower, percent: 15.0, source: {kind: contract, cite: annex B}}
"""


@pytest.mark.parametrize("known", [True, False])
def test_a_replay_knows_the_racks_of_the_run(accept: Accept, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Switches that stand for racks are recorded, also that Slurm could not say them: both certificates are the same
    but for their basis, whichever profile the run was recorded with."""

    class Slurm(Replay):
        """Stands for the transport: what was recorded before, and which switches there are."""

        def topology(self) -> SlurmTopology:
            if not known:
                raise TransportError("scontrol: no answer within 10 s")
            return SlurmTopology(kind="tree", paths={name: (f"leaf{i // 2}",) for i, name in enumerate(NAMES)})

    def opened(_kind: str, _way: object, _screen: object) -> tuple[Replay, Replay]:
        bare = Slurm(accept.path / "nodes")
        return bare, bare

    def without_load(result: CommandResult) -> CommandResult | None:
        """What is asked here, and not the rest of what was recorded."""
        return result if result.command.argv[3] in ("node", "nvml", "copies") else None

    monkeypatch.setattr("pytest_gpuready.campaign.reach.open_way", opened)
    record(accept.path / "nodes", level=2, **dict.fromkeys(NAMES, without_load))
    (accept.path / "ours.yaml").write_text(IN_RACKS)
    (accept.path / "site.yaml").write_text(SITE)
    asked = ("-m", "level2", "-k", "host_to_device", "--gpuready-site", "site.yaml")
    by_slurm = ("--gpuready-transport", "slurm", "--gpuready-record")
    live = accept(*asked, *by_slurm, "rec", "--gpuready-profile", "ours.yaml").certificate
    replayed = accept(*asked, "--gpuready-replay", "rec", "--gpuready-profile", "ours.yaml").certificate
    assert [node.get("rack", "") for node in live["nodes"]] == (["leaf0"] * 2 + ["leaf1"] * 2 if known else [""] * 4)
    differ = {"basis", "basis_note", "verdict", "nodes", "evidence"}
    kept = [{k: v for k, v in comparable(one).items() if k not in differ} for one in (live, replayed)]
    assert kept[0] == kept[1]
    assert [{**node, "verdict": ""} for node in live["nodes"]] == [{**n, "verdict": ""} for n in replayed["nodes"]]
    accept(*asked, *by_slurm, "plain")
    again = accept(*asked, "--gpuready-replay", "plain", "--gpuready-profile", "ours.yaml").certificate
    assert again["nodes"] == replayed["nodes"]


def test_a_run_that_was_opened_in_vain_lets_go(accept: Accept, pytester: pytest.Pytester) -> None:
    """Where another plug-in ends the session before a test was collected, the directory is free again."""
    pytester.makepyfile(
        ends="""
        import pytest
        @pytest.hookimpl(trylast=True)
        def pytest_sessionstart():
            raise pytest.UsageError("not today")
        """
    )
    record(accept.path / "nodes")
    run = accept(*LEVEL1, "-p", "ends")
    assert run.code == 4
    assert run.certificate["finished"] is False
    claim(run.out).give_up()


def test_a_run_is_continued_node_by_node(accept: Accept) -> None:
    """A node that was not there is measured anew, one that failed keeps that, the others keep what proved itself."""
    wrong = text(lambda said: said.replace("10de:2335", "10de:2330"))
    record(accept.path / "nodes", node02=wrong, node03=lambda _result: None)
    first = accept(*LEVEL1)
    assert (judged(first)["node02"], judged(first)["node03"]) == ("REJECTED", "INCOMPLETE")
    run_file = first.out / "run.json"
    run_file.write_text(run_file.read_text().replace('"ended": "REJECTED"', '"ended": ""'))  # as if it had been killed
    shutil.rmtree(accept.path / "nodes")
    record(accept.path / "nodes", node04=lambda _result: None)
    second = accept(*LEVEL1)
    said = [line for line in second.certificate["assumptions"] if line.startswith("continued:")]
    assert said == [
        "continued: node01 kept, node[03-04] measured anew (not reached, rebooted or changed), "
        "node02 failed and not measured again (another --gpuready-out measures it anew)"
    ]
    assert any(line.startswith("gpuready: continued: node01 kept") for line in second.result.stdout.lines)
    assert judged(second) == {
        "node01": "ACCEPTED",
        "node02": "REJECTED",
        "node03": "ACCEPTED",
        "node04": "INCOMPLETE",
    }


def test_a_fixture_that_somebody_overrides_is_asked_for_each_part(accept: Accept) -> None:
    """A conftest that puts its own `require` in the place of ours changes what each GPU comes to, on any number of
    nodes."""
    record(accept.path / "nodes")
    (accept.path / "test_own.py").write_text(SUITE.format(arguments="measured, require", body="require(measured)"))
    (accept.path / "conftest.py").write_text(
        "import pytest\n@pytest.fixture\ndef require(part, require):\n    assert part.index == 0\n    return require\n"
    )
    run = accept("--gpuready-replay", "nodes", "-m", "level1", "test_own.py", suites=False)
    assert [p["outcome"] for p in run.parts("GPU-1")] == ["PASS", "NOT MEASURED"] * 4


def test_a_recording_is_read_by_the_numbers_in_it(tmp_path: Path) -> None:
    """Neither the names of its files nor their order says which result is a retest; nodes beyond those it names, or
    that gave no result, are not left out in silence."""
    first = demo_results()[0]
    again = dataclasses.replace(first, command=dataclasses.replace(first.command, repeat=1), stdout="again")
    append(tmp_path, [again, first], nodes=["node02"])
    replay = Replay(tmp_path)
    assert replay.meta.nodes == ["node01", "node02"]
    assert [replay.run(dataclasses.replace(first.command, repeat=n)).stdout for n in (0, 1)] == [first.stdout, "again"]
    names = [*(tmp_path / "results").glob("*.json")]
    assert [path.name for path in sorted(names)] == ["0000.json", "0001.json"]
    (tmp_path / "results/0000.json").rename(tmp_path / "results/10000.json")
    assert [path.name for path in result_files(tmp_path)] == ["0001.json", "10000.json"]
    stranger = as_another(first, 7, "node07")
    (tmp_path / "results/10001.json").write_bytes(encode_result(stranger))
    with pytest.raises(TransportError, match="found one of 'node07'"):
        Replay(tmp_path)
