"""A public trace through the store's host tier: what is found, and what is put for the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.tiers import EvictionPolicy, HostTier, PolicyFactory
from antiphon.core.tiers.eviction.ranked_keys import RankedKeys
from antiphon.types import BlockKey, KvChange, LeaseId
from antiphon.workload.traces import TRACE_BLOCK_TOKENS, TraceRow

TRACES = Path(__file__).parents[3] / "shared/traces"
"""Where the public traces lie: beside the project, as they are not part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a trace got of one tier."""

    token_hit_rate: float
    """Tokens of prompts that were there, of all tokens of prompts."""
    evicted_blocks: int
    declined_blocks: int


def key_of(hash_id: int) -> BlockKey:
    """The trace's ids are names of blocks already: equal ids begin alike."""
    return hash_id.to_bytes(32, "little")


def ignore(_change: KvChange) -> None:
    """Nobody listens."""


def replay(rows: Sequence[TraceRow], slots: int, policy: PolicyFactory) -> Replayed:
    """Each request reads the longest prefix that is there, then puts the rest of its prompt."""
    tier = HostTier(slots=slots, policy=policy, lease_ttl_s=5.0, listen=ignore)
    found_tokens = 0
    for number, row in enumerate(rows):
        keys = [key_of(hash_id) for hash_id in row.hash_ids]
        lease = LeaseId(str(number))
        found = len(tier.read(keys, lease, row.at_s))
        tier.release(lease, row.at_s)
        found_tokens += min(found * TRACE_BLOCK_TOKENS, row.input_tokens)
        for place in range(found, len(keys)):
            parent = keys[place - 1] if place else None
            slot = tier.begin_put(keys[place], parent, b"", row.at_s, needs_parent=True)
            if isinstance(slot, int):
                tier.end_put(keys[place], True, row.at_s)
    stats = tier.stats(1)
    return Replayed(
        token_hit_rate=found_tokens / sum(row.input_tokens for row in rows),
        evicted_blocks=stats.evicted_blocks_total,
        declined_blocks=sum(count for _, count in stats.dropped),
    )


class Clairvoyant:
    """Belady: the block goes whose next use is farthest away. Knows the trace: a bound, no policy.

    (With whole chains the bound is not exact: of a prompt that is not kept to its end, the blocks
    behind the cut are put anyway.)
    """

    def __init__(self, uses: dict[BlockKey, list[int]]) -> None:
        """`uses`: the numbers of the requests that want a block, last first. Used up."""
        self._uses = uses
        self._idle = RankedKeys()

    def add(self, key: BlockKey, position: int) -> None:
        self._uses[key].pop()

    def use(self, key: BlockKey) -> None:
        self._uses[key].pop()
        if key in self._idle:
            self.idle(key)

    def idle(self, key: BlockKey) -> None:
        later = self._uses[key]
        self._idle.put(key, -float(later[-1] if later else 10**9))

    def busy(self, key: BlockKey) -> None:
        self._idle.discard(key)

    def victim(self) -> BlockKey | None:
        return self._idle.lowest()

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        self._idle.discard(key)


def clairvoyant(rows: Sequence[TraceRow]) -> PolicyFactory:
    """The one who knows these rows; good for one replay."""
    uses: dict[BlockKey, list[int]] = {}
    for number in range(len(rows) - 1, -1, -1):
        for hash_id in rows[number].hash_ids:
            uses.setdefault(key_of(hash_id), []).append(number)

    def policy() -> EvictionPolicy:
        return Clairvoyant(uses)

    return policy
