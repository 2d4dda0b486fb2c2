"""The site file: what loads, and which line is named where it contradicts itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_gpuready import inventory
from pytest_gpuready.errors import InventoryError
from pytest_gpuready.inventory import DeclaredGpu, DeclaredNode, Exclusion, Site, load_site
from pytest_gpuready.inventory.site import json_schema

ROOT = Path(__file__).parents[2]
SCHEMA = Path(inventory.__file__).parent / "site-schema-1.json"
SiteOf = Callable[[str], Site]


def manual_example() -> str:
    return re.findall(r"```yaml\n(site: 1.*?)```", (ROOT / "docs" / "site-file.md").read_text(), flags=re.DOTALL)[0]


def test_the_manuals_example_loads(site_of: SiteOf) -> None:
    """The file that docs/site-file.md shows says what the manual says it says."""
    site = site_of(manual_example())
    assert (site.provider, site.profile, site.level, site.diagnostics) == ("Example Cloud", "h200-sxm", 2, "dcgm")
    assert site.nodes == (DeclaredNode(name="node01", key="node01", count=8, nvlink="full", virtual=False, rack="r07"),)
    assert site.environment == {"NCCL_NVLS_ENABLE": "0"}
    assert site.exclude == (
        Exclusion(clause="GPU-19", reason="the batch system sets persistence mode before each job"),
    )
    assert len(site.sha256) == 64


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("site*.yaml")), ids=lambda p: p.stem)
def test_every_example_loads_and_fits_the_schema(path: Path) -> None:
    """The example files load, and the JSON Schema accepts them."""
    assert load_site(path).profile
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(SCHEMA.read_text()))


def test_the_schema_file_is_made_from_the_types() -> None:
    """site-schema-1.json is what the Structs give today."""
    assert json.loads(SCHEMA.read_text()) == json_schema()


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    """An unknown key, a count of 0, an unknown engine and a UUID without GPU- are refused by the schema too."""
    schema = json.loads(SCHEMA.read_text())
    for wrong in (
        {"site": 1, "profil": "x"},
        {"site": 1, "nodes": {"a": {"gpus": 0}}},
        {"site": 1, "diagnostics": "dcgmi"},
        {"site": 1, "nodes": {"a": {"gpus": [{"uuid": "00000000-0000-4000-8000-000000000002"}]}}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_a_list_of_gpus_keeps_order_and_form(site_of: SiteOf) -> None:
    """Addresses are normalised; the list keeps its order."""
    site = site_of(
        "site: 1\nnodes:\n  a:\n    gpus:\n      - {bdf: 00000000:4B:00.0, module: 3}\n      - {serial: '165'}\n"
    )
    assert site.nodes[0].gpus == (
        DeclaredGpu(key="bdf", value="0000:4b:00.0", module=3),
        DeclaredGpu(key="serial", value="165"),
    )
    assert site.nodes[0].count == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: {}\n", "site.yaml line 1 $: expected the key 'site', found none; add it"),
        ("site: 2\n", "site.yaml line 1 $.site: expected 1, found 2; correct it"),
        ("site: '1'\n", "line 1 $.site: expected the number 1, found text '1'; remove the quotes"),
        ("site: 1\nnodes: {a: {gpus: '2'}}\n", "gpus: expected the number 2, found text '2'; remove the quotes"),
        ("site: 1\nnodes: {a: {virtual: 'false'}}\n", "virtual: expected true or false, found 'false'; rem"),
        (
            "site: 1\ndiagnostics: buildin\n",
            "expected one of both, builtin, dcgm, found 'buildin' (did you mean 'builtin'?); correct it",
        ),
        (
            "site: 1\nnodes:\n  a:\n    gpus:\n      - {uuid: 00000000-0000-4000-8000-000000000002}\n",
            "site.yaml line 5 $.nodes.a.gpus[0].uuid: expected a UUID like GPU-0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9 "
            "(the GPU- belongs to it), found '00000000-0000-4000-8000-000000000002'; correct it",
        ),
        ("site: 1\nnodes: {a: {gpus: [{uuid: GPU-00000000}]}}\n", "(the GPU- belongs to it), found 'GPU-00000000'"),
        ("site: 1\nlevel: 5\n", "site.yaml line 2 $.level: expected 1 to 4, found 5"),
        ("site: 1\nlevel: 0\n", "site.yaml line 2 $.level: expected 1 to 4, found 0"),
        ("site: 1\nprovidr: x\n", "found the key 'providr' (did you mean 'provider'?)"),
        ("site: 1\nwaivers: []\n", "site.yaml line 2 $.waivers: expected one of site, provider"),
        ("site: 1\nnodes: {a: {gpus: 0}}\n", "site.yaml line 2 $.nodes.a.gpus: expected 1 to 256, found 0"),
        ("site: 1\nnodes: {a: {gpus: []}}\n", "$.nodes.a.gpus: expected something here, found nothing"),
        ("site: 1\nnodes: {a: {gpus: true}}\n", "$.nodes.a.gpus: expected a whole number or a list"),
        ("site: 1\nnodes: {a/b: {gpus: 1}}\n", "expected node names like node[001-512], found 'a/b'"),
        ("site: 1\nnodes: {'n[1-9': {gpus: 1}}\n", "expected node names like node[001-512], found 'n[1-9'"),
        ("site: 1\nnodes: {'n[1-99]m[1-999]': {gpus: 1}}\n", "found 'n[1-99]m[1-999]', more than 20000 nodes"),
        ("site: 1\nnodes: {'n[1-4]': {gpus: 8}, n2: {gpus: 4}}\n", "expected every node once, found n2 twice"),
        ("site: 1\nnodes: {'n[1-4]': {host: x}}\n", "expected host for one node, found it for 4"),
        ("site: 1\nnodes: {..: {gpus: 1}}\n", "expected text of the form"),
        ('site: 1\nnodes: {"a\\n": {gpus: 1}}\n', "expected text of the form"),
        ("site: 1\nnodes:\n  a: {gpus: [{bdf: '1'}]}\n", "line 3 $.nodes.a.gpus[0].bdf: expected a PCI address"),
        ("site: 1\nnodes: {a: {gpus: [{module: 1}]}}\n", "expected exactly one of bdf, uuid, serial, found none"),
        ("site: 1\nnodes: {a: {gpus: [{uuid: a, serial: b}]}}\n", "found uuid and serial; keep one"),
        (
            "site: 1\nnodes: {a: {gpus: [{serial: 165}]}}\n",
            "$.nodes.a.gpus[0].serial: expected text, found 165; put it in quotes",
        ),
        (
            "site: 1\nnodes:\n  a:\n    gpus:\n      - {bdf: '0000:19:00.0'}\n      - {bdf: '19:00.0'}\n",
            "site.yaml line 6 $.nodes.a.gpus[1]: expected every GPU once, found 0000:19:00.0 twice; keep one",
        ),
        (
            "site: 1\nnodes: {a: {gpus: [{serial: a, module: 1}, {serial: b, module: 1}]}}\n",
            "$.nodes.a.gpus[1].module: expected one GPU per module, found module 1 twice",
        ),
        ("site: 1\nnodes: {a: {nvlink: half}}\n", "$.nodes.a.nvlink: expected"),
        (
            "site: 1\nenvironment: {NCCL_DEBUG: 1}\n",
            "$.environment.NCCL_DEBUG: expected text, found 1; put it in quotes",
        ),
        ("site: 1\nenvironment: {PATH: x}\n", "$.environment.PATH: expected text of the form ^(NCCL|CUDA)_"),
        ("site: 1\nexclude: [{clause: GPU-1}]\n", "$.exclude[0]: expected the key 'reason', found none; add it"),
        ("site: 1\nexclude: [{clause: GPU-1, reason: ' '}]\n", "$.exclude[0].reason: expected something here"),
        ("site: 1\nexclude: [{clause: A-1, reason: b}, {clause: A-1, reason: b}]\n", "found 'A-1' twice; keep one"),
        (
            "site: 1\nnodes: {a: {gpus: 1, host: m1}, b: {gpus: 1, host: M1.}}\n",
            "$.nodes.b.host: expected a host of its own, found 'm1' for a as well",
        ),
        (
            "site: 1\nnodes: {a: {gpus: 1, host: b}, b: {gpus: 1}}\n",
            "$.nodes.b: expected a host of its own, found 'b' for a as well",
        ),
        ("site: 1\nstand_in: ''\n", "$.stand_in: expected something here, found nothing"),
        ("site: 1\nstand_in: ' '\n", "$.stand_in: expected something here, found nothing"),
        ("site: 1\nstand_in: '\u200b'\n", "$.stand_in: expected something here, found nothing"),
        ("site: 1\nstand_in:\n", "$.stand_in: expected text, found None"),
        (
            "site: 1\nexclude: [{clause: GPU-19, reason: '\u00ad\u2800'}]\n",
            "$.exclude[0].reason: expected something here",
        ),
    ],
)
def test_a_contradiction_is_named_with_its_line(site_of: SiteOf, text: str, says: str) -> None:
    """What cannot be meant is an InventoryError with place, expectation and finding."""
    with pytest.raises(InventoryError) as caught:
        site_of(text)
    assert says in str(caught.value)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 400), cut=st.integers(0, 10), piece=st.sampled_from(["", "'", "{", "]", ":", "\n", "0", "null"])
)
def test_a_damaged_file_loads_or_is_an_inventory_error(site_of: SiteOf, at: int, cut: int, piece: str) -> None:
    """Any damage to a valid file gives a site or an InventoryError, never another exception."""
    text = manual_example()
    try:
        site = site_of(text[:at] + piece + text[at + cut :])
    except InventoryError:
        return
    assert site.name == "site.yaml"


MUCH = """site: 1
profile: h200-sxm
nodes:
  a: {gpus: 80000}
  b: {gpus: [{bdf: "0000:19:00.0"}, {bdf: "19:00.0"}]}
exclude:
  - {clause: NOPE-1, reason: agreed}
  - {clause: GPU-19, reason: agreed}
  - {clause: GPU-19, reason: agreed}
"""


@pytest.mark.parametrize("more", ["", "colour: blue\n"])
def test_one_error_hides_no_other(site_of: SiteOf, more: str) -> None:
    """A number out of bounds, a GPU twice, a clause twice and one that the profile lacks are all told, a line each."""
    with pytest.raises(InventoryError) as caught:
        site_of(MUCH + more)
    said = str(caught.value).splitlines()
    for line, words in (
        (4, "expected 1 to 256, found 80000"),
        (5, "found 0000:19:00.0 twice"),
        (9, "expected every clause once, found 'GPU-19' twice"),
        (7, "expected a clause of the profile h200-sxm, found 'NOPE-1'"),
        *([(10, "found the key 'colour'")] if more else []),
    ):
        assert [one for one in said if f" line {line} " in one and words in one], (line, words, said)


@pytest.mark.parametrize(
    "text",
    ["site: 2\nnodes: 5\n", "- 1\n", "site: 1\nnodes: {a: 5}\nprofile: 7\n", "site: 1\nlevel: 9\nprofile: none-such\n"],
)
def test_a_file_of_which_little_fits_is_still_lines(site_of: SiteOf, text: str) -> None:
    """Whatever does not fit is told as errors of the file, and nothing breaks on the rest of it."""
    with pytest.raises(InventoryError, match=r" line \d+ \$"):
        site_of(text)
