"""Whatever becomes of a connection: tokens once, in order, and no request outlives its life."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from chatty_kit import Chatty, Client
from hypothesis import given, settings
from hypothesis import strategies as st
from link_kit import Door, port, until, worker_info

from antiphon.testing.faulty_relay import Cut, Delay, Fault, FaultyRelay, Pass, Passing

pytestmark = pytest.mark.timeout(120)

faults = st.one_of(
    st.just(Pass()),
    st.builds(Pass, piece_bytes=st.integers(1, 40)),
    st.builds(Delay, st.sampled_from((0.0, 0.002))),
)
plans = st.lists(faults, min_size=1, max_size=6)
cuts = st.lists(st.tuples(st.integers(2, 60), st.integers(0, 120)), max_size=4)


@settings(deadline=None, max_examples=40)
@given(plan=plans, cut=cuts)
def test_tokens_come_once_and_in_order_over_any_connection(plan, cut) -> None:
    cut_at = dict(cut)

    def fault(passing: Passing) -> Fault:
        after_bytes = cut_at.pop(passing.number, None)
        return plan[passing.number % len(plan)] if after_bytes is None else Cut(after_bytes)

    async def run() -> None:
        with TemporaryDirectory() as name:
            folder, worker, client = Path(name), Chatty(worker_info()), Client()
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
        client.check()

    asyncio.run(run())
