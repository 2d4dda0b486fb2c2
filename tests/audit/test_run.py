"""`audit.run` and the command: inputs found, tools named, exit codes that follow the worst finding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuready.audit.expect import Expectations, ExpectError, from_options
from pytest_gpuready.audit.report import Finding, InputReport, Report, exit_code, to_json, worst


def gpuready(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_gpuready.cli", "audit", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_input_that_nobody_recognises_is_not_measured(tmp_path: Path) -> None:
    """Text of no known tool proves nothing: exit 20, and the line says so."""
    (tmp_path / "poem.txt").write_text("roses are red\n")
    done = gpuready(str(tmp_path / "poem.txt"), "--format", "json")
    assert done.returncode == 20
    report = json.loads(done.stdout)
    assert (report["schema"], report["outcome"]) == ("gpuready-audit/1", "not-measured")
    assert report["inputs"][0]["findings"][0]["suspect"] == "no tool's output was recognised in it"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-file"], "found nothing at no-such-file"),
        (["FILE", "--tool", "no-such-tool"], "found 'no-such-tool'"),
        (["FILE", "--expect", "expected_gpu=8"], "did you mean expected_gpus?"),
        (["FILE", "--expect", "expected_gpus"], "expected KEY=VALUE"),
        (["FILE", "--expect", "expected_gpus=many"], "expected count, found 'many'"),
    ],
)
def test_a_wrong_word_is_one_line(tmp_path: Path, words: list[str], says: str) -> None:
    """A path, tool or expectation that is wrong ends with one line and exit 2, and nothing is read."""
    (tmp_path / "file").write_text("x\n")
    done = gpuready(*[str(tmp_path / "file") if w == "FILE" else w for w in words])
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_case_cannot_reach_out_of_its_folder(tmp_path: Path) -> None:
    """A case file that names a file elsewhere is refused."""
    (tmp_path / "secret").write_text("x")
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "case.yaml").write_text("tool: dmesg-xid\ninputs: [{file: ../secret}]\n")
    done = gpuready(str(tmp_path / "case"))
    assert done.returncode == 2
    assert "'../secret'" in done.stderr


def test_the_worst_outcome_counts() -> None:
    """fail beats not-measured beats marginal beats pass; nothing at all is not measured."""
    assert worst(["pass", "not-measured", "fail"]) == "fail"
    assert worst(["pass", "marginal", "not-measured"]) == "not-measured"
    assert worst(["observed", "pass", "not-applicable"]) == "pass"
    assert worst(["observed", "not-applicable"]) == "observed"
    assert worst([]) == "not-measured"
    assert [exit_code(o) for o in ("pass", "marginal", "fail", "not-measured", "observed")] == [0, 0, 1, 20, 20]


def test_expectations_are_typed() -> None:
    """Lists and numbers are JSON, a sysctl name takes text, and a reader that asks for another kind is stopped."""
    given = from_options(['expected_nics=["0000:17:00.0"]', "vm.swappiness=<=10", "require_gdr=true"])
    assert given.list("expected_nics") == ["0000:17:00.0"]
    assert given.sysctls() == {"vm.swappiness": "<=10"}
    assert given.flag("require_gdr") is True
    assert given.count("ranks") is None
    with pytest.raises(KeyError):
        given.count("require_gdr")
    with pytest.raises(ExpectError, match="expected count, found '-1'"):
        Expectations({"ranks": -1}, source="test")


def test_a_small_audit_loads_little(tmp_path: Path) -> None:
    """Reading one sysctl output loads neither msgspec nor YAML nor the modules of other tools."""
    (tmp_path / "sysctl.txt").write_text("vm.swappiness = 10\n")
    program = (
        "import sys; from pytest_gpuready.cli import main; "
        f"main(['audit', {str(tmp_path / 'sysctl.txt')!r}]); "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'msgspec', 'yaml', 'jinja2', 'pytest', 'json'}),"
        "[n for n in sys.modules if 'smi' in n or 'nccl' in n or 'kernel' in n])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "[] []"


def test_a_report_as_json_holds_what_json_can() -> None:
    """An infinite value becomes null and text of any language ASCII; the order of the fields is the schema's."""
    finding = Finding(metric="m", outcome="observed", value=[1.5, float("inf")], suspect="Größe")
    entry = InputReport(path="p", tool="t", outcome="observed", findings=[finding])
    text = to_json(Report(inputs=[entry], outcome="observed"))
    assert text.isascii()
    told = json.loads(text)
    assert [*told] == ["schema", "inputs", "outcome"]
    assert told["inputs"][0]["findings"][0]["value"] == [1.5, None]
    assert told["inputs"][0]["findings"][0]["suspect"] == "Größe"
