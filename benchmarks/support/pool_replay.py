"""A public trace on several hosts: each with a store of its own, or all with one pool of them.

Requests come to hosts at random, as to a server whose router looks at load alone. Each reads the
longest prefix that it can have, then puts the rest of its prompt where it is. In the pool all that
is said is heard at once: what delay costs is measured live.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.core.store_pool import PoolRules
from antiphon.core.tiers import HostTier, PolicyFactory, policy_named
from antiphon.sim.pooled_hosts import PooledHosts
from antiphon.types import BlockKey, LeaseId, StoreName
from antiphon.workload import TRACE_BLOCK_TOKENS, TraceRow

from .trace_replay import ignore, key_of

BYTES_PER_TOKEN = 320 * 1024
"""Llama 2 70B with grouped queries, in 16 bits."""
LINK_BYTES_PER_S = 12.5e9
PUT_AT_ONCE = 16
"""Blocks that are copied in together, and then on their way home, as live."""
RULES = PoolRules(block_bytes=TRACE_BLOCK_TOKENS * BYTES_PER_TOKEN, bytes_per_s=LINK_BYTES_PER_S)


@dataclass(slots=True, eq=False)
class Served:
    """What a trace got. `lent` and `local`: blocks that each host's memory gave to others, and to
    its own workers."""

    prompt_tokens: int = 0
    found_tokens: int = 0
    lent: list[int] = field(default_factory=list)
    local: list[int] = field(default_factory=list)
    copies: int = 0
    """Blocks that are on more than one host at the end."""

    @property
    def token_hit_rate(self) -> float:
        """Tokens of prompts that were there, of all."""
        return self.found_tokens / self.prompt_tokens

    @property
    def lent_max_to_mean(self) -> float:
        """Of what goes over each host's network."""
        return _max_to_mean(self.lent)

    @property
    def served_max_to_mean(self) -> float:
        """Of all that each host's memory gives."""
        return _max_to_mean(
            [lent + local for lent, local in zip(self.lent, self.local, strict=True)]
        )

    def found(self, blocks: int, row: TraceRow) -> None:
        """A request found so many. Mutates."""
        self.prompt_tokens += row.input_tokens
        self.found_tokens += min(blocks * TRACE_BLOCK_TOKENS, row.input_tokens)


def _max_to_mean(counts: Sequence[int]) -> float:
    return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0


def hosts_of(rows: Sequence[TraceRow], hosts: int) -> list[int]:
    """Which host each request comes to."""
    chance = random.Random(1)
    return [chance.randrange(hosts) for _ in rows]


def private(rows: Sequence[TraceRow], hosts: int, slots: int, policy: PolicyFactory) -> Served:
    """Each host has `slots` for its own requests."""
    tiers = [
        HostTier(slots=slots, policy=policy, lease_ttl_s=5.0, listen=ignore) for _ in range(hosts)
    ]
    served = Served(lent=[0] * hosts, local=[0] * hosts)
    for number, (row, host) in enumerate(zip(rows, hosts_of(rows, hosts), strict=True)):
        tier, keys, lease = tiers[host], _keys(row), LeaseId(str(number))
        found = len(tier.read(keys, lease, row.at_s))
        tier.release(lease, row.at_s)
        served.found(found, row)
        served.local[host] += found
        for place in range(found, len(keys)):
            parent = keys[place - 1] if place else None
            slot = tier.begin_put(keys[place], parent, b"", row.at_s, needs_parent=True)
            if isinstance(slot, int):
                tier.end_put(keys[place], True, row.at_s)
    return served


def pooled(rows: Sequence[TraceRow], hosts: int, slots: int, policy: str) -> Served:
    """The same memory as a pool."""
    names = [StoreName(f"host{number}") for number in range(hosts)]
    world = PooledHosts(RULES, policy_named(policy, spread=True))
    for name in names:
        world.join(name, slots)
    served = Served(local=[0] * hosts)
    for row, number in zip(rows, hosts_of(rows, hosts), strict=True):
        host, keys, now = world.hosts[names[number]], _keys(row), row.at_s
        before = host.read_blocks
        found = world.read_prefix(names[number], keys, now)
        served.found(found, row)
        served.local[number] += max(0, found - (host.read_blocks - before))
        for first in range(found, len(keys), PUT_AT_ONCE):
            for place in range(first, min(first + PUT_AT_ONCE, len(keys))):
                host.put(keys[place], keys[place - 1] if place else None, now)
            world.settle(now)
            while len(host.pool.placing):
                world.place_some(names[number], now)
            world.settle(now)
    served.lent = [world.hosts[name].lent_blocks for name in names]
    held = [set(host.tier.keys) for host in world.hosts.values()]
    served.copies = sum(map(len, held)) - len(set().union(*held))
    return served


def _keys(row: TraceRow) -> list[BlockKey]:
    return [key_of(hash_id) for hash_id in row.hash_ids]
