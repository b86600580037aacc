"""Whatever becomes of a connection: tokens once, in order, and no request outlives its life."""

import asyncio
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_kit import Door, PuppetWorker, port, request, token, until, worker_info

from antiphon.errors import PeerError
from antiphon.live.remote_worker import RemoteWorker
from antiphon.testing.faulty_relay import Cut, Delay, Fault, FaultyRelay, Pass, Passing
from antiphon.types import Admitted, Event, Rejected, Request, RequestId, TokenGenerated

pytestmark = pytest.mark.timeout(120)
REQUESTS = 6
TOKENS = 12

faults = st.one_of(
    st.just(Pass()),
    st.builds(Pass, piece_bytes=st.integers(1, 40)),
    st.builds(Delay, st.sampled_from((0.0, 0.002))),
)
plans = st.lists(faults, min_size=1, max_size=6)
cuts = st.lists(st.tuples(st.integers(2, 60), st.integers(0, 120)), max_size=4)


class Chatty(PuppetWorker):
    """Says the tokens of each request one by one, mixed with those of the others."""

    def __init__(self) -> None:
        super().__init__(worker_info())
        self.talks: set[asyncio.Task[None]] = set()

    async def _take(self, request: Request) -> Admitted | Rejected:
        answer = await super()._take(request)
        if isinstance(answer, Admitted):
            self.talks.add(asyncio.create_task(self._talk(request)))
        return answer

    async def _talk(self, request: Request) -> None:
        for index in range(TOKENS):
            self.say(token(request, index))
            await asyncio.sleep(0)


class Client:
    """A gateway in short: each request again, in a new attempt, until all its tokens are there."""

    def __init__(self) -> None:
        self.got: dict[tuple[RequestId, int], list[int]] = defaultdict(list)
        self.attempts = {f"r{number}": 0 for number in range(REQUESTS)}

    def missing(self) -> list[str]:
        return [
            name
            for name, attempt in self.attempts.items()
            if len(self.got[RequestId(name), attempt]) < TOKENS
        ]

    async def use(self, link: RemoteWorker) -> None:
        """Ask for what is missing and read, until all is there or the link is over."""
        adds = []
        for name in self.missing():
            self.attempts[name] += 1
            adds.append(link.add(request(name, attempt=self.attempts[name])))
        asked = asyncio.gather(*adds, return_exceptions=True)
        try:
            async for batch in link.events():
                self.note(batch)
                if not self.missing():
                    break
        except PeerError:
            pass
        assert all(isinstance(one, Admitted | Rejected | PeerError) for one in await asked)

    def note(self, batch) -> None:
        event: Event
        for event in batch:
            assert isinstance(event, TokenGenerated)
            self.got[event.request, event.attempt].append(event.index)


@settings(deadline=None, max_examples=40)
@given(plan=plans, cut=cuts)
def test_tokens_come_once_and_in_order_over_any_connection(plan, cut) -> None:
    cut_at = dict(cut)

    def fault(passing: Passing) -> Fault:
        after_bytes = cut_at.pop(passing.number, None)
        return plan[passing.number % len(plan)] if after_bytes is None else Cut(after_bytes)

    async def run() -> None:
        with TemporaryDirectory() as name:
            folder, worker, client = Path(name), Chatty(), Client()
            async with Door(folder) as door:
                relay = FaultyRelay(folder / "relay.sock", door.path, fault)
                await relay.start()
                async with port(worker, folder / "relay.sock") as serving:
                    lives = 0
                    while client.missing():
                        await client.use(await door.link(lives))
                        lives += 1
                    ran = dict(worker.running)
                    serving.stream.end("the test is over")
                    await until(lambda: not worker.running)
                    assert all(client.attempts[id] == one.attempt for id, one in ran.items())
                    assert not any(serving.lives.left)
                    await asyncio.gather(*worker.talks)
                await relay.close()
                cuts_done = [one for _, one in relay.done if isinstance(one, Cut)]
                assert len(cuts_done) == len(dict(cut)) - len(cut_at)
                assert lives == 1 or cuts_done
        for indices in client.got.values():
            assert indices == list(range(len(indices)))

    asyncio.run(run())
