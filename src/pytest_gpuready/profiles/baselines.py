"""The baseline that holds for what ran, or why there is none: a limit of other conditions is never borrowed."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.judge.wire import Shape
from pytest_gpuready.model import Profile
from pytest_gpuready.model.baseline import Baseline, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What ran. `nvls` is "on", "off" or "" (nobody knows); rails are those of each node, 0 inside one."""

    shape: Shape
    size_bytes: int
    nvls: str = ""
    rails: int = 0
    rail_gbit_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A baseline, or in one clause of a sentence why there is none."""

    baseline: Baseline | None = None
    why_not: str = ""


def baseline_for(profile: Profile, ran: Ran) -> Found:
    """The one baseline of the profile whose conditions are all those of what ran."""
    shape = ran.shape
    same = [known for known in profile.collectives if known.collective == shape.collective]
    if not same:
        return Found(why_not=f"{profile.name} has no baseline of {shape.collective}")
    if not shape.stated:
        return Found(why_not="the algorithm was not seen, and a baseline holds for one; set NCCL_DEBUG_SUBSYS=TUNING")
    wrong = [(differs, known) for known in same for differs in [_differs(known, ran)]]
    fitting = [known for differs, known in wrong if not differs]
    if fitting:
        # The one that names NVLS is about less than the one that does not.
        return Found(baseline=max(fitting, key=lambda known: bool(known.nvls)))
    differs, near = min(wrong, key=lambda pair: len(pair[0]))
    return Found(why_not=f"{profile.name} has none for {', '.join(differs)}; the nearest is {near.conditions}")


def _differs(known: Baseline, ran: Ran) -> list[str]:
    """The conditions of what ran that are not those of the baseline, as people say them."""
    shape = ran.shape
    pairs = [
        (known.nodes == shape.nodes, f"{shape.nodes} node{'s' * (shape.nodes > 1)}"),
        (known.ranks == shape.ranks, f"{shape.ranks} rank{'s' * (shape.ranks > 1)}"),
        (known.algorithm == shape.algorithm or not known.algorithm, shape.algorithm),
        (known.size_bytes == ran.size_bytes, size_text(ran.size_bytes)),
        (known.nvls in ("", ran.nvls), f"NVLS {ran.nvls or 'not known'}"),
    ]
    if shape.nodes > 1:
        same = (known.rails, known.rail_gbit_per_s) == (ran.rails, ran.rail_gbit_per_s)
        pairs.append((same, f"{ran.rails} rails of {ran.rail_gbit_per_s:g} Gbit/s"))
    return [said for fits, said in pairs if not fits]
