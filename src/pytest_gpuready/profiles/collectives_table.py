"""The tables of docs/collectives.md: busbw, wire and share of the maximum, for every shipped model with NVLink.

`python -m pytest_gpuready.profiles.collectives_table` prints them; a test holds the page against that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pytest_gpuready.judge.maximum import Hardware, ceiling, of_gpu, of_node
from pytest_gpuready.judge.ninety_two import HEALTHY, STOP, ninety_two
from pytest_gpuready.judge.wire import Shape, Wire, across, inside, per_busbw
from pytest_gpuready.model import Profile
from pytest_gpuready.profiles.lint_baselines import hardware_of
from pytest_gpuready.profiles.loader import load, names
from pytest_gpuready.profiles.published import PUBLISHED, Published

NODES = (1, 2, 4, 16, 64)
INSIDE = ("Ring", "Tree", "NVLS")
BETWEEN = ("Ring", "Tree", "NVLSTree", "CollnetDirect")
GPUS = {"gb200": 72}
"""GPUs that one NVLink domain has, where that is not 8."""
NO_NVLS = ("a100-80-sxm",)
"""Models whose switches do not add."""
RAIL_GBIT_PER_S = {"a100-80-sxm": 200.0}
"""Rate of the one rail of each GPU, where that is not 400 Gbit/s."""
SIZE = 8 << 30


def tables() -> str:
    """All tables, one for each model, with a heading each."""
    return "\n".join("\n".join(_table(load(name))) + "\n" for name in names() if load(name).nvlink)


def hardware(profile: Profile) -> Hardware:
    """What the profile promises of NVLink, and one rail for each GPU."""
    clauses = {
        clause.id: {
            "metric": clause.metric,
            "limit": {"equals": clause.limit.equals, "at_least": clause.limit.at_least},
        }
        for clause in profile.clauses
        if clause.limit
    }
    gpus = GPUS.get(profile.name, 8)
    entry = {"rails": gpus, "rail_gbit_per_s": RAIL_GBIT_PER_S.get(profile.name, 400.0)}
    return hardware_of(clauses, entry)


def _table(profile: Profile) -> Iterator[str]:
    has, gpus = hardware(profile), GPUS.get(profile.name, 8)
    gpu, rate = of_gpu(has), has.rails[0]
    node = of_node(Shape(collective="all_reduce", ranks=gpus), has)
    if not gpu or not node:
        raise ValueError(f"{profile.name}: expected NVLinks and their rate in its clauses, found none")
    yield f"### {profile.name}"
    yield ""
    yield f"{gpus} GPUs in a node, {gpu.says} = {gpu.gb_per_s:g} GB/s of a GPU,"
    yield f"{gpus} rails of {rate:g} Gbit/s = {node.gb_per_s:g} GB/s of a node."
    yield ""
    yield (
        f"| nodes | algorithm | wire for each GB/s of busbw | busbw at {100 * HEALTHY:g} % | busbw at {100 * STOP:g} % "
        "| busbw at most | published healthy | its wire | its share | the rule says |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for nodes in NODES:
        for algorithm in INSIDE if nodes == 1 else BETWEEN:
            if profile.name in NO_NVLS and algorithm.startswith("NVLS"):
                continue
            shape = Shape(collective="all_reduce", ranks=nodes * gpus, nodes=nodes, algorithm=algorithm)
            seen = [p for p in PUBLISHED if (p.model, p.nodes, p.algorithm) == (profile.name, nodes, algorithm)]
            yield from (_row(_shape(one), has, one) for one in seen)
            if not seen:
                yield _row(shape, has, None)
    for one in PUBLISHED:
        if one.model == profile.name and not one.algorithm:
            yield _row(_shape(one), has, one)


def _shape(one: Published) -> Shape:
    return Shape(collective="all_reduce", ranks=one.nodes * one.gpus, nodes=one.nodes, algorithm=one.algorithm)


def _row(shape: Shape, has: Hardware, one: Published | None) -> str:
    ways = inside(shape) if shape.nodes == 1 else across(shape)
    maximum = of_gpu(has) if shape.nodes == 1 else of_node(shape, has)
    most, per = ceiling(shape, has), per_busbw(shape, ways)
    nodes = str(shape.nodes) if shape.gpus == len(has.rails) else f"{shape.nodes} ({shape.gpus} GPUs)"
    cells = [nodes, shape.algorithm or "not known", _range(per, 3)]
    cells += [
        _range(Wire(part * maximum.gb_per_s / per.most, part * maximum.gb_per_s / per.least), 0) if maximum else ""
        for part in (HEALTHY, STOP)
    ]
    cells.append(f"{most.busbw_gb_per_s:.0f} ({most.narrow})" if most else "")
    return "| " + " | ".join(cells + (_published(shape, has, one) if one else ["-"] * 4)) + " |"


def _published(shape: Shape, has: Hardware, one: Published) -> list[str]:
    rulings = [ninety_two(shape, busbw, SIZE, has) for busbw in (one.low, one.high)]
    wire = [ruling.wire for ruling in rulings if ruling.wire]
    share = [ruling.share for ruling in rulings if ruling.share]
    says = list(dict.fromkeys(ruling.verdict for ruling in rulings))
    fabric = f", {one.fabric}" if one.fabric else ""
    return [
        f"{_range(Wire(one.low, one.high), 0)} ({one.cite}{fabric})",
        _range(Wire(wire[0].least, wire[-1].most), 0),
        _range(Wire(share[0].least, share[-1].most).times(100), 1) + " %",
        " to ".join(says),
    ]


def _range(wire: Wire, digits: int) -> str:
    least, most = f"{wire.least:.{digits}f}", f"{wire.most:.{digits}f}"
    return least if least == most else f"{least} to {most}"


if __name__ == "__main__":
    sys.stdout.write(tables())
