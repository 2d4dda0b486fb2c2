"""`parse.slurm_state`: nodes, reservations and jobs. Lines of Slurm 22.05.8, shortened by hand."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.slurm_state import node_states, reservations, slurm_job

SINFO = """\
M1|gr1|gpu*|idle|none
M1|gr1|small|idle|none
M1|gr2|gpu*|drained*|a | b
gr3|gpu*|idle|none
M1|gr4|cloud|idle~|none
"""

RESERVATION = (
    "ReservationName={0} StartTime=2026-11-30T19:35:43 EndTime=2026-11-30T20:35:43 Duration=01:00:00 Nodes={1} "
    "NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=2 Users=root State={2} "
    "BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)

JOB = (
    "JobId=19 JobName=interactive UserId=root(0) JobState=RUNNING Reason=None Partition=gpu ReqNodeList=gr[1-4] "
    "ExcNodeList=(null) NodeList=gr[1-2,4] BatchHost=gr1 TRES=cpu=3,node=3,billing=3 JOB_GRES=gpu:h200:9 "
    "  Nodes=gr[1-2] CPU_IDs=0 Mem=0 GRES=gpu:h200:3(IDX:0-2) "
    "  Nodes=gr4 CPU_IDs=0 Mem=0 GRES=nic:2(IDX:0-1),gpu:a100:2(S:0),gpu:4 MinCPUsNode=1 WorkDir=/tmp Power= \n"
)


def test_nodes_with_their_partitions_and_reasons() -> None:
    """A node of two partitions is one; a reason may hold bars and lines that look like another node."""
    found = node_states(SINFO, "M1")
    assert sorted(found) == ["gr1", "gr2", "gr4"]
    assert (found["gr1"].partitions, found["gr1"].default, found["gr1"].shown) == ({"gpu", "small"}, True, "idle")
    assert found["gr2"].shown == "drained* (a | b gr3|gpu*|idle|none)"
    assert (found["gr2"].base, found["gr2"].answers) == ("drained", False)
    assert (found["gr4"].base, found["gr4"].answers, found["gr4"].default) == ("idle", True, False)


def test_reservations_that_hold_nodes_now() -> None:
    """One that has not begun holds nobody; Slurm's word for none is none."""
    text = RESERVATION.format("now", "gr[1-2]", "ACTIVE") + RESERVATION.format("later", "gr3", "INACTIVE")
    (found,) = reservations(text)
    assert (found.name, found.nodes, found.flags) == ("now", {"gr1", "gr2"}, {"MAINT", "SPEC_NODES"})
    assert reservations("No reservations in the system\n") == ()


def test_a_job_and_the_gpus_it_holds() -> None:
    """The nodes it has, not those it asked for, and its GPUs on each, of whatever type."""
    found = slurm_job(JOB)
    assert (found.state, found.nodes) == ("RUNNING", ("gr1", "gr2", "gr4"))
    assert found.gpus == {"gr1": 3, "gr2": 3, "gr4": 6}
    assert slurm_job("JobState=PENDING NodeList= ").nodes == ()
    with pytest.raises(ParseError, match="expected JobState="):
        slurm_job("slurm_load_jobs error")
