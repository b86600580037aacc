"""The gateway's rules of joining."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.joining import judge_join, same_pages
from antiphon.types import (
    HostPort,
    Incarnation,
    JoinRefusal,
    JoinRefused,
    KvShape,
    ModelInfo,
    WorkerId,
    WorkerInfo,
)

IDENTITY = b"\x07" * 32
MODEL = ModelInfo(
    name="m",
    identity=IDENTITY,
    numerics="cpu",
    vocab_size=10,
    context_len=100,
    eos_token_ids=(0,),
    kv_bytes_per_token=8,
)
KV = KvShape(layout="l30 h0-3 w64 bf16", page_tokens=16, block_tokens=64, page_bytes=128, pages=9)


def worker(name: str, *, life: str = "a", **changes) -> WorkerInfo:
    info = WorkerInfo(
        id=WorkerId(name), incarnation=Incarnation(life), model=MODEL, max_model_len=100, kv=KV
    )
    return replace(info, **changes)


def judge(info: WorkerInfo, *present: WorkerInfo, max_workers: int = 4) -> JoinRefused | None:
    there = {one.id: one for one in present}
    return judge_join(info, there, identity=IDENTITY, max_workers=max_workers)


def refusal(info: WorkerInfo, *present: WorkerInfo, max_workers: int = 4) -> JoinRefused:
    refused = judge(info, *present, max_workers=max_workers)
    assert refused is not None
    return refused


def test_the_first_worker_joins() -> None:
    assert judge(worker("w0")) is None


def test_another_model_is_refused() -> None:
    refused = refusal(worker("w0", model=replace(MODEL, identity=b"\x08" * 32)))
    assert refused.reason is JoinRefusal.MODEL
    assert "07070707" in refused.message
    assert "08080808" in refused.message
    assert not refused.transient


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layout", "l30 h0-2 w64 bf16"),
        ("page_tokens", 32),
        ("block_tokens", 128),
        ("page_bytes", 64),
    ],
)
def test_pages_that_others_can_not_read_are_refused_at_the_door(field: str, value) -> None:
    """Unlike block sizes, layouts or heads are found at joining, not in a crash under load."""
    refused = refusal(worker("w1", kv=replace(KV, **{field: value})), worker("w0"))
    assert refused.reason is JoinRefusal.KV_SHAPE
    assert f"{field} is {value!r}" in refused.message
    assert "w0" in refused.message


def test_the_number_of_pages_and_the_numerics_may_differ() -> None:
    other = worker("w1", kv=replace(KV, pages=7), model=replace(MODEL, numerics="gpu"))
    assert judge(other, worker("w0")) is None


def test_who_exchanges_nothing_has_no_shape() -> None:
    assert judge(worker("w1", kv=None), worker("w0")) is None
    odd = worker("w2", kv=replace(KV, page_bytes=1))
    assert judge(odd, worker("w1", kv=None)) is None


def test_a_living_name_is_not_taken_over() -> None:
    refused = refusal(worker("w0", life="b"), worker("w0", life="a"))
    assert refused.reason is JoinRefusal.LIVE
    assert refused.transient


def test_who_would_cut_answers_short_is_refused() -> None:
    """What a caller gets must not depend on the route."""
    limits = {"identity": IDENTITY, "max_workers": 4}
    refused = judge_join(worker("w1", max_model_len=99), {}, **limits, max_model_len=100)
    assert refused is not None
    assert refused.reason is JoinRefusal.MAX_MODEL_LEN
    assert "up to 100 tokens" in refused.message
    assert "99" in refused.message
    for enough in (100, 101):
        info = worker("w1", max_model_len=enough)
        assert judge_join(info, {}, **limits, max_model_len=100) is None


def test_a_full_cluster_takes_nobody_more() -> None:
    refused = refusal(worker("w2"), worker("w0"), worker("w1"), max_workers=2)
    assert refused.reason is JoinRefusal.FULL
    assert refused.transient


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": WorkerId("../w")}, "id"),
        ({"id": WorkerId("")}, "id"),
        ({"id": WorkerId("w" * 65)}, "id"),
        ({"id": WorkerId("w\n")}, "id"),
        ({"incarnation": Incarnation("")}, "incarnation"),
        ({"model": replace(MODEL, identity=b"short")}, "model.identity"),
        ({"model": replace(MODEL, numerics="x" * 2000)}, "model.numerics"),
        ({"model": replace(MODEL, vocab_size=0)}, "model.vocab_size"),
        ({"model": replace(MODEL, vocab_size=2**32)}, "model.vocab_size"),
        ({"model": replace(MODEL, kv_bytes_per_token=-1)}, "model.kv_bytes_per_token"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"kv": replace(KV, page_tokens=0)}, "kv.page_tokens"),
        ({"kv": replace(KV, pages=2**60)}, "kv.pages"),
        ({"kv": replace(KV, block_tokens=65)}, "kv.block_tokens"),
        ({"at": HostPort(host="Box", addresses=("10.0.0.1",), port=1)}, "at.host"),
        ({"at": HostPort(host="box", addresses=(), port=1)}, "at.addresses"),
        ({"at": HostPort(host="box", addresses=("10.0.0.1",) * 9, port=1)}, "at.addresses"),
        ({"at": HostPort(host="box", addresses=("a/b",), port=1)}, "at.addresses"),
        ({"at": HostPort(host="box", addresses=("10.0.0.1",), port=2**16)}, "at.port"),
        ({"id": WorkerId("box.store")}, "id: box.store is what a store"),
        ({"store": HostPort(host="box", addresses=("10.0.0.1",), port=1)}, "store.host"),
        (
            {
                "at": HostPort(host="box", addresses=("10.0.0.1",), port=1),
                "store": HostPort(host="other", addresses=("10.0.0.1",), port=1),
            },
            "store.host",
        ),
        (
            {
                "at": HostPort(host="box", addresses=("10.0.0.1",), port=1),
                "store": HostPort(host="box", addresses=("10.0.0.1",), port=0),
            },
            "store.port",
        ),
    ],
)
def test_what_can_not_be_is_refused_by_name(changes, named: str) -> None:
    refused = refusal(worker("w0", **changes))
    assert refused.reason is JoinRefusal.INVALID
    assert refused.message.startswith(named)


shapes = st.builds(
    KvShape,
    layout=st.sampled_from("ab"),
    page_tokens=st.just(16),
    block_tokens=st.sampled_from((16, 32)),
    page_bytes=st.sampled_from((1, 2)),
    pages=st.integers(1, 3),
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), shapes), max_size=6))
def test_whoever_came_in_can_exchange_with_all_who_are_there(kvs) -> None:
    present: dict[WorkerId, WorkerInfo] = {}
    for number, kv in enumerate(kvs):
        info = worker(f"w{number}", kv=kv)
        if judge_join(info, present, identity=IDENTITY, max_workers=9) is None:
            present[info.id] = info
    inside = [info.kv for info in present.values() if info.kv is not None]
    assert all(same_pages(one, other) for one in inside for other in inside)
