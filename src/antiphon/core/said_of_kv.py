"""What a holder of KV, a worker or the store, says of it must at least be possible.

As in `said_by_workers`: types come from the wire, here are the values. Each function returns what
is wrong, as a phrase that follows "it says", or nothing ("").
"""

from collections.abc import Set

from antiphon.core.kv import KEY_BYTES
from antiphon.types import (
    KvDump,
    KvEvents,
    LevelStats,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    Tier,
    TierStats,
)
from antiphon.types.store_pool_config import LEVELS

from .said_of_links import wrong_in_pool

WORKERS_TIERS = frozenset((Tier.DEVICE,))
STORES_TIERS = frozenset((Tier.HOST, Tier.PEER, Tier.DISK, Tier.REMOTE))
POOLED_TIERS = frozenset((Tier.HOST, Tier.DISK))
"""What a store of a pool says of itself to the others."""

_MAX_COUNT = 2**62
_COUNTS = (
    "blocks",
    "used_bytes",
    "limit_bytes",
    "pinned_blocks",
    "leases",
    "put_blocks_total",
    "hit_blocks_total",
    "missed_blocks_total",
    "evicted_blocks_total",
    "computed_blocks_total",
)
_LEVEL_COUNTS = (
    "chosen_total",
    "read_blocks_total",
    "read_bytes_total",
    "damaged_blocks_total",
    "encoded_blocks_total",
    "encoded_bytes_total",
)
_LEVEL_SECONDS = ("decode_s_total", "encode_s_total")
_MAX_REASONS = 64
_MAX_REASON_CHARS = 64


def wrong_in_kv(said: KvDump | KvEvents, tiers: Set[Tier]) -> str:
    """Numbers and keys are some, and lie on `tiers`, which this holder can have."""
    match said:
        case KvDump():
            named = said.blocks
            problem = _wrong_count("next", said.next)
        case KvEvents():
            named = tuple((change.key, change.tier) for change in said.changes)
            problem = _wrong_count("first", said.first)
    if problem:
        return problem
    for key, tier in named:
        if len(key) != KEY_BYTES:
            return f"a block key has {len(key)} bytes, not {KEY_BYTES}"
        if tier not in tiers:
            return f"it has blocks on tier {tier}"
    return ""


def wrong_in_answer(answer: StoreAnswer, ask: StoreAsk) -> str:
    """It answers what was asked: of each key where it lies, counts that are some."""
    if problem := _wrong_count("blocks", answer.blocks):
        return problem
    if ask.op is StoreOp.LOOKUP and not answer.problem and len(answer.tiers) != len(ask.keys):
        return f"of {len(ask.keys)} keys it says where {len(answer.tiers)} are"
    last: tuple[Tier, ...] = ()
    for tiers in answer.tiers:
        if tiers == last:
            continue  # most are alike
        if not STORES_TIERS.issuperset(tiers):
            return "a block lies where no store has any"
        last = tiers
    seen = [stats.tier for stats in answer.stats]
    if len(seen) != len(set(seen)) or not STORES_TIERS.issuperset(seen):
        return "its tiers are none of a store, or one is there twice"
    return next(filter(None, map(_wrong_stats, answer.stats)), "") or wrong_in_pool(answer.pool)


def _wrong_stats(stats: TierStats) -> str:
    for name in _COUNTS:
        if problem := _wrong_count(name, getattr(stats, name)):
            return problem
    if len(stats.dropped) > _MAX_REASONS:
        return f"there are {len(stats.dropped)} reasons to drop a block"
    for reason, count in stats.dropped:
        if len(reason) > _MAX_REASON_CHARS or not reason.isascii() or not reason.isprintable():
            return "a reason to drop a block is no word"
        if problem := _wrong_count(f"dropped ({reason})", count):
            return problem
    if stats.block_s is not None and not 0 <= stats.block_s < _MAX_COUNT:
        return f"a block comes in {stats.block_s} s"
    if len(stats.levels) > len(LEVELS):
        return f"there are {len(stats.levels)} levels"
    return next(filter(None, map(_wrong_level, stats.levels)), "")


def _wrong_level(stats: LevelStats) -> str:
    if stats.level not in LEVELS:
        return f"there is no level {stats.level!r:.40}"
    for name in _LEVEL_COUNTS:
        if problem := _wrong_count(f"{name} ({stats.level})", getattr(stats, name)):
            return problem
    seconds = [getattr(stats, name) for name in _LEVEL_SECONDS]
    return "" if all(0 <= one < _MAX_COUNT for one in seconds) else "threads worked for no time"


def _wrong_count(name: str, count: int) -> str:
    return "" if 0 <= count <= _MAX_COUNT else f"{name} is {count}"
