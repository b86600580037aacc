"""Puts that wait: bounded, first in first out for each worker, and fair between workers."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers import PutQueue, Waiting
from antiphon.types import PutBlock

OWNERS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), OWNERS, st.integers(0, 7)),
        st.tuples(st.just("take"), st.none(), st.integers(1, 5)),
        st.tuples(st.just("forget"), OWNERS, st.none()),
    ),
    max_size=60,
)


def block(number: int) -> Waiting:
    return Waiting(b"", PutBlock(key=number.to_bytes(32, "big"), parent=None, pages=()))


@given(STEPS, st.integers(1, 6), st.integers(1, 10))
@settings(deadline=None, max_examples=200)
def test_it_is_bounded_and_in_order_for_each_owner(steps, each: int, whole: int) -> None:
    queue: PutQueue[str] = PutQueue(each, whole)
    model: dict[str, deque[Waiting]] = {owner: deque() for owner in "abc"}
    number = 0
    for what, owner, count in steps:
        match what:
            case "add":
                blocks = [block(number + at) for at in range(count)]
                number += count
                taken = queue.add(owner, blocks)
                room = min(each - len(model[owner]), whole - sum(map(len, model.values())))
                assert taken == min(count, max(0, room))
                model[owner].extend(blocks[:taken])
            case "take":
                turn = queue.take(count)
                if turn is None:
                    assert not any(model.values())
                else:
                    who, got = turn
                    assert got == [model[who].popleft() for _ in got]
                    assert 1 <= len(got) <= count
            case _:
                assert queue.forget(owner) == len(model[owner])
                model[owner].clear()
        assert len(queue) == sum(map(len, model.values())) <= whole


def test_a_worker_with_much_does_not_make_one_with_little_wait() -> None:
    queue: PutQueue[str] = PutQueue()
    queue.add("much", [block(number) for number in range(1000)])
    queue.add("little", [block(2000)])
    first, second = queue.take(16), queue.take(16)
    assert first is not None
    assert second is not None
    assert [first[0], second[0]] == ["much", "little"]


def test_what_nobody_wants_any_more_is_dropped_by_key_and_tenant() -> None:
    queue: PutQueue[str] = PutQueue()
    mine, theirs = [block(number) for number in range(4)], [block(number) for number in range(2, 6)]
    theirs = [Waiting(b"other", one.block) for one in theirs]
    queue.add("a", mine)
    queue.add("b", theirs)
    keys = {one.block.key for one in mine[2:]}
    assert queue.drop(keys, b"other") == 2
    assert queue.drop(keys, b"nobody") == 0
    assert queue.drop(keys) == 2
    assert queue.take(9) == ("a", mine[:2])
    assert queue.drop(None, b"other") == 2
    assert (len(queue), queue.take(9)) == (0, None)
    queue.add("a", mine)
    assert queue.drop(None) == 4
    assert len(queue) == 0
