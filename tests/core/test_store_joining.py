"""Who may use a store: one model and layout at a time, and nothing that can't be."""

from dataclasses import replace

import pytest

from antiphon.core.store_joining import Tenancy, blocks_within, judge_store_hello
from antiphon.types import Incarnation, KvShape, StoreHello, StoreRefusal, WorkerId

KV = KvShape(layout="l", page_tokens=16, block_tokens=64, page_bytes=1024, pages=8)
HELLO = StoreHello(
    worker=WorkerId("mixed-0"),
    incarnation=Incarnation("1"),
    kv=KV,
    identity=bytes(32),
    numerics="n",
)
HERE = Tenancy(bytes(32), KV)


def judged(hello: StoreHello, *present: Tenancy, memory_bytes: int = 2**20):
    return judge_store_hello(hello, present, memory_bytes=memory_bytes, max_workers=3)


def test_equals_may_come_whatever_their_memory_and_numerics() -> None:
    assert judged(HELLO) is None
    other = replace(HELLO, kv=replace(KV, pages=99), numerics="other")
    assert judged(other, HERE, HERE) is None


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (replace(HELLO, identity=b"x" * 32), StoreRefusal.MODEL),
        (replace(HELLO, kv=replace(KV, layout="m")), StoreRefusal.KV_SHAPE),
        (replace(HELLO, kv=replace(KV, page_bytes=2048)), StoreRefusal.KV_SHAPE),
        (replace(HELLO, kv=replace(KV, block_tokens=128)), StoreRefusal.KV_SHAPE),
        (replace(HELLO, identity=b""), StoreRefusal.INVALID),
        (replace(HELLO, worker=WorkerId("../x")), StoreRefusal.INVALID),
        (replace(HELLO, incarnation=Incarnation("")), StoreRefusal.INVALID),
        (replace(HELLO, numerics="n" * 2000), StoreRefusal.INVALID),
        (replace(HELLO, kv=replace(KV, pages=0)), StoreRefusal.INVALID),
        (replace(HELLO, kv=replace(KV, block_tokens=65)), StoreRefusal.INVALID),
    ],
)
def test_others_are_refused_with_the_reason(hello: StoreHello, reason: StoreRefusal) -> None:
    refused = judged(hello, HERE)
    assert refused is not None
    assert refused.reason is reason
    assert refused.message


def test_who_comes_alone_brings_the_model_and_the_layout() -> None:
    assert judged(replace(HELLO, identity=b"x" * 32, kv=replace(KV, layout="m"))) is None


def test_a_full_store_and_one_that_holds_no_block_say_so() -> None:
    full = judged(HELLO, HERE, HERE, HERE)
    assert full is not None
    assert full.reason is StoreRefusal.FULL
    small = judged(HELLO, memory_bytes=4095)
    assert small is not None
    assert "--store-memory" in small.message
    assert judged(HELLO, memory_bytes=4096) is None
    assert blocks_within(KV, 3 * 4096 - 1) == 2
