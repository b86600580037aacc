"""What an order of eviction is for: chats that go on find what they said before.

The public traces are no part of the project; these chats are like theirs: three in four say one
thing only, and who went on goes on again; a turn comes long after the memory has turned over.
"""

from heapq import heappop, heappush

import pytest

from antiphon.core.draws import Draws
from antiphon.core.tiers import HostTier, policy_named
from antiphon.types import LeaseId

SLOTS, CHATS = 150, 1500
GOES_ON = (0.25, 0.45, 0.6, 0.7)


def prompts(seed: int) -> list[list[bytes]]:
    """Chains of keys in the order of their coming: each turn of a chat begins with those before."""
    draws = Draws(seed)
    coming: list[tuple[float, int, int]] = [(float(chat), chat, 0) for chat in range(CHATS)]
    ordered: list[list[bytes]] = []
    while coming:
        at, chat, turn = heappop(coming)
        blocks = 2 + 2 * turn + draws.below(6, chat, "length")
        ordered.append([b"%d/%d" % (chat, block) for block in range(blocks)])
        if draws.fraction(chat, turn) < GOES_ON[min(turn, len(GOES_ON) - 1)]:
            heappush(coming, (at + draws.between(5.0, 80.0, chat, turn, "gap"), chat, turn + 1))
    return ordered


def found(policy: str, chains: list[list[bytes]]) -> int:
    """Blocks that were there when they were asked for."""
    host = HostTier(
        slots=SLOTS, policy=policy_named(policy), lease_ttl_s=1.0, listen=lambda change: None
    )
    for number, chain in enumerate(chains):
        now, lease = float(number), LeaseId(str(number))
        there = len(host.read(chain, lease, now))
        host.release(lease, now)
        for place in range(there, len(chain)):
            parent = chain[place - 1] if place else None
            if isinstance(host.begin_put(chain[place], parent, b"", now), int):
                host.end_put(chain[place], True, now)
    return host.stats(1).hit_blocks_total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_default_finds_more_than_least_recently_used(seed: int) -> None:
    chains = prompts(seed)
    assert found("hit-density", chains) > 1.15 * found("lru", chains) > 0
