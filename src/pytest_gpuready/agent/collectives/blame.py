"""Which rank a run ended for: when one is gone, all the others wait, and say so or do not."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.agent.collectives.hand import Hand
from pytest_gpuready.agent.collectives.member import Member

NAMED = 8
WARNED = 200


class EndedError(Exception):
    """The run goes on no further: why, and the rank that it is about."""

    def __init__(self, why: str, rank: int | None = None) -> None:
        super().__init__(why)
        self.rank = rank


def blame(members: Sequence[Member], what: str) -> EndedError | None:
    """Of ranks in trouble one that died, lied or is silent; else one that names a trouble; else one that waits. None
    where there is no trouble. `what` they were at."""
    trouble = [member for member in members if member.hand.problem]
    if not trouble:
        return None
    for member in trouble:
        if member.log:
            member.log.take()
    guilty = min(trouble, key=lambda member: _sort(member.hand))
    alike = [str(m.rank) for m in trouble if m is not guilty and _sort(m.hand) == _sort(guilty.hand)]
    others = f"do ranks {', '.join(alike[:NAMED])}" if alike[1:] else f"does rank {''.join(alike)}"
    more = f" (so {others})" if alike else ""
    warning = guilty.log.last_warning[:WARNED] if guilty.log else ""
    said = f"; NCCL warns: {warning}" if warning else ""
    why = f"rank {guilty.rank} ({guilty.bdf}), {what}: {guilty.hand.problem}{more}{said}"
    return EndedError(why, guilty.rank)


def _sort(hand: Hand) -> tuple[bool, bool]:
    return hand.own_words, hand.waits
