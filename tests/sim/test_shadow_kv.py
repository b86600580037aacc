"""I5: the shadow refuses every kind of wrong read; a shadow that can't fail proves nothing."""

from dataclasses import replace

import pytest

from antiphon.errors import BugError
from antiphon.sim import ShadowKv
from antiphon.types import (
    Chunk,
    PageCopy,
    Request,
    RequestId,
    SamplingParams,
    SequenceKey,
    StepPlan,
)


def request(id: str, prompt: tuple[int, ...] = (1, 2, 3), **changes) -> Request:
    return Request(id=RequestId(id), prompt=prompt, sampling=SamplingParams(), **changes)


A, B = request("a"), request("b")


def plan(*chunks: Chunk, copies: tuple[PageCopy, ...] = (), ended=()) -> StepPlan:
    return StepPlan(number=0, chunks=chunks, copies=copies, ended=ended)


def chunk(one: Request, tokens: tuple[int, ...], start: int, **changes) -> Chunk:
    return Chunk(**({"request": one, "sequence": 0, "tokens": tokens, "start": start} | changes))


def shadow() -> ShadowKv:
    """Pages of 2; A's prompt lies in pages 4 and 7."""
    kv = ShadowKv(2)
    kv.run(plan(chunk(A, (1, 2, 3), 0, new_pages=(4, 7))))
    return kv


def test_a_sequence_reads_what_it_wrote() -> None:
    kv = shadow()
    kv.run(plan(chunk(A, (9,), 3, page_start=2)))
    kv.run(plan(chunk(A, (8,), 4, page_start=2, new_pages=(0,))))


def test_a_prefix_hit_on_equal_content_is_fine_and_on_other_content_is_not() -> None:
    kv = shadow()
    kv.run(plan(chunk(B, (3,), 2, new_pages=(4, 1))))
    other = request("c", prompt=(2, 2, 3))
    with pytest.raises(BugError, match="holds something else"):
        kv.run(plan(chunk(other, (3,), 2, new_pages=(4, 1))))


def test_equal_tokens_after_another_beginning_are_other_content() -> None:
    kv = shadow()
    other = request("c", prompt=(9, 9, 3, 4))
    with pytest.raises(BugError, match="reads page 7"):
        kv.run(
            plan(
                chunk(other, (9, 9), 0, new_pages=(0,)),
                chunk(other, (4,), 3, page_start=1, new_pages=(7,)),
            )
        )


def test_a_page_that_another_sequence_overwrote_is_found() -> None:
    kv = shadow()
    kv.run(plan(chunk(B, (1, 2, 3), 0, new_pages=(5, 7))))
    kv.run(plan(chunk(B, (6,), 3, page_start=2)))
    kv.run(plan(chunk(A, (9,), 3, page_start=2)))
    with pytest.raises(BugError, match="b/0 reads page 7"):
        kv.run(plan(chunk(B, (6,), 4, page_start=2, new_pages=(6,))))


def test_two_that_write_one_slot_in_one_step_are_found() -> None:
    kv = ShadowKv(2)
    one, other = request("a", (1,)), request("b", (2,))
    with pytest.raises(BugError, match="a/0 reads page 0"):
        kv.run(plan(chunk(one, (1,), 0, new_pages=(0,)), chunk(other, (2,), 0, new_pages=(0,))))


def test_a_copy_carries_content() -> None:
    kv = shadow()
    fork = chunk(A, (5,), 3, sequence=1, new_pages=(4, 8))
    kv.run(plan(fork, copies=(PageCopy(7, 8),)))
    with pytest.raises(BugError, match="reads page 9"):
        kv.run(plan(chunk(A, (5,), 3, sequence=2, new_pages=(4, 9))))


@pytest.mark.parametrize(
    "copies", [(PageCopy(4, 8), PageCopy(7, 8)), (PageCopy(4, 7), PageCopy(7, 8))]
)
def test_copies_that_depend_on_their_order_are_refused(copies: tuple[PageCopy, ...]) -> None:
    with pytest.raises(BugError, match="order"):
        shadow().run(plan(copies=copies))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (chunk(B, (1, 9), 0, new_pages=(0,)), "other tokens"),
        (chunk(B, (3,), 4, new_pages=(0, 1, 2)), "other tokens"),
        (chunk(B, (1, 2, 3), 0, new_pages=(0,)), "does not reach position 2"),
        (chunk(B, (1,), 0, page_start=1, new_pages=(0,)), "hole before 1"),
    ],
)
def test_a_chunk_that_does_not_fit_its_sequence_is_refused(wrong: Chunk, message: str) -> None:
    with pytest.raises(BugError, match=message):
        shadow().run(plan(wrong))


def test_what_ended_is_forgotten_and_what_was_resumed_is_known() -> None:
    kv = shadow()
    again = request("a", (7, 7), resumed=((8,),))
    kv.run(plan(chunk(again, (7, 7, 8), 0, new_pages=(0, 1)), ended=(SequenceKey(A.id, 0),)))


def test_another_worker_reads_what_was_sealed() -> None:
    owner, taker = shadow(), ShadowKv(2)
    offered = owner.seal((4, 7))
    assert all(page.generation % 2 == 0 for page in offered)
    assert owner.seal((4, 7)) == offered, "sealing twice is sealing once"
    for page, target in zip(offered, (0, 1), strict=True):
        content = owner.read(page)
        assert content is not None
        taker.pull(target, content)
    taker.run(plan(chunk(A, (5,), 3, new_pages=(0, 1))))


def test_a_page_that_is_used_anew_is_another_page() -> None:
    """vLLM 21570: the owner frees on a timeout, and the taker reads recycled blocks."""
    kv = shadow()
    (offered, _) = kv.seal((4, 7))
    kv.run(plan(chunk(request("b", (9,)), (9,), 0, new_pages=(4,))))
    assert kv.read(offered) is None
    (again,) = kv.seal((4,))
    assert kv.read(offered) is None
    assert kv.read(again) is not None


def test_the_same_generation_with_other_bytes_is_another_page() -> None:
    one, other = shadow(), shadow()
    (offered,) = one.seal((4,))
    other.run(plan(chunk(request("b", (9,)), (9,), 0, new_pages=(5,))))
    (other_page,) = other.seal((5,))
    assert other.read(replace(offered, page=other_page.page)) is None


def test_a_sealed_page_is_not_appended_to() -> None:
    kv = shadow()
    kv.seal((4, 7))
    with pytest.raises(BugError, match="I22"):
        kv.run(plan(chunk(A, (5,), 3, page_start=2)))


def test_a_page_that_was_never_written_is_not_sealed() -> None:
    with pytest.raises(BugError, match="never written"):
        shadow().seal((9,))


def test_wrong_content_is_found_when_it_is_used() -> None:
    owner, taker = shadow(), ShadowKv(2)
    (first, _) = owner.seal((4, 7))
    content = owner.read(first)
    assert content is not None
    taker.pull(0, content[::-1])
    with pytest.raises(BugError, match="reads page 0"):
        taker.run(plan(chunk(A, (3,), 2, new_pages=(0, 1))))
