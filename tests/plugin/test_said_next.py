"""What a run says to do next can be typed as it stands, and asks for what was asked for."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ClusterShell import NodeSet
from ClusterShell.NodeUtils import GroupResolverConfig

from pytest_gpuready import accept as accepting
from tests.nodes import demo_results, write_recording
from tests.plugin.conftest import SUITES, Accept, Outcome

SHIPPED = "pytest --pyargs pytest_gpuready.suites"


def test_a_replay_hands_on_what_was_asked(accept: Accept) -> None:
    """Behind a replay the node itself is asked for the same profile, site file, soak and level, gates kept open."""
    (accept.path / "mine.yaml").write_text("site: 1\nnodes: {node01: {gpus: 1, nvlink: none}}\n")
    asked = ("--gpuready-profile", "h200-sxm", "--gpuready-site", "mine.yaml", "--gpuready-burn", "4h")
    run = accept("--gpuready-replay", "demo-dcgm", "-m", "level4", *asked, "--gpuready-keep-going", "--co", "-q")
    assert run.code == 0, "all of it is understood"
    run = accept("--gpuready-replay", "demo-dcgm", "-m", "level4", *asked, "--gpuready-keep-going")
    words = "-m level4 --gpuready-site mine.yaml --gpuready-profile h200-sxm --gpuready-burn 4h --gpuready-keep-going"
    assert run.certificate["do_next"] == [f"on the node itself: pytest {SUITES} {words}"]


def test_what_a_line_for_a_shell_leaves_out(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording, how much is shown, and single tests that were chosen are not asked for again."""
    noise = ("--gpuready-record", "rec", "-o", "addopts=", "-p", "no:cacheprovider", "--tb=no", "-rN", "-k", "present")
    run = accept(
        *noise, "-m", "level1", "--gpuready-out", "gpuready-out", f"{SUITES}/test_nvlink.py::test_count", suites=False
    )
    assert run.certificate["do_next"][-1] == f"{SHIPPED} -m level1 --gpuready-out gpuready-out"


def test_who_started_pytest_may_name_the_command(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `make accept` the next command is `make accept`, whatever pytest was given."""
    monkeypatch.setenv("GPUREADY_AGAIN", "make accept")
    run = accept("-m", "level1", "--gpuready-site", _site(accept.path))
    assert run.certificate["do_next"][-1] == "make accept"


class Started:
    """Stands for pytest: keeps the command and environment that `accept` gives it."""

    command: list[str]
    environment: dict[str, str]

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        type(self).command, type(self).environment = command, env

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> int:
        return 4


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Started]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(accepting.subprocess, "Popen", Started)
    return Started


def test_make_accept_leaves_the_level_to_the_site_file(tmp_path: Path, started: type[Started]) -> None:
    """Without a site file level 2 is asked for; with one its own level counts, and 2 where it names none."""
    accepting.main(["--gpuready-replay", "demo"], root=tmp_path)
    assert "level2" in started.command
    _site(tmp_path)
    accepting.main([], root=tmp_path)
    assert "-m" not in started.command[3:]
    assert started.command[-2:] == ["--gpuready-site", "site.yaml"]
    assert started.environment["GPUREADY_DEFAULT_LEVEL"] == "2"


@pytest.mark.parametrize(("level", "asked"), [("level: 1\n", 1), ("", 2)])
def test_the_level_of_the_site_file_counts(
    accept: Accept, monkeypatch: pytest.MonkeyPatch, level: str, asked: int
) -> None:
    """Where nobody gives -m the site file's level counts, and else the one of whoever started pytest."""
    site = write_recording(accept.path / "node", demo_results(), gpus="2") / "site.yaml"
    site.write_text(site.read_text() + level)
    monkeypatch.setenv("GPUREADY_DEFAULT_LEVEL", "2")
    run = accept("--gpuready-replay", "node")
    assert (run.code, run.certificate["level_asked"]) == (0, asked)


@pytest.mark.parametrize("by_make", [True, False])
def test_make_accept_says_how_it_is_typed(
    tmp_path: Path, started: type[Started], monkeypatch: pytest.MonkeyPatch, by_make: bool
) -> None:
    """Other arguments stay, a replay and a recording do not; outside make the module itself is named."""
    monkeypatch.setenv("GPUREADY_ANNOUNCED", "1" if by_make else "")
    _site(tmp_path)
    accepting.main(["--gpuready-record", "rec", "-k", "a b$", "--gpuready-profile=x"], root=tmp_path)
    again = started.environment["GPUREADY_AGAIN"]
    if by_make:
        assert again == "make accept ARGS=" + shlex.quote("-k 'a b$$' --gpuready-profile=x")
    else:
        assert again.endswith("-m pytest_gpuready.accept -k 'a b$' --gpuready-profile=x")


def test_a_page_of_an_earlier_run_is_not_this_one(
    tmp_path: Path, started: type[Started], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was refused names no certificate, if one lies there from a moment before."""
    (tmp_path / "gpuready-out").mkdir()
    (tmp_path / "gpuready-out/certificate.html").write_text("earlier")
    _site(tmp_path)
    assert accepting.main([], root=tmp_path) == 4
    said = capsys.readouterr().out
    assert f"this run wrote no certificate to {tmp_path}{os.sep}gpuready-out" in said
    assert "certificate.html" not in said


def test_only_collecting_leaves_everything_as_it_is(accept: Accept) -> None:
    """--collect-only lists the tests with pytest's own code; an accepted run stays where it is, nothing is written."""
    accepted = accept("--gpuready-replay", "demo", "-m", "level2")
    before = {path: path.read_bytes() for path in accept.path.rglob("*") if path.is_file()}
    run = accept("--gpuready-replay", "demo", "-m", "level2", "--collect-only", "-q")
    assert run.code == 0
    run.result.stdout.fnmatch_lines(["*test_present*node01/gpu0*"])
    assert {path: path.read_bytes() for path in accept.path.rglob("*") if path.is_file()} == before
    run = accept("-m", "level1", "--gpuready-record", "rec", "--collect-only")
    run.result.stdout.fnmatch_lines(["*only collected: nothing is measured and nothing is written*"])
    assert "certificate" not in run.result.stdout.str()
    assert {path: path.read_bytes() for path in accept.path.rglob("*") if path.is_file()} == before
    assert accepted.status == "ACCEPTED"


@pytest.mark.parametrize("expression", ["level5", "level2 or level0", "not level12"])
def test_a_level_that_does_not_exist_is_refused(accept: Accept, expression: str) -> None:
    """A marker expression with such a level is a usage error of one line, before anything is measured."""
    run = accept("--gpuready-replay", "demo", "-m", expression)
    assert run.code == 4
    assert not run.out.exists()
    assert "levels are 1 to 4" in run.result.stdout.str() + run.result.stderr.str()


def test_somebody_elses_mark_is_none_of_our_levels(accept: Accept) -> None:
    """A mark that the project registers itself may be called level9."""
    run = accept("--gpuready-replay", "demo", "-m", "level2 or level9", "-o", "markers=level9: of another game")
    assert run.certificate["finished"] is True


def _site(folder: Path) -> str:
    (folder / "site.yaml").write_text("site: 1\nnodes: {node01: {gpus: 1}}\n")
    return str(folder / "site.yaml")


def test_a_run_that_only_a_clause_opens_says_once_why_it_cannot(accept: Accept) -> None:
    """What ini names and is not there is found when the first clause is collected: one line, behind pytest's own."""
    run = accept("-o", "gpuready_site=nowhere.yaml")
    assert run.code == 4
    both = run.result.outlines + run.result.errlines
    assert [line[:10] for line in both if "nowhere.yaml" in line] == ["gpuready: "]
    assert not [line for line in both if "Traceback" in line or "Error" in line]


def test_a_wrong_mark_is_one_line_and_no_traceback(accept: Accept, pytester: pytest.Pytester) -> None:
    """A clause without its one id is named with its test; where it was found out in our code is nobody's concern."""
    pytester.makepyfile(
        test_mine="import pytest\n@pytest.mark.clause('GPU-1', 2)\ndef test_mine(measured, require): ..."
    )
    run = accept("--gpuready-replay", "demo", "test_mine.py", suites=False)
    assert run.code == 2
    run.result.stdout.fnmatch_lines(['test_mine.py::test_mine: expected pytest.mark.clause("ID"), found clause(*'])
    assert "plugin.py" not in run.result.stdout.str()


def test_workers_say_once_what_the_controlling_process_lacks(accept: Accept) -> None:
    """With -n and nothing that opens a run before the workers start, each says so for its first file alone."""
    run = accept("-n", "1")
    assert run.code not in (0, 5)
    said = [line for line in run.result.outlines if line.startswith("gpuready: with -n, expected -m levelN")]
    assert len(said) == 1


PRINTS = f"""#!{sys.executable}
import json, sys
print(json.dumps(sys.argv[1:]))
"""


@pytest.mark.parametrize("nodes", ["node[01-02],other-7", "@gpu"])
def test_the_command_for_many_nodes_is_what_a_shell_takes(
    accept: Accept, monkeypatch: pytest.MonkeyPatch, nodes: str
) -> None:
    """Nodes, transport, site file, soak and directory are asked for again; the command of the certificate, and the
    lines on the terminal as they can be copied, give a shell exactly these words, beside files that a pattern would
    match; and these words reach the same nodes and continue the run."""
    (accept.path / "ssh_config").write_text("Host *\n  ProxyCommand false\n")
    groups = accept.path / "groups.conf"
    groups.write_text("[Main]\ndefault: here\n[here]\nmap: [ $GROUP = gpu ] && echo 'node[01-02],other-7'\n")
    resolver = GroupResolverConfig([str(groups)])  # else that of whichever test asked for a group first
    monkeypatch.setattr(NodeSet, "RESOLVER_STD_GROUP", resolver)
    names = ["node01", "node02", "other-7"]
    site = accept.path / "a site of ours, $HOME.yaml"
    declared = "\n".join(f"  {name}: {{gpus: 2}}" for name in [*names, "node05"])
    site.write_text(f"site: 1\nssh: {{config: ssh_config}}\nprofile: h200-sxm\nnodes:\n{declared}\n")
    for name in ("node0", "node1", "--gpuready-nodes=@gpu"):
        (accept.path / name).touch()
    asked = (
        *("-m", "level1", "--gpuready-site", site.name),
        *(("--gpuready-nodes", nodes) if nodes[0] != "@" else (f"--gpuready-nodes={nodes}",)),
        *("--gpuready-transport", "ssh", "--gpuready-out", "runs of today/one"),
    )
    first = Outcome(accept("--gpuready-record", "rec", *asked).result, accept.path / "runs of today/one")
    assert first.code == 20
    command = first.certificate["do_next"][-1]
    lines = [line[12:] for line in first.result.outlines if line.startswith(("do next", " " * 12))]
    at = next(place for place, line in enumerate(lines) if line.startswith("pytest "))
    shown = [*itertools.takewhile(lambda line: line.endswith("\\"), lines[at:])]
    copied = "\n            ".join([*shown, lines[at + len(shown)]])
    assert shown, "it is longer than a line"
    (accept.path / "bin").mkdir()
    (accept.path / "bin/pytest").write_text(PRINTS)
    (accept.path / "bin/pytest").chmod(0o755)
    path = f"{accept.path}/bin:{os.environ['PATH']}"
    for typed in (command, copied):
        heard = subprocess.run(
            ["sh", "-c", typed], cwd=accept.path, env={"PATH": path}, capture_output=True, text=True, check=True
        )
        words = json.loads(heard.stdout)
        assert words == [str(SUITES), *asked[:2], *words[3:]]
        assert sorted(words[3:]) == sorted(asked[2:])
    second = Outcome(accept(*words, suites=False).result, first.out)
    assert (second.code, [node["name"] for node in second.certificate["nodes"]]) == (20, names)
    assert second.certificate["do_next"][-1] == command
