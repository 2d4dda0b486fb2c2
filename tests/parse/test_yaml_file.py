"""The YAML reader: plain data with lines, and one clear line for everything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import InventoryError, ProfileError
from pytest_gpuready.parse import yaml_file
from pytest_gpuready.parse.yaml_file import (
    MAX_BYTES,
    YamlFile,
    dollar,
    load_yaml,
    nearest,
    nearest_word,
    read_yaml,
    shown,
)


def load(text: str | bytes) -> YamlFile:
    return load_yaml(text.encode() if isinstance(text, str) else text, ProfileError, name="x.yaml")


def refusal(text: str | bytes) -> str:
    with pytest.raises(ProfileError) as caught:
        load(text)
    return str(caught.value)


def test_values_keep_their_lines() -> None:
    """Every value knows the line of its key, inside flow mappings and lists too."""
    file = load("a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n")
    assert file.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert file.line(("a",)) == 1
    assert file.line(("b", 0)) == 3
    assert file.line(("b", 1, "d")) == 5
    assert file.line(("b", 1, "not there")) == 4


def test_digest_is_of_the_bytes() -> None:
    """Two files of different bytes have different digests even where they mean the same."""
    assert load("a: 1\n").sha256 != load("a:  1\n").sha256
    assert load("a: 1\n").sha256 == load("a: 1\n").sha256


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0000:19:00.0", "0000:19:00.0"),
        ("10:20", "10:20"),
        ("on", "on"),
        ("no", "no"),
        ("2026-11-30", "2026-11-30"),
        ("1.0e3", 1000.0),
        ("1e3", 1000.0),
        ("-4", -4),
        ("010", 10),
        (".5", 0.5),
        ("true", True),
        ("~", None),
        ("", None),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'18'", "18"),
        ("12345678901234567890123", "12345678901234567890123"),
    ],
)
def test_scalars_mean_what_they_look_like(text: str, value: object) -> None:
    """Addresses, dates and on/off are text; numbers are decimal and finite."""
    data = load(f"a: {text}\n").data
    assert data == {"a": value}
    assert isinstance(data, dict)
    assert type(data["a"]) is type(value)


def test_both_loaders_of_pyyaml_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without libyaml the shipped base profile reads the same."""
    path = Path(yaml_file.__file__).parents[1] / "profiles" / "data" / "base.yaml"
    fast = read_yaml(path, ProfileError)

    class Slow(yaml.SafeLoader):
        yaml_implicit_resolvers = yaml_file._Loader.yaml_implicit_resolvers

    monkeypatch.setattr(yaml_file, "_Loader", Slow)
    slow = read_yaml(path, ProfileError)
    assert (fast.data, fast.lines) == (slow.data, slow.lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\na: 2\n", "x.yaml line 2 $.a: expected every key once, found it twice; keep one"),
        (
            "a: &x 1\nb: *x\n",
            "x.yaml line 1: expected plain YAML, found an anchor or alias (&, *); write the value out",
        ),
        ("a: !!python/object:os.system 1\n", "leave the tag out"),
        ("a: !!set {x}\n", "leave the tag out"),
        ("a: !!int 1.5\n", "leave the tag out"),
        ("a: !!float x\n", "leave the tag out"),
        ("<<: {b: 1}\n", "found a merge key (<<)"),
        ("1: a\n", "expected text as key, found '1'; put it in quotes"),
        ("? [a, b]\n: c\n", "expected text as key"),
        ("a: [1\n", "x.yaml line 2: expected YAML"),
        ("a:\n\tb: 1\n", "x.yaml line 2: expected YAML, found a tab; indent with spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "x.yaml line 3: expected YAML, found a tab; indent with spaces"),
        ("a:\n  b: 1\n  \tc: 2\n", "x.yaml line 3: expected YAML, found a tab; indent with spaces"),
        ("\ta: 1\n", "x.yaml line 1: expected YAML, found a tab; indent with spaces"),
        ("a: |\n\tx\n", "x.yaml line 2: expected YAML, found a tab; indent with spaces"),
        ("--- 1\n--- 2\n", "expected YAML"),
        ("", "x.yaml line 1: expected a mapping, found an empty file; fill it in"),
        ("# nothing\n", "found an empty file"),
        (b"a: \xff\n", "expected UTF-8, found byte 0xff"),
        ('a: "\\e[31m"\n', "x.yaml line 1 $.a: expected text that can be printed, found U+001B in it; take it out"),
        ("a: \u202eb\n", "found U+202E"),
        ("\x00", "x.yaml line 1"),
    ],
)
def test_what_is_not_plain_yaml_is_one_line(text: str | bytes, says: str) -> None:
    """Aliases, tags, double keys, escapes and broken text are refused with the line."""
    refused = refusal(text)
    assert says in refused
    assert "\n" not in refused


def test_both_parsers_of_pyyaml_say_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libyaml the words of PyYAML differ, and ours do not."""

    class Slow(yaml.SafeLoader):
        yaml_implicit_resolvers = yaml_file._Loader.yaml_implicit_resolvers

    monkeypatch.setattr(yaml_file, "_Loader", Slow)
    assert refusal("a:\n  b: 1\n\tc: 2\n") == "x.yaml line 3: expected YAML, found a tab; indent with spaces"


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    """Nine levels of ten aliases each never become data."""
    bomb = 'a: &a ["x"]\n' + "".join(
        f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "anchor or alias" in refusal(bomb)


def test_depth_and_size_are_bounded() -> None:
    """A file of brackets and a file above 1 MiB are refused, not followed."""
    assert "expected at most 32 levels" in refusal("[" * 40 + "]" * 40)
    assert "x.yaml line 1: expected" in refusal("[" * 100_000)
    assert "1 MiB" in refusal(b"a" * (MAX_BYTES + 1))


def test_every_wrong_key_is_reported_at_once() -> None:
    """Two double keys are two lines."""
    assert len(refusal("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n").splitlines()) == 2


def test_a_missing_file_is_the_callers_error(tmp_path: Path) -> None:
    """The error has the class that the caller asked for and names the file."""
    with pytest.raises(InventoryError, match=r"nowhere\.yaml: expected a file to read, found No such file"):
        read_yaml(tmp_path / "nowhere.yaml", InventoryError)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe and a folder are refused, not read."""
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", tmp_path):
        with pytest.raises(ProfileError, match="found something else"):
            read_yaml(path, ProfileError)


def test_paths_and_values_are_shown_safely() -> None:
    """Odd keys are quoted, long values cut, control characters escaped."""
    assert dollar(("clauses", "GPU-3", "needs", 1)) == "$.clauses.GPU-3.needs[1]"
    assert dollar(("a b",)) == "$['a b']"
    assert shown("x\x1b") == "'x\\x1b'"
    assert len(shown("x" * 1000)) == 60


def test_a_near_word_is_suggested() -> None:
    """A misspelt key gets its neighbour, an unrelated one nothing."""
    assert nearest("celing", ["ceiling", "cite"]) == " (did you mean 'ceiling'?)"
    assert nearest("zzz", ["ceiling"]) == ""


def test_a_word_that_starts_as_written_comes_first() -> None:
    """h200 means h200-sxm and not b200, whatever the case; two letters are too few to say which."""
    names = ["a100-80-sxm", "b200", "gb200", "h100-sxm", "h200-sxm", "h200-nvl-141-of-a-long-name"]
    assert nearest_word("h200", names) == "h200-sxm"
    assert nearest_word("H100", names) == "h100-sxm"
    assert nearest_word("a100", names) == "a100-80-sxm"
    assert nearest_word("h200-smx", names) == "h200-sxm"
    assert nearest_word("h2", ["h200-sxm-of-a-long-name"]) == ""
    assert nearest_word("", names) == ""


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="ab:-[]{}&*!|>'\"\n #%?,1.~<", max_size=80).map(str.encode)))
def test_any_bytes_are_data_or_one_error(raw: bytes) -> None:
    """Whatever the bytes, the reader gives data or the caller's error, never another exception."""
    try:
        file = load_yaml(raw, ProfileError, name="x.yaml")
    except ProfileError:
        return
    assert file.line(()) >= 1
