"""What a worker says, to a reader who is quick, slow, or must know in time."""

import asyncio

from live_kit import Engine, HeldEngine, ended, next_events, request, turns, worker

from antiphon.types import Event, RequestId, Started, StepPlan, StepResult, TokenGenerated


class Watched(Engine):
    """Notes what the worker's reader has when a pass begins."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Event] = []
        self.known: list[set[RequestId]] = []

    def forward(self, plan: StepPlan) -> StepResult:
        self.known.append({one.request for one in self.read if isinstance(one, Started)})
        return super().forward(plan)


async def test_who_starts_is_told_before_the_pass_that_could_kill_the_worker() -> None:
    """Else nobody could tell who ran from who waited when a worker died."""
    engine = Watched()

    async def read() -> None:
        async for events in link.events():
            engine.read += events

    async with worker(engine) as link:
        reading = asyncio.create_task(read())
        await turns()
        for name in "abc":
            await link.add(request(name, max_tokens=3))
            await turns(5)
        await link.drain()
    await reading
    assert len(engine.plans) >= 3
    for plan, known in zip(engine.plans, engine.known, strict=True):
        assert {chunk.request.id for chunk in plan.chunks} <= known


async def test_a_reader_that_is_behind_holds_up_no_pass() -> None:
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(request("a", max_tokens=1))
        await engine.begun()
        engine.let_go()
        events = await next_events(link)
        while not ended(events):
            events += await next_events(link)


async def test_the_worker_does_not_run_ahead_of_its_reader() -> None:
    engine = HeldEngine()
    async with worker(engine) as link:
        await link.add(request("a", max_tokens=50))
        engine.let_go(100)
        await engine.begun()
        await engine.begun()
        third = asyncio.ensure_future(engine.begun())
        await asyncio.wait([third], timeout=0.05)
        assert not third.done()
        events = await next_events(link)
        await third
        while not ended(events):
            events += await next_events(link)
        indices = [event.index for event in events if isinstance(event, TokenGenerated)]
        assert indices == list(range(50))
