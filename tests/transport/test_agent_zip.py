"""The agent that travels: what is in it, and that what its small msgspec writes is what the real one reads."""

from __future__ import annotations

import hashlib
import io
import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuready.agent.stress import watch as stress_watch
from pytest_gpuready.agent.watching import Line, Seen
from pytest_gpuready.model import agent_doc, stress_doc
from pytest_gpuready.transport import plain_msgspec as plain
from pytest_gpuready.transport.agent_zip import agent_zip

SAMPLES = """
import dataclasses, json, sys, types, typing
import msgspec
from pytest_gpuready.agent.stress import watch as stress_watch
from pytest_gpuready.agent.watching import Line, Seen
from pytest_gpuready.model import agent_doc, stress_doc

assert msgspec.__file__.startswith(sys.argv[1]), msgspec.__file__

def sample(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return sample(arguments[0])
    if origin is list:
        return [sample(arguments[0])]
    if origin is dict:
        return {"k\\u00e9\\n\\"": sample(arguments[1])}
    if origin is tuple:
        return tuple(map(sample, arguments))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return full(hint)
    return {str: "t\\u00e9xt \\"q\\" \\\\ \\n\\x7f\\u2028", int: 2**53 + 1, float: 0.1 + 0.2, bool: True}[hint]

def full(kind):
    return kind(**{name: sample(hint) for name, hint in typing.get_type_hints(kind).items() if name[0] != "_"})

said = [*vars(agent_doc).values(), *vars(stress_doc).values()]
kinds = [kind for kind in said if isinstance(kind, type) and issubclass(kind, agent_doc.Wire)]
for kind in [*kinds, Line, Seen, stress_watch.Line]:
    if kind is stress_watch.Line:
        print(json.dumps(["stress", msgspec.json.encode(full(kind)).decode()]))
    elif kind not in (agent_doc.Wire, agent_doc.Envelope):
        print(json.dumps([kind.__name__, msgspec.json.encode(full(kind)).decode()]))
envelope = agent_doc.encode(probe="p", host="h", boot_id="b", data=full(agent_doc.WatchDoc))
print(json.dumps(["Envelope", envelope.decode()]))
"""


def test_what_it_writes_is_what_the_real_one_reads(tmp_path: Path) -> None:
    """Every document of the wire, all fields set, encoded by the agent that travels, reads and re-encodes the same."""
    path = tmp_path / "agent.zip"
    path.write_bytes(agent_zip().data)
    words = [sys.executable, "-S", "-c", SAMPLES, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": str(path)}, timeout=60, check=True)
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    documents = [*vars(agent_doc).values(), *vars(stress_doc).values(), Line, Seen]
    kinds: dict[str, Any] = {kind.__name__: kind for kind in documents if isinstance(kind, type)}
    kinds["stress"] = stress_watch.Line
    wanted = {name for name in [*vars(agent_doc), *vars(stress_doc)] if name.endswith(("Doc", "Result"))}
    assert {name for name, _ in seen} >= wanted | {"Envelope", "Line", "stress"}
    for name, text in seen:
        assert msgspec.json.encode(msgspec.json.decode(text, type=kinds[name])).decode() == text, name


class Log(plain.Struct):
    t: float
    text: str = ""


class Said(plain.Struct, omit_defaults=True):
    power: tuple[float, float] | None = None
    logs: list[Log] = []  # noqa: RUF012 - copied for each, as msgspec does it


def test_it_reads_what_it_wrote() -> None:
    """The watch's lines are decoded by type: structs, tuples, integers where floats are wanted, what is optional."""
    said = plain.json.decode(b'{"power":[1,2.5],"logs":[{"t":3}]}', type=Said)
    assert (said.power, said.logs) == ((1.0, 2.5), [Log(t=3.0)])
    assert plain.json.encode(Said()) == b"{}"
    assert plain.json.encode(said) == b'{"power":[1.0,2.5],"logs":[{"t":3.0,"text":""}]}'


def test_it_converts_to_and_from_plain_objects() -> None:
    """Both ways, nested, without defaults where they are omitted; another type is a ValidationError, as in the real."""
    plainly = {"power": [1.0, 2.5], "logs": [{"t": 3.0, "text": ""}]}
    said = plain.convert({"power": [1, 2.5], "logs": [{"t": 3}]}, Said)
    assert said == Said(power=(1.0, 2.5), logs=[Log(t=3.0)])
    assert plain.to_builtins(said) == plainly
    assert plain.to_builtins({"a": (said, 1)}) == {"a": [plainly, 1]}
    for wrong in ({"logs": 1}, {"log": []}, None):
        with pytest.raises(plain.ValidationError):
            plain.convert(wrong, Said)
    assert issubclass(plain.ValidationError, plain.DecodeError)


@pytest.mark.parametrize(
    "text", ["", "[", "NaN", '{"n":NaN}', "[1]", '{"a":1}', '{"n":"x"}', "{}", '{"n":1.5}', '{"n":true}']
)
def test_it_refuses_what_the_real_one_refuses(text: str) -> None:
    """No JSON, another type, an unknown field and a missing one are errors in both."""

    class Real(msgspec.Struct, forbid_unknown_fields=True):
        n: int

    class Plain(plain.Struct):
        n: int

    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text, type=Real)
    with pytest.raises(plain.DecodeError):
        plain.json.decode(text, type=Plain)


def test_numbers_that_json_has_not_are_null() -> None:
    """As the real one writes them."""
    values = [math.nan, math.inf, 1.0, 1, "é", None, {1: True}]
    assert plain.json.encode(values) == msgspec.json.encode(values)


def test_fields_do_not_change_and_defaults_are_not_shared() -> None:
    """A struct is frozen, two of them do not share a list, and a field that does not exist is refused."""

    class Some(plain.Struct):
        items: list[int] = []  # noqa: RUF012 - copied for each, as msgspec does it

    one, other = Some(), Some()
    one.items.append(1)
    assert other.items == []
    assert one == Some(items=[1])
    with pytest.raises(AttributeError):
        one.items = []
    with pytest.raises(TypeError):
        Some(item=[])


def test_it_carries_the_agent_and_its_name_is_its_digest() -> None:
    """The agent, the model, the errors, pynvml, the small msgspec; nothing of the controller; the same each time."""
    made = agent_zip()
    names = zipfile.ZipFile(io.BytesIO(made.data)).namelist()
    assert {name.split("/")[1] for name in names if "/" in name} == {"__init__.py", "agent", "errors.py", "model"}
    assert {name for name in names if "/" not in name} == {"msgspec.py", "pynvml.py"}
    assert made.sha256 == hashlib.sha256(made.data).hexdigest()
    agent_zip.cache_clear()
    assert agent_zip() == made
