"""What Prometheus may read of KV beyond a worker's memory: the store's tiers, the router's index.

All counts are of everybody's blocks together. Block keys hold their tenant's salt, so that a tenant
who asks what another one asked adds as much to each count as with a new text: nothing here tells.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.types import IndexCounts, LevelStats, Tier, TierStats

_TIER_LABELS = ("model_name", "tier")


class StoreSeen(Protocol):
    """The store as its gateway sees it."""

    @property
    def present(self) -> bool:
        """Whether it is there now."""
        ...

    @property
    def stats(self) -> Sequence[TierStats]:
        """What it last said of its tiers; none while it is away."""
        ...

    @property
    def connections(self) -> int:
        """How often it came."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KvSeen:
    """What there is to be read; `store` None: the server runs without one."""

    index: Callable[[], IndexCounts]
    store: StoreSeen | None


_GAUGES: tuple[tuple[str, str, Callable[[TierStats], float]], ...] = (
    ("antiphon_store_blocks", "Blocks on a tier of the store.", lambda tier: tier.blocks),
    ("antiphon_store_bytes", "Bytes that they take.", lambda tier: tier.used_bytes),
    ("antiphon_store_limit_bytes", "Bytes that they may take.", lambda tier: tier.limit_bytes),
    ("antiphon_store_pinned_blocks", "Blocks that stay.", lambda tier: tier.pinned_blocks),
    ("antiphon_store_leases", "Reads that are under way.", lambda tier: tier.leases),
)
_COUNTERS: tuple[tuple[str, str, Callable[[TierStats], float]], ...] = (
    ("antiphon_store_put_blocks", "Blocks that were kept.", lambda tier: tier.put_blocks_total),
    (
        "antiphon_store_hit_blocks",
        "Blocks asked for and there.",
        lambda tier: tier.hit_blocks_total,
    ),
    (
        "antiphon_store_missed_blocks",
        "Blocks asked for and not there.",
        lambda tier: tier.missed_blocks_total,
    ),
    (
        "antiphon_store_evicted_blocks",
        "Blocks that gave way to others.",
        lambda tier: tier.evicted_blocks_total,
    ),
)
_LEVELS: tuple[tuple[str, str, Callable[[LevelStats], float]], ...] = (
    (
        "antiphon_store_level_chosen",
        "Chunks that were read from peers at a level.",
        lambda one: one.chosen_total,
    ),
    (
        "antiphon_store_level_read_blocks",
        "Blocks that came from peers at a level.",
        lambda one: one.read_blocks_total,
    ),
    (
        "antiphon_store_level_read_bytes",
        "Bytes that they took on the network.",
        lambda one: one.read_bytes_total,
    ),
    (
        "antiphon_store_level_decode_seconds",
        "Time of threads that decoded them.",
        lambda one: one.decode_s_total,
    ),
    (
        "antiphon_store_level_damaged_blocks",
        "Blocks that came and could not be decoded.",
        lambda one: one.damaged_blocks_total,
    ),
    (
        "antiphon_store_level_encoded_blocks",
        "Blocks that were encoded for peers.",
        lambda one: one.encoded_blocks_total,
    ),
    (
        "antiphon_store_level_encoded_bytes",
        "Bytes that they take encoded.",
        lambda one: one.encoded_bytes_total,
    ),
    (
        "antiphon_store_level_encode_seconds",
        "Time of threads that encoded them.",
        lambda one: one.encode_s_total,
    ),
)
_INDEX: tuple[tuple[str, str, Callable[[IndexCounts], float]], ...] = (
    ("antiphon_kv_index_blocks", "Different blocks that are known.", lambda it: it.blocks),
    ("antiphon_kv_index_held", "One for each holder and tier of a block.", lambda it: it.held),
    ("antiphon_kv_index_behind", "Holders of whom something is missing.", lambda it: it.behind),
)
_INDEX_COUNTERS: tuple[tuple[str, str, Callable[[IndexCounts], float]], ...] = (
    ("antiphon_kv_index_replays", "Times that changes were missing.", lambda it: it.replays_total),
    ("antiphon_kv_index_dumps", "Times that a holder told all it has.", lambda it: it.dumps_total),
    (
        "antiphon_kv_index_refused_blocks",
        "Blocks beyond what is kept of a holder.",
        lambda it: it.refused_total,
    ),
)


def dropped_by_reason(stats: TierStats) -> dict[str, int]:
    """Its dropped blocks; a reason may have been counted in several places."""
    counts: Counter[str] = Counter()
    for reason, count in stats.dropped:
        counts[reason] += count
    return dict(counts)


def kv_families(model: str, seen: KvSeen | None) -> Iterator[Metric]:
    """One sample a tier while the store is there. Every family is there always."""
    store = None if seen is None else seen.store
    up = GaugeMetricFamily(
        "antiphon_store_up", "1 while the store is there.", labels=("model_name",)
    )
    up.add_metric([model], store is not None and store.present)
    yield up
    came = CounterMetricFamily(
        "antiphon_store_connections", "How often it came.", labels=("model_name",)
    )
    came.add_metric([model], 0 if store is None else store.connections)
    yield came
    yield from _tiers(model, () if store is None else store.stats)
    yield from _levels(model, () if store is None else store.stats)
    for kind, table in ((GaugeMetricFamily, _INDEX), (CounterMetricFamily, _INDEX_COUNTERS)):
        for name, text, read in table:
            family = kind(name, text, labels=("model_name",))
            if seen is not None:
                family.add_metric([model], read(seen.index()))
            yield family


def _tiers(model: str, stats: Sequence[TierStats]) -> Iterator[Metric]:
    for kind, table in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, text, read in table:
            family = kind(name, text, labels=_TIER_LABELS)
            for tier in stats:
                family.add_metric([model, tier.tier.value], read(tier))
            yield family
    dropped = CounterMetricFamily(
        "antiphon_store_dropped_blocks",
        "Blocks that were not kept, or not given, by why.",
        labels=(*_TIER_LABELS, "reason"),
    )
    for tier in stats:
        for reason, count in sorted(dropped_by_reason(tier).items()):
            dropped.add_metric([model, tier.tier.value, reason], count)
    yield dropped


def _levels(model: str, stats: Sequence[TierStats]) -> Iterator[Metric]:
    """What came from the stores of the pool, and went to them, by level."""
    for name, text, read in _LEVELS:
        family = CounterMetricFamily(name, text, labels=("model_name", "level"))
        for tier in stats:
            for level in tier.levels:
                family.add_metric([model, level.level], read(level))
        yield family
    computed = CounterMetricFamily(
        "antiphon_store_computed_blocks",
        "Blocks of peers that were left, to be computed.",
        labels=("model_name",),
    )
    for tier in stats:
        if tier.tier is Tier.PEER:
            computed.add_metric([model], tier.computed_blocks_total)
    yield computed
