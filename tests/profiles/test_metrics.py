"""The registry of metrics and the base profile say the same."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.model.agent_doc import GpuDoc
from pytest_gpuready.probes.gpu_readings import READINGS
from pytest_gpuready.profiles.metrics import METRICS, MORE_IS_BETTER, UNIFORM, WORDS


def said(metric: str, fields: dict[str, Any]) -> object:
    """The word of the probe for a GPU with these fields."""
    return READINGS[metric][1](GpuDoc(bdf="0000:19:00.0", pci_id="10de:2335", index=0, **fields))[0]


def test_registry_and_base_profile_are_equal() -> None:
    """Every metric of base.yaml is registered with unit and part, and no other one is."""
    base = profiles.load("base")
    used = {clause.metric: (clause.unit, clause.per) for clause in base.clauses}
    context = {metric for clause in base.clauses for metric in clause.context}
    assert {*used, *context} == set(profiles.METRICS)
    assert used == {m: (profiles.METRICS[m].unit, profiles.METRICS[m].per) for m in used}


def test_every_metric_says_what_it_is() -> None:
    """Each metric has one line of meaning that ends as a sentence does."""
    assert all(m.says.endswith(".") and "\n" not in m.says for m in profiles.METRICS.values())


def test_every_word_is_a_state_or_an_identity() -> None:
    """A word metric is either in the table of words, or a name or a list that is the machine's own."""
    assert {name for name, metric in METRICS.items() if metric.word} == {*WORDS, *UNIFORM, "gpu.pci_id", "dcgm.plugins"}
    assert all(not METRICS[name].word for name in MORE_IS_BETTER)


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("ecc.mode", [{"ecc_current": on, "ecc_pending": on} for on in (True, False)]),
        ("mig.mode", [{"mig_current": on, "mig_pending": on} for on in (True, False)]),
        ("persistence.mode", [{"persistence": on} for on in (True, False)]),
        ("compute.mode", [{"compute_mode": mode} for mode in (0, 1, 3, 2)]),
        ("inforom.valid", [{"inforom_valid": True}]),
        ("recovery.action", [{"recovery_action": 0}]),
        ("fabric.state", [{"fabric_state": 3, "fabric_status": 0, "fabric_health_mask": 0}, {"fabric_state": 0}]),
        ("clock.event_reasons", [{"clock_event_reasons": 0x5}]),
        (
            "clock.locked",
            [
                {
                    "clock_event_reasons": bit,
                    "errors": {f"clock_app_{which}_mhz": "NotSupported" for which in ("sm", "memory")},
                }
                for bit in (0, 2)
            ],
        ),
    ],
)
def test_a_word_that_may_be_asked_for_is_said(metric: str, found: list[dict[str, Any]]) -> None:
    """The table has the probe's own spelling: a clause that asks for one of its words can be kept."""
    assert tuple(said(metric, fields) for fields in found) == WORDS[metric]


def test_where_only_one_word_is_good_base_asks_for_it() -> None:
    """What has one good word has it in base.yaml, which the recorded healthy node keeps."""
    base = {c.metric: c.limit.equals for c in profiles.load("base").clauses if c.limit}
    assert all(base[metric] == words[0] for metric, words in WORDS.items() if len(words) == 1)
