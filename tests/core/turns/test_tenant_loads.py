"""Who has less than others: never one that is alone, never all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.turns import TenantLoads
from antiphon.types import RequestId

NEW = RequestId("new")


def loads(*tenants: bytes) -> TenantLoads:
    """With a request of 700 tokens of each."""
    made = TenantLoads()
    for number, tenant in enumerate(tenants):
        made.put(RequestId(f"r{number}"), tenant, 700)
    return made


def test_whoever_is_alone_has_what_all_have() -> None:
    assert loads().share(NEW, b"a", 1) == 1.0
    assert loads(b"a").share(NEW, b"a", 1) == 1.0


def test_beside_a_flood_a_small_one_has_little() -> None:
    made = loads(*([b"flood"] * 19))
    assert made.share(NEW, b"small", 700) == pytest.approx(0.1)
    assert made.share(NEW, b"flood", 700) == 1.0
    made.put(NEW, b"small", 700)
    assert made.share(NEW, b"small", 700) == pytest.approx(0.1), "it does not count twice"
    assert made.share(RequestId("next"), b"flood", 700) > 1.9


def test_many_with_one_request_each_are_equal() -> None:
    """Together they may be the overload: each is as likely to be taken last as another."""
    made = loads(*(str(number).encode() for number in range(100)))
    assert made.share(NEW, b"new", 700) == 1.0


@given(st.lists(st.tuples(st.sampled_from(b"abcd"), st.integers(1, 1000)), max_size=30))
def test_somebody_has_the_mean_at_least_and_nothing_stays(added: list[tuple[int, int]]) -> None:
    made = TenantLoads()
    for number, (tenant, tokens) in enumerate(added):
        made.put(RequestId(f"r{number}"), bytes([tenant]), tokens)
    had = [made.share(RequestId(f"r{k}"), bytes([one]), n) for k, (one, n) in enumerate(added)]
    assert not had or max(had) >= 1.0 - 1e-9
    for number in range(len(added)):
        made.drop(RequestId(f"r{number}"))
        made.drop(RequestId(f"r{number}"))
    assert not made.requests()
    assert made.share(NEW, b"a", 1) == 1.0


def test_only_those_who_have_far_less_go_before() -> None:
    made = loads(*([b"flood"] * 6), b"one", b"two", b"other", b"other", b"other", b"other")
    assert made.overtaken(b"flood") == pytest.approx(2 / 12)
    assert made.overtaken(b"other") == pytest.approx(2 / 12)
    assert made.overtaken(b"one") == made.overtaken(b"new") == 0.0
