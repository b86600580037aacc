"""What Prometheus reads of the store, of fetches and of the router's index."""

import re
from dataclasses import dataclass

from puppet_link import worker_info

from antiphon.core.router import PrefixIndex
from antiphon.live.gateway import KvSeen
from antiphon.live.gateway.cluster_metrics import ClusterCounters
from antiphon.live.gateway.kv_metrics import kv_families
from antiphon.types import (
    STORE,
    Fetched,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    LevelStats,
    RequestId,
    Tier,
    TierStats,
)

KEY = bytes(32)
HOST = TierStats(
    tier=Tier.HOST,
    blocks=10,
    used_bytes=1000,
    limit_bytes=4000,
    pinned_blocks=1,
    leases=2,
    put_blocks_total=20,
    hit_blocks_total=7,
    missed_blocks_total=3,
    evicted_blocks_total=9,
    dropped=(("quota", 3), ("stale", 1), ("quota", 1)),
)
DISK = TierStats(tier=Tier.DISK, blocks=30, used_bytes=3000, limit_bytes=9000)


@dataclass
class Store:
    present: bool = True
    stats: tuple[TierStats, ...] = (HOST, DISK)
    connections: int = 3


def samples(seen: KvSeen | None) -> dict[str, float]:
    """name{labels} → value, without the model's name."""
    return {
        one.name
        + "".join(
            f" {key}={value}" for key, value in one.labels.items() if key != "model_name"
        ): one.value
        for family in kv_families("m", seen)
        for one in family.samples
    }


def test_each_tier_of_the_store_is_shown() -> None:
    seen = samples(KvSeen(index=lambda: PrefixIndex().counts, store=Store()))
    assert seen["antiphon_store_up"] == 1
    assert seen["antiphon_store_connections_total"] == 3
    assert seen["antiphon_store_blocks tier=host"] == 10
    assert seen["antiphon_store_bytes tier=disk"] == 3000
    assert seen["antiphon_store_limit_bytes tier=disk"] == 9000
    assert seen["antiphon_store_pinned_blocks tier=host"] == 1
    assert seen["antiphon_store_leases tier=host"] == 2
    assert seen["antiphon_store_put_blocks_total tier=host"] == 20
    assert seen["antiphon_store_hit_blocks_total tier=host"] == 7
    assert seen["antiphon_store_missed_blocks_total tier=host"] == 3
    assert seen["antiphon_store_evicted_blocks_total tier=host"] == 9
    assert seen["antiphon_store_dropped_blocks_total tier=host reason=quota"] == 4


def test_what_came_from_peers_is_shown_by_level() -> None:
    level = LevelStats(
        level="int8",
        chosen_total=1,
        read_blocks_total=2,
        read_bytes_total=3,
        decode_s_total=0.5,
        damaged_blocks_total=4,
        encoded_blocks_total=5,
        encoded_bytes_total=6,
        encode_s_total=0.25,
    )
    peer = TierStats(
        tier=Tier.PEER,
        blocks=1,
        used_bytes=0,
        limit_bytes=0,
        levels=(level,),
        computed_blocks_total=7,
    )
    seen = samples(KvSeen(index=lambda: PrefixIndex().counts, store=Store(stats=(HOST, peer))))
    start, end = "antiphon_store_level_", "_total level=int8"
    mine = {
        name.removeprefix(start).removesuffix(end): value
        for name, value in seen.items()
        if name.startswith(start)
    }
    assert mine == {
        "chosen": 1,
        "read_blocks": 2,
        "read_bytes": 3,
        "decode_seconds": 0.5,
        "damaged_blocks": 4,
        "encoded_blocks": 5,
        "encoded_bytes": 6,
        "encode_seconds": 0.25,
    }
    assert seen["antiphon_store_computed_blocks_total"] == 7


def test_the_index_is_shown() -> None:
    index, life = PrefixIndex(), Incarnation("s1")
    blocks = ((KEY, Tier.HOST), (KEY, Tier.DISK))
    index.apply(STORE, life, KvDump(next=0, begins=True, ends=True, blocks=blocks), 0.0)
    late = KvEvents(first=5, changes=(KvChange(KEY, Tier.HOST, False),))
    assert index.apply(STORE, life, late, 1.0) is not None
    seen = samples(KvSeen(index=lambda: index.counts, store=None))
    assert seen["antiphon_kv_index_blocks"] == 1
    assert seen["antiphon_kv_index_held"] == 2
    assert seen["antiphon_kv_index_behind"] == 1
    assert seen["antiphon_kv_index_replays_total"] == 1
    assert seen["antiphon_kv_index_dumps_total"] == 1
    assert seen["antiphon_kv_index_refused_blocks_total"] == 0


def test_without_a_store_or_while_it_is_away_every_name_is_there_and_no_tier() -> None:
    index = PrefixIndex()
    whole = {family.name for family in kv_families("m", KvSeen(lambda: index.counts, Store()))}
    away = KvSeen(lambda: index.counts, Store(present=False, stats=()))
    for seen in (None, KvSeen(lambda: index.counts, None), away):
        assert {family.name for family in kv_families("m", seen)} == whole
        assert samples(seen)["antiphon_store_up"] == 0
        assert not any("tier=" in name for name in samples(seen))


def test_fetches_are_counted_by_worker() -> None:
    counters = ClusterCounters()
    counters.kv_bytes_per_token = 100
    worker = worker_info(vocab_size=10, eos=(0,))
    for tokens, missing in ((128, 0), (64, 64)):
        counters.heard(
            worker,
            Fetched(
                request=RequestId("r"),
                attempt=1,
                fetched_tokens=tokens,
                missing_tokens=missing,
                seconds=0.25,
            ),
        )
    seen = {
        one.name: one.value
        for family in counters._of_workers("m")
        for one in family.samples
        if re.search("fetch|external|recomputed", one.name)
    }
    assert seen == {
        "vllm:external_prefix_cache_queries_total": 256,
        "vllm:external_prefix_cache_hits_total": 192,
        "antiphon_fetches_total": 2,
        "antiphon_failed_fetches_total": 1,
        "antiphon_fetched_bytes_total": 19_200,
        "antiphon_fetch_seconds_total": 0.5,
        "antiphon_recomputed_tokens_total": 64,
    }
