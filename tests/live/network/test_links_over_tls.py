"""Whatever becomes of connections between hosts: tokens once, in order, none of them garbled."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from byte_relay import ByteRelay, Mishap
from chatty_kit import Chatty, Client
from hypothesis import given, settings
from hypothesis import strategies as st
from link_kit import port, until
from network_kit import address_of, gateway_on_tls, host_worker, keys_of, make_keys

pytestmark = pytest.mark.timeout(240)
mishaps = st.builds(Mishap, st.integers(0, 9000), st.booleans(), st.booleans())


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "keys"
    make_keys(folder, "box1", "box2")
    return folder


@settings(deadline=None, max_examples=25)
@given(plan=st.lists(mishaps, max_size=4))
def test_tokens_come_once_and_in_order_over_any_network(keys: Path, plan: list[Mishap]) -> None:
    async def run() -> None:
        worker, client = Chatty(host_worker()), Client()
        with TemporaryDirectory() as name:
            async with (
                gateway_on_tls(Path(name), keys_of(keys, "box1")) as (door, number),
                ByteRelay(number, iter(plan)) as relay,
                port(worker, address_of(relay.port, keys_of(keys, "box2"))) as serving,
            ):
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
                assert lives == 1 or relay.done
        client.check()

    asyncio.run(run())
