"""Requests of several sequences, and such that an earlier attempt began."""

from dataclasses import replace

from scheduler_bench import SETUP, Bench, ends, request, tokens

from antiphon.testing.strategies import EOS
from antiphon.types import (
    Aborted,
    FinishReason,
    KvConfig,
    Preempted,
    RequestId,
    SequenceKey,
)


def test_n_sequences_compute_the_prompt_once_and_fork() -> None:
    bench = Bench()
    bench.add(request(prompt=(1, 2, 3, 4, 5, 6, 7), n=3, max_tokens=3))
    plan, events = bench.turn()
    (chunk,) = plan.chunks
    assert (chunk.samples, chunk.index) == ((0, 1, 2), 0)
    assert [tokens(events, sequence) for sequence in range(3)] == [[(0, 9)]] * 3
    plan, _ = bench.turn()
    assert len(plan.copies) == 2 * 2, "the incomplete block has two pages, for two forks"
    tables = {chunk.sequence: chunk.new_pages for chunk in plan.chunks}
    assert tables[1][:2] == tables[2][:2], "the complete block is shared"
    assert not set(tables[1][2:]) & set(tables[2][2:])
    assert {target.target for target in plan.copies} <= {*tables[1][2:], *tables[2][2:]}
    assert sorted(ends(bench.finish())) == [(s, FinishReason.LENGTH) for s in range(3)]


def test_forks_live_on_when_their_leader_ends_with_its_first_token() -> None:
    bench = Bench()
    bench.tokens["r", 0] = EOS
    bench.add(request(prompt=(1, 2, 3, 4, 5), n=2, eos_token_ids=(EOS,)))
    _, events = bench.turn()
    assert ends(events) == [(0, FinishReason.STOP)]
    plan, _ = bench.turn()
    assert plan.ended == (SequenceKey(RequestId("r"), 0),)
    assert len(plan.copies) == 1 and [chunk.sequence for chunk in plan.chunks] == [1]
    assert ends(bench.finish()) == [(1, FinishReason.LENGTH)]
    assert bench.scheduler.view(0.0).held_pages == 0


def test_a_follower_takes_over_when_the_leader_is_aborted_in_its_prefill() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=4)))
    bench.add(request(prompt=(1,) * 10, n=3, max_tokens=2))
    plan = bench.step()
    assert bench.scheduler.abort(RequestId("r"), 0.0, 0) == Aborted(
        request=RequestId("r"), sequences=(0,)
    )
    bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0)
    plan, _ = bench.turn()
    (chunk,) = plan.chunks
    assert (chunk.sequence, chunk.start, chunk.page_start) == (1, 4, 0), "it keeps what is computed"
    assert bench.scheduler.abort(RequestId("r"), 0.0, 1) == Aborted(
        request=RequestId("r"), sequences=(1,)
    )
    assert ends(bench.finish()) == [(2, FinishReason.LENGTH)]
    assert bench.scheduler.view(0.0).held_pages == 0


def test_the_next_follower_leads_when_a_waiting_leader_is_aborted() -> None:
    bench = Bench()
    bench.add(request(n=3, max_tokens=1))
    bench.scheduler.abort(RequestId("r"), 0.0, 0)
    bench.scheduler.abort(RequestId("r"), 0.0, 2)
    plan, events = bench.turn()
    assert plan.chunks[0].samples == (1,) and ends(events) == [(1, FinishReason.LENGTH)]


def test_resumed_tokens_continue_the_numbering() -> None:
    bench = Bench()
    bench.add(request(resumed=((7, 8),), max_tokens=4, attempt=2))
    plan, events = bench.turn()
    assert (plan.chunks[0].tokens, plan.chunks[0].index) == ((1, 2, 3, 7, 8), 2)
    assert tokens(events + bench.finish()) == [(2, 9), (3, 9)]


def test_resumed_sequences_run_apart_from_those_that_share_the_prompt() -> None:
    bench = Bench()
    bench.add(request(n=3, resumed=((), (7,), ()), max_tokens=2))
    plan, _ = bench.turn()
    assert [(chunk.sequence, chunk.samples, chunk.index) for chunk in plan.chunks] == [
        (0, (0, 2), 0),
        (1, (1,), 1),
    ]
    bench.finish()
    assert bench.scheduler.view(0.0).held_pages == 0


def test_what_has_nothing_left_to_say_ends_at_once() -> None:
    bench = Bench()
    bench.add(request("a", max_tokens=0), request("b", resumed=((1, EOS),), eos_token_ids=(EOS,)))
    assert bench.scheduler.step(0.0) is None
    assert bench.scheduler.next_deadline() == 0.0
    events = list(bench.scheduler.expire(0.0))
    assert ends(events) == [(0, FinishReason.LENGTH), (0, FinishReason.STOP)]
    assert bench.scheduler.next_deadline() is None
    assert bench.scheduler.view(0.0).waiting == 0


def test_a_fault_of_one_fork_leaves_the_others() -> None:
    bench = Bench()
    bench.tokens["r", 1] = "logits are not finite"
    bench.add(request(prompt=(1, 2, 3, 4, 5), n=3, max_tokens=6))
    _, events = bench.turn()
    assert ends(events) == [(1, FinishReason.ERROR)]
    assert sorted(ends(bench.finish())) == [(0, FinishReason.LENGTH), (2, FinishReason.LENGTH)]
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.cached_pages) == (0, 0), "nothing in doubt is cached"


def test_a_lone_fork_without_room_beside_its_sources_starts_again() -> None:
    setup = replace(SETUP, kv=KvConfig(page_tokens=1, block_tokens=4), pages=6, max_model_len=6)
    bench = Bench(setup)
    bench.tokens["r", 0] = EOS
    bench.add(request(prompt=(1, 2, 3), n=2, eos_token_ids=(EOS,), max_tokens=3))
    events = bench.finish()
    assert any(isinstance(event, Preempted) for event in events)
    assert tokens(events, 1) == [(0, 9), (1, 9), (2, 9)]
