import asyncio
import random
import threading
from dataclasses import replace

import pytest
from live_kit import (
    INFO,
    PAGES,
    SCRIPT,
    Clock,
    Driver,
    Engine,
    HeldEngine,
    ended,
    next_events,
    request,
    turns,
    worker,
)

from antiphon.core.recorder import Entry
from antiphon.errors import BugError
from antiphon.live.worker import MAX_FAULTS_IN_A_ROW, Worker
from antiphon.types import (
    Aborted,
    Admitted,
    AttemptFailed,
    FinishReason,
    Outcome,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Started,
    StepPlan,
    StepResult,
    TokenGenerated,
    Unknown,
)

A, B = RequestId("a"), RequestId("b")


def assert_at_rest(worker: Worker) -> None:
    view = worker.view()
    assert (view.running, view.waiting, view.held_pages) == (0, 0, 0)
    assert view.free_pages + view.cached_pages == view.total_pages == PAGES


async def test_a_request_runs_on_the_engines_thread() -> None:
    engine = Engine()
    async with worker(engine) as link:
        asked = request("a", max_tokens=3)
        assert await link.add(asked) == Admitted(request=A)
        events = []
        while not ended(events):
            events += await next_events(link)
        await link.drain()
        assert_at_rest(link)
    assert isinstance(events[0], Started)
    tokens = [event for event in events if isinstance(event, TokenGenerated)]
    assert [event.token for event in tokens] == [SCRIPT(asked, 0, index) for index in range(3)]
    assert ended(events) == [(A, 0, FinishReason.LENGTH)]
    assert len(engine.threads) == 1
    assert engine.threads.isdisjoint({threading.main_thread().name})


async def test_an_abort_during_a_pass_takes_effect_at_once() -> None:
    """Its answer does not wait for the pass, its pages do, and the next plan is without it."""
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(request("a"))
        await engine.begun()
        await link.add(request("b", max_tokens=2))
        assert await link.abort(A, 1) == Aborted(request=A, sequences=(0,))
        assert await link.abort(A, 1) == Unknown(request=A)
        assert link.view().held_pages == 1
        engine.let_go()
        await engine.begun()
        assert [chunk.request.id for plan in engine.plans for chunk in plan.chunks] == ["a"]
        engine.let_go(9)
        events = await next_events(link)
        while not ended(events):
            events += await next_events(link)
        await link.drain()
        assert_at_rest(link)
    assert {chunk.request.id for plan in engine.plans[1:] for chunk in plan.chunks} == {"b"}
    of_a = [type(event) for event in events if event.request == A]
    assert of_a == [Started], "what an ended sequence still computes is not reported"


async def test_an_abort_frees_pages_when_the_pass_completes() -> None:
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(request("a", n=2))
        await engine.begun()
        assert await link.abort(A, 1, 1) == Aborted(request=A, sequences=(1,))
        assert await link.abort(A, 1) == Aborted(request=A, sequences=(0,))
        assert link.view().held_pages > 0
        engine.let_go()
        await link.drain()
        assert_at_rest(link)


async def test_an_abort_of_another_attempt_ends_nothing() -> None:
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(replace(request("a"), attempt=2))
        assert await link.abort(A, 1) == Unknown(request=A)
        assert await link.abort(B, 1) == Unknown(request=B)
        assert await link.abort(A, 2, 7) == Unknown(request=A)
        assert await link.abort(A, 2) == Aborted(request=A, sequences=(0,))


@pytest.mark.parametrize("seed", [1, 2])
async def test_two_hundred_requests_with_random_aborts(seed: int) -> None:
    """Each ends once, tokens are the script's, pages return; twice over, memory is the same."""
    chance = random.Random(seed)
    asked: dict[RequestId, Request] = {}
    doomed: dict[tuple[RequestId, int], int] = {}

    def watch(driver: Driver, token: TokenGenerated) -> None:
        if doomed.get((token.request, token.sequence)) == token.index:
            driver.cancel(token.request, chance.choice([None, token.sequence]))

    def ask(number: int) -> Request:
        length, shared = chance.randint(1, 30), [7] * 8 * chance.randint(0, 2)
        prompt = [*shared, *(chance.randrange(100) for _ in range(length))]
        return request(f"r{number}", prompt, chance.randint(1, 20), chance.choice([1, 1, 2]))

    async with worker(Engine(), max_batched_tokens=48) as link:
        driver = Driver(link, watch)
        for round in range(2):
            for number in range(round * 100, round * 100 + 100):
                one = ask(number)
                asked[one.id] = one
                if chance.random() < 0.4:
                    doomed[one.id, chance.randrange(one.sampling.n)] = chance.randrange(10)
                driver.start(one)
                if chance.random() < 0.1:
                    driver.cancel(one.id)
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
            await driver.finish()
            while link.view().held_pages:  # a pass may still use what was aborted last
                await asyncio.sleep(0)
            assert_at_rest(link)
            assert not link._live
    await driver.stop()

    assert driver.records.keys() == asked.keys()
    outcomes = [record.outcome for record in driver.records.values()]
    assert set(outcomes) == {Outcome.FINISHED, Outcome.CANCELLED}
    assert outcomes.count(Outcome.CANCELLED) > 30
    for (id, sequence), tokens in driver.tokens.items():
        assert tokens == [SCRIPT(asked[id], sequence, index) for index in range(len(tokens))]
    for id, record in driver.records.items():
        if record.outcome is Outcome.FINISHED:
            sampling = asked[id].sampling
            assert record.output_tokens == sampling.n * (sampling.max_tokens or 0)


async def test_drain_finishes_what_runs_and_refuses_what_is_new() -> None:
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(request("a", max_tokens=3))
        draining = asyncio.ensure_future(link.drain())
        await engine.begun()
        refused = await link.add(request("b"))
        assert isinstance(refused, Rejected)
        assert refused.reason is RejectReason.DRAINING
        assert not draining.done()
        engine.let_go(3)
        events = await next_events(link)
        while not ended(events):
            events += await next_events(link)
        await draining
        assert ended(events) == [(A, 0, FinishReason.LENGTH)]
        assert_at_rest(link)
        assert link.healthy


@pytest.mark.parametrize("error", [RuntimeError, BugError, StopIteration])
async def test_who_was_in_a_failed_pass_is_tried_again_and_finds_no_poisoned_kv(
    error: type[Exception],
) -> None:
    """It ended with an error, though another attempt would have served it."""
    prompt = range(40)
    engine = Engine(fails=lambda plan: plan.number == 1, error=error)
    async with worker(engine, max_batched_tokens=16) as link:
        driver = Driver(link, lambda driver, token: None)
        driver.start(request("a", prompt, n=2))
        await driver.finish()
        record = driver.records[A]
        assert (record.outcome, record.attempts) == (Outcome.FINISHED, 2)
        assert (link.faults_total, link.healthy) == (1, True)
        assert_at_rest(link)
        driver.start(request("b", prompt))
        await driver.finish()
        assert driver.records[B].outcome is Outcome.FINISHED
        assert_at_rest(link)
    await driver.stop()
    assert engine.plans[1].chunks[0].samples == (), "the failing chunk was to be an early one"


async def test_a_request_that_breaks_the_engine_is_tried_three_times_and_the_worker_lives() -> None:
    engine = Engine(fails=lambda plan: any(chunk.request.id == A for chunk in plan.chunks))
    async with worker(engine) as link:
        driver = Driver(link, lambda driver, token: None)
        driver.start(request("a", n=2))
        await driver.finish()
        record = driver.records[A]
        assert record.outcome is Outcome.FAILED
        assert record.finish_reasons == (FinishReason.ERROR, FinishReason.ERROR)
        assert "3 attempts in a row broke off" in record.message
        assert (link.faults_total, link.healthy) == (3, True)
        driver.start(request("b"))
        await driver.finish()
        assert driver.records[B].outcome is Outcome.FINISHED
        assert_at_rest(link)
    await driver.stop()


async def test_faults_in_a_row_make_it_unhealthy() -> None:
    engine = Engine(fails=lambda plan: True)
    async with worker(engine) as link:
        driver = Driver(link, lambda driver, token: None)
        for number in range(40):  # more than run at once: some are still waiting at the end
            driver.start(request(f"r{number}", [number] * 20))
        await driver.finish()
        assert len(engine.plans) == MAX_FAULTS_IN_A_ROW == link.faults_total
        assert not link.healthy
        outcomes = {(record.outcome, record.message) for record in driver.records.values()}
        assert outcomes <= {
            (Outcome.FAILED, "3 attempts in a row broke off before a token came"),
            (
                Outcome.REJECTED,
                f"the worker is unhealthy: the engine failed {MAX_FAULTS_IN_A_ROW} times in a row",
            ),
        }, "there is nobody else to go on with it"
        refused = await link.add(request("late"))
        assert isinstance(refused, Rejected)
        assert "unhealthy" in refused.message
        await link.drain()
        assert_at_rest(link)
    await driver.stop()


async def test_a_pass_that_works_forgives_earlier_faults() -> None:
    engine = Engine(fails=lambda plan: plan.number % 3 != 2)
    async with worker(engine) as link:
        driver = Driver(link, lambda driver, token: None)
        for number in range(9):
            driver.start(request(f"r{number}", max_tokens=1))
            await driver.finish()
        assert {record.outcome for record in driver.records.values()} == {Outcome.FINISHED}
        assert link.faults_total > MAX_FAULTS_IN_A_ROW
        assert link.healthy
    await driver.stop()


class WrongNumber(Engine):
    def forward(self, plan: StepPlan) -> StepResult:
        return replace(super().forward(plan), number=plan.number + 1)


async def test_a_broken_law_stops_the_worker_and_reaches_the_reader() -> None:
    async with worker(WrongNumber()) as link:
        await link.add(request("a"))
        assert [type(event) for event in await next_events(link)] == [Started]
        with pytest.raises(BugError, match="step 0 is completed but is not outstanding"):
            await anext(link.events())
        assert not link.healthy
        refused = await link.add(request("b"))
        assert isinstance(refused, Rejected)
        assert refused.message == "the worker is gone"
        await link.drain()


async def test_close_ends_what_is_left_after_the_running_pass() -> None:
    engine = HeldEngine()
    link = worker(engine)
    link.start()
    with pytest.raises(BugError, match="started twice"):
        link.start()
    await link.add(request("a", n=2))
    await engine.begun()
    closing = asyncio.ensure_future(link.close())
    await turns()
    assert not closing.done()
    engine.let_go()
    await closing
    events = [event async for batch in link.events() for event in batch]
    assert events[-1:] == [
        AttemptFailed(request=A, attempt=1, message="the worker was shut down")
    ], "both sequences at once: another worker may go on with them"
    assert not ended(events)
    assert_at_rest(link)
    assert not [thread for thread in threading.enumerate() if INFO.id in thread.name]
    await link.close()


async def test_a_worker_that_was_never_started_can_be_closed() -> None:
    link = worker(Engine())
    await link.close()
    assert [batch async for batch in link.events()] == []


async def test_a_sleeping_worker_decides_nothing_and_wakes_at_once() -> None:
    entries: list[Entry] = []
    async with worker(Engine(), log_decision=entries.append) as link:
        await turns()
        asleep = len(entries)
        await turns(1000)
        assert len(entries) == asleep == 1
        await link.add(request("a", max_tokens=1))
        assert [type(event) for event in await next_events(link)] == [Started]
        assert ended(await next_events(link)) == [(A, 0, FinishReason.LENGTH)]


async def test_deadlines_pass_between_steps() -> None:
    clock, engine = Clock(), HeldEngine()
    async with worker(engine, clock=clock) as link:
        await link.add(request("a", max_tokens=100, deadline=5.0))
        await engine.begun()
        clock.now = 5.0
        engine.let_go()
        events = await next_events(link)
        while not ended(events):
            events += await next_events(link)
        await link.drain()
        assert ended(events) == [(A, 0, FinishReason.DEADLINE)]
        assert len(engine.plans) == 1
        assert_at_rest(link)


async def test_a_resumed_request_that_had_said_everything_ends_at_once() -> None:
    engine = Engine()
    async with worker(engine) as link:
        await link.add(request("a", max_tokens=2, resumed=((5, 6),)))
        assert ended(await next_events(link)) == [(A, 0, FinishReason.LENGTH)]
        await link.drain()
    assert engine.plans == []
