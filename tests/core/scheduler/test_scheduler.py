"""Examples of the scheduler's contract, one rule each."""

from dataclasses import replace

import pytest
from scheduler_bench import SETUP, Bench, ends, request, tokens

from antiphon.core.scheduler import Scheduler
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine
from antiphon.testing.strategies import EOS, MODEL
from antiphon.types import (
    BlockStored,
    FinishReason,
    Preempted,
    RequestId,
    SequenceEnded,
    SequenceKey,
    Started,
    StepResult,
    TokenGenerated,
    Unknown,
)


def test_a_prompt_is_computed_in_chunks_and_then_decoded() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=4)))
    bench.add(request(prompt=(1, 2, 3, 4, 5, 6), max_tokens=2))
    first, events = bench.turn()
    (chunk,) = first.chunks
    assert (chunk.tokens, chunk.start, chunk.samples) == ((1, 2, 3, 4), 0, ())
    assert (chunk.page_start, len(chunk.new_pages)) == (0, 3)
    assert events == [Started(request=RequestId("r"), attempt=1, cached_tokens=0, queued_s=0.0)]
    (chunk,) = bench.turn()[0].chunks
    assert (chunk.tokens, chunk.start, chunk.samples, chunk.index) == ((5, 6), 4, (0,), 0)
    assert (chunk.page_start, chunk.new_pages) == (3, ())
    plan, events = bench.turn()
    (chunk,) = plan.chunks
    assert (chunk.tokens, chunk.start, chunk.samples, chunk.index) == ((9,), 6, (0,), 1)
    assert (chunk.page_start, len(chunk.new_pages)) == (3, 1)
    assert tokens(events) == [(1, 9)] and ends(events) == [(0, FinishReason.LENGTH)]
    assert bench.scheduler.step(0.0) is None


def test_decodes_come_first_and_prefills_share_the_rest() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=5)))
    bench.add(request("a"))
    bench.turn()
    bench.add(request("b", (5,) * 6))
    plan, _ = bench.turn()
    assert [(chunk.request.id, len(chunk.tokens)) for chunk in plan.chunks] == [("a", 1), ("b", 4)]


def test_priority_then_deadline_then_arrival_order_the_queue() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_num_seqs=1)))
    bench.add(
        request("late", max_tokens=1),
        request("later", max_tokens=1),
        request("due", max_tokens=1, deadline=4.0),
        request("urgent", max_tokens=1, priority=-1),
    )
    order = [event.request for event in bench.finish() if isinstance(event, Started)]
    assert order == ["urgent", "due", "late", "later"]


def test_a_long_prefill_does_not_keep_a_higher_class_from_starting() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=4)))
    bench.add(request("long", (1,) * 24))
    bench.turn()
    bench.add(request("same class"), request("urgent", priority=-1))
    plan, _ = bench.turn()
    order = [(chunk.request.id, len(chunk.tokens)) for chunk in plan.chunks]
    assert order == [("urgent", 3), ("long", 1)]


def test_a_prefix_hit_leaves_one_token_to_compute() -> None:
    bench = Bench()
    bench.add(request("a", (1, 2, 3, 4, 5, 6, 7, 8), max_tokens=1))
    bench.finish()
    bench.add(request("b", (1, 2, 3, 4, 5, 6, 7, 8), max_tokens=1))
    plan, events = bench.turn()
    assert [(chunk.start, chunk.tokens) for chunk in plan.chunks] == [(4, (5, 6, 7, 8))]
    assert isinstance(events[0], Started) and events[0].cached_tokens == 4
    view = bench.scheduler.view(0.0)
    assert (view.prefix_queried_tokens_total, view.prefix_hit_tokens_total) == (16, 4)


def test_outputs_enter_the_cache_too_and_salts_keep_tenants_apart() -> None:
    bench = Bench()
    bench.add(request("a", (1, 2, 3), max_tokens=6))
    bench.finish()
    follow_up = request("b", (1, 2, 3, 9, 9, 9, 9, 9, 4), max_tokens=1)
    bench.add(replace(follow_up, id=RequestId("c"), tenant_salt=b"other"))
    assert bench.turn()[0].chunks[0].start == 0
    bench.add(follow_up)
    assert bench.turn()[0].chunks[0].start == 8


def test_tokens_of_a_sequence_aborted_during_the_step_are_dropped() -> None:
    bench = Bench()
    bench.add(request())
    plan = bench.step()
    held = bench.scheduler.view(0.0).held_pages
    bench.scheduler.abort(RequestId("r"), 0.0)
    assert bench.scheduler.view(0.0).held_pages == held, "the running step uses them"
    assert bench.scheduler.view(0.0).running == 0
    events = bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0)
    assert tokens(list(events)) == [] and bench.scheduler.view(0.0).held_pages == 0
    assert bench.scheduler.abort(RequestId("r"), 0.0) == Unknown(request=RequestId("r"))


def test_an_id_is_free_again_once_its_request_has_ended() -> None:
    bench = Bench()
    bench.add(request())
    plan = bench.step()
    bench.scheduler.abort(RequestId("r"), 0.0)
    bench.add(request(attempt=2))
    bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0)
    plan, events = bench.turn()
    assert plan.ended == (SequenceKey(RequestId("r"), 0),) and plan.chunks[0].request.attempt == 2
    assert [event.attempt for event in events] == [2, 2]


def test_min_tokens_keeps_stops_from_ending() -> None:
    bench = Bench()
    bench.tokens["r", 0] = EOS
    bench.add(request(eos_token_ids=(EOS,), min_tokens=3, max_tokens=9))
    events = bench.finish()
    assert tokens(events) == [(0, EOS), (1, EOS), (2, EOS)]
    assert ends(events) == [(0, FinishReason.STOP)]


def test_stop_token_ids_end_as_eos_does() -> None:
    bench = Bench()
    bench.add(request(stop_token_ids=(9,), max_tokens=9))
    assert ends(bench.finish()) == [(0, FinishReason.STOP)]


def test_the_end_of_the_model_is_a_length_that_says_so() -> None:
    bench = Bench()
    bench.add(request(prompt=(1,) * 30, max_tokens=20))
    events = bench.finish()
    assert len(tokens(events)) == 2
    assert events[-1].reason is FinishReason.LENGTH
    assert events[-1].message == "prompt and output reached 32 tokens, the limit here"


def test_deadlines_end_what_waits_and_what_runs() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_num_seqs=1)))
    bench.add(request("a", deadline=2.0), request("b", deadline=1.0, priority=1))
    plan = bench.step()
    assert bench.scheduler.next_deadline() == 0.0, "somebody starts: that is to be said at once"
    assert [type(one) for one in bench.scheduler.expire(0.0)] == [Started]
    assert bench.scheduler.next_deadline() == 1.0
    assert ends(list(bench.scheduler.expire(1.0))) == [(0, FinishReason.DEADLINE)]
    assert bench.scheduler.next_deadline() == 2.0
    (event,) = bench.scheduler.expire(5.0)
    assert event.request == "a" and bench.scheduler.next_deadline() is None
    assert tokens(list(bench.scheduler.complete(plan, bench.engine.forward(plan), 5.0))) == []
    assert bench.scheduler.step(5.0) is None and bench.scheduler.view(5.0).held_pages == 0


def test_memory_of_deadlines_follows_what_is_open() -> None:
    bench = Bench()
    bench.add(request("open", deadline=1.0))
    for number in range(1000):
        bench.add(request(f"r{number}", deadline=500.0))
        bench.scheduler.abort(RequestId(f"r{number}"), 0.0)
    assert len(bench.scheduler._roster.deadlines._heap) < 100


def test_a_deadline_of_a_request_that_ended_is_no_deadline() -> None:
    bench = Bench()
    bench.add(request(deadline=1.0))
    bench.scheduler.abort(RequestId("r"), 0.0)
    bench.add(request(deadline=7.0))
    assert bench.scheduler.next_deadline() == 7.0
    bench.scheduler.abort(RequestId("r"), 0.0)
    assert bench.scheduler.next_deadline() is None
    bench.add(request(deadline=3.0))
    bench.scheduler.abort(RequestId("r"), 0.0)
    assert not bench.scheduler.expire(9.0)


def test_a_fault_ends_one_sequence_and_its_kv_is_not_found_again() -> None:
    bench = Bench()
    bench.tokens["bad", 0] = "logits are not finite"
    prompt = (1, 2, 3, 4, 5)
    bench.add(request("bad", prompt), request("good", (6, 7, 8)))
    _, events = bench.turn()
    (end,) = [event for event in events if isinstance(event, SequenceEnded)]
    assert (end.request, end.reason) == ("bad", FinishReason.ERROR)
    assert end.message == "logits are not finite"
    bench.add(request("next", prompt))
    plan, _ = bench.turn()
    assert [chunk.start for chunk in plan.chunks if chunk.request.id == "next"] == [0]
    assert ends(bench.finish()) == [(0, FinishReason.LENGTH)] * 2


def test_the_latest_of_the_lowest_class_gives_way_and_finishes_later() -> None:
    """Finished lengths say "short", so too many start; then memory runs out."""
    bench = Bench(replace(SETUP, pages=12, max_model_len=24))
    for number in range(4):
        bench.add(request(f"short{number}", (8,), max_tokens=1))
        bench.finish()
    bench.scheduler._history.predict = lambda generated, cap: generated + 1  # type: ignore
    bench.add(
        request("a", (1, 2, 3, 4), max_tokens=12),
        request("b", (5, 6, 7, 8), max_tokens=12),
        request("low", (3, 3, 3, 3), max_tokens=12, priority=1),
    )
    events = bench.finish()
    victims = [event.request for event in events if isinstance(event, Preempted)]
    assert victims and victims[0] == "low" and "a" not in victims
    by_request = {"a": 0, "b": 0, "low": 0}
    for event in events:
        if isinstance(event, TokenGenerated):
            assert event.index == by_request[event.request]
            by_request[event.request] += 1
    assert by_request == {"a": 12, "b": 12, "low": 12}
    view = bench.scheduler.view(0.0)
    assert view.preemptions_total == len(victims) and view.held_pages == 0
    assert len([event for event in events if isinstance(event, Started)]) == 3


def test_blocks_are_announced() -> None:
    stored: list = []
    worker = Scheduler(
        config=SETUP.config,
        kv=SETUP.kv,
        pages=SETUP.pages,
        model=MODEL,
        max_model_len=32,
        listen=stored.append,
    )
    worker.add(request(prompt=(1,) * 8, max_tokens=1), 0.0)
    plan = worker.step(0.0)
    assert plan is not None
    worker.complete(plan, ScriptedEngine(lambda *_: 9).forward(plan), 0.0)
    assert [type(event) for event in stored] == [BlockStored, BlockStored]
    assert stored[0].parent is None and stored[1].parent == stored[0].key


def test_one_plan_is_outstanding_and_each_sample_is_answered_once() -> None:
    bench = Bench()
    bench.add(request())
    plan = bench.step()
    with pytest.raises(BugError, match="outstanding"):
        bench.scheduler.step(0.0)
    with pytest.raises(BugError, match="not outstanding"):
        bench.scheduler.complete(plan, StepResult(number=plan.number + 1), 0.0)
    with pytest.raises(BugError, match="left out"):
        bench.scheduler.complete(plan, StepResult(number=plan.number), 0.0)
    for kind in ("samples", "faults"):
        bench = Bench()
        bench.add(request())
        plan = bench.step()
        result = bench.engine.forward(plan)
        bench.tokens["r", 0] = "bad"
        other = bench.engine.forward(plan)
        answer = replace(
            result, **{kind: getattr(result if kind == "samples" else other, kind) * 2}
        )
        with pytest.raises(BugError, match="not asked for"):
            bench.scheduler.complete(plan, answer, 0.0)


def test_prefill_first_lets_decodes_wait_for_prompts() -> None:
    config = replace(SETUP.config, prefill_first=True)
    bench = Bench(replace(SETUP, config=config))
    bench.add(request("a", (1, 2, 3)))
    bench.turn()
    bench.add(request("b", tuple(1 + place % 8 for place in range(20))), request("c", (5, 6, 7)))
    widths = [[(one.request.id, len(one.tokens)) for one in bench.turn()[0].chunks] for _ in "123"]
    assert widths == [[("b", 16)], [("b", 4), ("c", 3)], [("a", 1), ("b", 1), ("c", 1)]]
    shared = Bench()
    shared.add(request("a", (1, 2, 3)))
    shared.turn()
    shared.add(request("b", tuple(1 + place % 8 for place in range(20))))
    assert [len(one.tokens) for one in shared.turn()[0].chunks] == [1, 15]
