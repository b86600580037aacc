"""Adoption of what another worker has computed, by example."""

from dataclasses import replace

import pytest
from handover_pair import Pair, adopted
from scheduler_bench import SETUP, request

from antiphon.errors import BugError
from antiphon.types import (
    FinishReason,
    Pulled,
    Rejected,
    RejectReason,
    RequestId,
)

PROMPT = (1, 2, 3, 4, 5, 6, 7)


def test_an_adopted_request_decodes_at_once_and_never_computes_its_prompt() -> None:
    pair = Pair(SETUP)
    entry = adopted(pair, request(prompt=PROMPT, max_tokens=4))
    assert pair.decode.scheduler.view(0.0).roomless == 1
    assert pair.step(pair.decode) is None
    view = pair.decode.scheduler.view(0.0)
    assert view.roomless == 0, "it has room, though its KV is not here yet"
    assert (view.pulling, view.waiting, view.running, view.held_pages) == (1, 0, 0, 4)
    (pull,) = pair.pulls
    assert [page.source.page for page in pull.pages] == list(pull.offer.sequences[0].table)
    pair.end_pull(pull)
    assert entry.pulled == Pulled(
        request=RequestId("r"), attempt=1, pulled_tokens=7, cached_tokens=0, moved_bytes=4
    )
    plan = pair.step(pair.decode)
    assert plan is not None and [len(chunk.tokens) for chunk in plan.chunks] == [1]
    assert (plan.chunks[0].start, plan.chunks[0].index) == (7, 1)
    assert pair.prefill.scheduler.view(0.0).held_pages == 0, "it was acknowledged"
    pair.finish()
    pair.check_tokens(entry)


def test_what_is_here_already_is_not_pulled_and_what_was_pulled_is_found_again() -> None:
    pair = Pair(SETUP)
    for id, cached in (("a", 0), ("b", 4)):
        entry = adopted(pair, request(id, prompt=PROMPT, max_tokens=2))
        pair.step(pair.decode)
        assert len(pair.pulls[0].pages) == 4 - cached // 2
        pair.end_pull(pair.pulls[0])
        assert entry.pulled is not None and entry.pulled.cached_tokens == cached
        pair.finish()


def test_shared_blocks_are_pulled_once_and_tails_once_for_each_sequence() -> None:
    pair = Pair(SETUP)
    entry = adopted(pair, request(prompt=PROMPT, n=3, max_tokens=6))
    pair.step(pair.decode)
    (pull,) = pair.pulls
    sources = [page.source.page for page in pull.pages]
    targets = [page.target for page in pull.pages]
    assert len(sources) == 2 + 3 * 2 and len(set(sources)) == 4 and len(set(targets)) == 8
    pair.end_pull(pull)
    pair.finish()
    pair.check_tokens(entry)


@pytest.mark.parametrize("bad", [{0}, {1}, {2}, {3}, {0, 1, 2, 3, 4, 5}, {4}])
def test_what_is_missing_is_computed_here(bad: set[int]) -> None:
    """SGLang 8324: after a failed transfer outputs were garbage."""
    pair = Pair(SETUP, bad=[frozenset(bad)])
    entry = adopted(pair, request(prompt=PROMPT, n=2, max_tokens=6))
    pair.step(pair.decode)
    pair.end_pull(pair.pulls[0])
    assert entry.pulled is not None and entry.pulled.problem == "bad luck"
    assert entry.pulled.missing_tokens > 0
    pair.finish()
    pair.check_tokens(entry)


def test_an_abort_while_pages_are_pulled_keeps_them_until_the_pull_is_over() -> None:
    """vLLM 46283: an abort while KV was on its way leaked the taker's blocks for good."""
    pair = Pair(SETUP)
    entry = adopted(pair, request(prompt=PROMPT))
    pair.step(pair.decode)
    pair.abort(entry)
    scheduler = pair.decode.scheduler
    assert scheduler.view(0.0).held_pages == 4
    again = scheduler.adopt(replace(entry.request, resumed=((9,),)), entry.offer, 0.0)
    assert isinstance(again, Rejected) and again.reason is RejectReason.DUPLICATE
    pair.end_pull(pair.pulls[0])
    assert entry.pulled is None and scheduler.view(0.0).held_pages == 0
    with pytest.raises(BugError, match="not under way"):
        scheduler.pulled(RequestId("r"), 1, (True,) * 4, 0.0)


def test_a_deadline_while_pages_are_pulled_ends_the_request() -> None:
    pair = Pair(SETUP)
    entry = adopted(pair, request(prompt=PROMPT, deadline=0.5))
    pair.step(pair.decode)
    pair.now = 0.5
    pair.expire()
    assert entry.ends == {0: FinishReason.DEADLINE}
    pair.end_pull(pair.pulls[0])
    assert pair.decode.scheduler.view(0.5).held_pages == 0


def test_room_for_the_whole_pull_is_taken_before_the_first_page_or_not_at_all() -> None:
    pair = Pair(replace(SETUP, pages=16))
    pair.submit_whole(request("local", prompt=(3,) * 18, max_tokens=12), pair.decode)
    pair.step(pair.decode)
    adopted(pair, request(prompt=(1,) * 14))
    pair.complete(pair.decode)
    pair.step(pair.decode)
    assert not pair.pulls and pair.decode.scheduler.view(0.0).held_pages == 9
    pair.complete(pair.decode)
    pair.finish()


def test_two_workers_with_full_halves_take_from_each_other() -> None:
    """Nobody waits while holding what the other waits for."""
    one, two = Pair(replace(SETUP, pages=20)), Pair(replace(SETUP, pages=20))
    two.prefill, two.decode = one.decode, one.prefill
    two.prefill.scheduler.leases.ttl_s = 1.0
    for pair in (one, two):
        name = "a" if pair is one else "b"
        for number in range(3):
            pair.submit(request(f"{name}{number}", prompt=(number + 1,) * 16, max_tokens=3))
    one_, two_ = one.book, two.book
    one.book = two.book = {**one_, **two_}
    for _ in range(12):
        for pair in (one, two):
            if pair.step(pair.prefill) is not None:
                pair.complete(pair.prefill)
            two.pulls = one.pulls = []
    first, second = one.prefill.scheduler.view(0.0), two.prefill.scheduler.view(0.0)
    assert (first.leases, first.waiting, second.leases, second.waiting) == (1, 2, 1, 2)
    assert one.adopt(one.book[RequestId("a0")]) and two.adopt(one.book[RequestId("b0")])
    assert one.decode.scheduler.step(0.0) is None and two.decode.scheduler.step(0.0) is None
    assert len(one.decode.scheduler.pulls()) == len(two.decode.scheduler.pulls()) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda offer: replace(offer, numerics="cuda"), "computed as cuda"),
        (lambda offer: replace(offer, ttl_s=float("nan")), "lives for nan s"),
        (lambda offer: replace(offer, ttl_s=0.0), "lives for 0.0 s"),
        (lambda offer: replace(offer, kv=replace(offer.kv, page_tokens=4)), "pages have 4 tokens"),
        (lambda offer: replace(offer, request=RequestId("other")), "of request other"),
        (lambda offer: replace(offer, pages=offer.pages + offer.pages[:1]), "names a page twice"),
        (lambda offer: replace(offer, pages=offer.pages[1:]), "does not cover sequence 0"),
        (lambda offer: replace(offer, sequences=()), "does not cover sequence 0"),
        (
            lambda offer: replace(offer, sequences=(replace(offer.sequences[0], tokens=6),)),
            "does not cover sequence 0",
        ),
        (
            lambda offer: replace(
                offer, sequences=(replace(offer.sequences[0], table=(0, 0, 0, 0)),)
            ),
            "does not cover sequence 0",
        ),
    ],
)
def test_an_offer_that_does_not_fit_is_worthless_but_harmless(change, problem: str) -> None:
    """vLLM 23587: a mismatch crashed the taker instead of being refused."""
    pair = Pair(SETUP)
    entry = pair.submit(request(prompt=PROMPT))
    assert entry is not None
    pair.step(pair.prefill)
    pair.complete(pair.prefill)
    assert entry.offer is not None
    entry.offer = change(entry.offer)
    assert pair.adopt(entry)
    pair.step(pair.decode)
    (pull,) = pair.pulls
    assert pull.sources == pull.targets == ()
    pair.end_pull(pull)
    assert entry.pulled is not None and problem in entry.pulled.problem
    assert entry.pulled.missing_tokens == 7
    pair.finish()
    pair.check_tokens(entry)


def test_an_adopted_request_needs_a_token_to_go_on_from() -> None:
    pair = Pair(SETUP)
    entry = pair.submit(request(prompt=PROMPT))
    assert entry is not None
    pair.step(pair.prefill)
    pair.complete(pair.prefill)
    answer = pair.decode.scheduler.adopt(request(prompt=PROMPT), entry.offer, 0.0)
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.field) == (RejectReason.INVALID, "resumed")


def test_an_answer_to_a_pull_has_a_flag_for_each_page() -> None:
    pair = Pair(SETUP)
    adopted(pair, request(prompt=PROMPT))
    pair.step(pair.decode)
    with pytest.raises(BugError, match="not under way"):
        pair.decode.scheduler.pulled(RequestId("r"), 1, (True,), 0.0)
