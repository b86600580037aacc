"""May this worker use the store? The store's rules, as a function of what is there."""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import KvShape, PoolHello, StoreHello, StoreRefusal, StoreRefused

from .joining import MAX_NUMERICS_CHARS, is_name, same_pages, shape_problem

_IDENTITY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What all workers of a store have in common: the model, and how its KV lies in pages."""

    identity: bytes
    kv: KvShape


def judge_store_hello(
    hello: StoreHello,
    present: Sequence[Tenancy],
    *,
    memory_bytes: int,
    max_workers: int,
) -> StoreRefused | None:
    """None: it may. `present` are the tenancies of the workers that are connected: equal ones.

    Unequal numerics are no reason: they are part of every block's key.
    """
    if problem := _problem(hello):
        return StoreRefused(StoreRefusal.INVALID, problem)
    if len(present) >= max_workers:
        return StoreRefused(
            StoreRefusal.FULL,
            f"{len(present)} workers are here, at most {max_workers} may be: give it another store",
        )
    for there in present[:1]:
        if refused := _unlike(there, hello.identity, hello.kv):
            return refused
    return _too_large(hello.kv, memory_bytes)


def judge_pool_hello(
    hello: PoolHello, there: Tenancy | None, *, in_use: bool, memory_bytes: int
) -> StoreRefused | None:
    """May that store be in this one's pool? None: it may. `there`: what lies here, if anything
    does; `in_use`: workers are here. What nobody uses gives way."""
    problem = "" if is_name(hello.name) else "name: letters, digits, dots, dashes, underscores"
    problem = problem or _wrong_tenancy(hello.identity, hello.kv)
    if not problem and hello.blocks < 1:
        problem = "blocks: it has room for none"
    if problem:
        return StoreRefused(StoreRefusal.INVALID, problem)
    if there is not None and in_use and (refused := _unlike(there, hello.identity, hello.kv)):
        return refused
    return _too_large(hello.kv, memory_bytes)


def _unlike(there: Tenancy, identity: bytes, kv: KvShape) -> StoreRefused | None:
    if there.identity != identity:
        return StoreRefused(
            StoreRefusal.MODEL,
            f"workers of the model {there.identity.hex()[:16]}… are here, this one has "
            f"{identity.hex()[:16]}…: give it a store of its own",
        )
    if not same_pages(there.kv, kv):
        return StoreRefused(
            StoreRefusal.KV_SHAPE,
            f"workers with other pages are here ({there.kv}): give this one the same kv and "
            f"model settings, or a store of its own",
        )
    return None


def _too_large(kv: KvShape, memory_bytes: int) -> StoreRefused | None:
    if blocks_within(kv, memory_bytes):
        return None
    return StoreRefused(
        StoreRefusal.KV_SHAPE,
        f"a block has {block_bytes(kv)} bytes, the store's memory {memory_bytes}: raise "
        f"store.memory_bytes (--store-memory)",
    )


def pages_a_block(kv: KvShape) -> int:
    """How many pages hold a block."""
    return kv.block_tokens // kv.page_tokens * kv.entry_pages


def block_bytes(kv: KvShape) -> int:
    """What a block takes in memory."""
    return pages_a_block(kv) * kv.page_bytes


def blocks_within(kv: KvShape, memory_bytes: int) -> int:
    """How many blocks that memory holds."""
    return memory_bytes // block_bytes(kv)


def _problem(hello: StoreHello) -> str:
    """What of a worker's own description can't be; empty if all can."""
    if not is_name(hello.worker):
        return "worker: letters, digits, dots, dashes and underscores, at most 64"
    if not is_name(hello.incarnation):
        return "incarnation: letters, digits, dots, dashes and underscores, at most 64"
    if len(hello.numerics) > MAX_NUMERICS_CHARS:
        return f"numerics is longer than {MAX_NUMERICS_CHARS} characters"
    return _wrong_tenancy(hello.identity, hello.kv)


def _wrong_tenancy(identity: bytes, kv: KvShape) -> str:
    if len(identity) != _IDENTITY_BYTES:
        return f"identity has {len(identity)} bytes, not {_IDENTITY_BYTES}"
    return shape_problem(kv)
