"""A worker with a real model fetches through its own store what a worker of another host computed:
the same tokens as alone."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pool_kit import free_ports, pool_table
from store_callers import FakeGateway, until
from store_kit import served
from store_worker import BLOCK, prompt, request, said_alone, store_worker, tiny_model

from antiphon.types import Tier

pytestmark = pytest.mark.timeout(120)
BLOCKS = 6


async def test_what_another_hosts_worker_computed_gives_the_same_tokens(folder: Path) -> None:
    tiny_model(folder)
    tokens = prompt(BLOCKS)
    expected = await said_alone(folder, request("alone", tokens))
    one, two = free_ports(2)
    ports = {"a": (one, ("b", two)), "b": (two, ("a", one))}
    async with AsyncExitStack() as until_end:
        gateways, workers = {}, {}
        for name, (port, peer) in ports.items():
            own = folder / name
            own.mkdir(mode=0o700)
            for shared in ("tiny", "cache"):
                (own / shared).symlink_to(folder / shared)
            table = pool_table(name, port, [peer])
            path = await until_end.enter_async_context(served(own, pool=table))
            gateways[name] = await until_end.enter_async_context(FakeGateway(path))
            side = await until_end.enter_async_context(
                store_worker(own, name, fetch_timeout_s=20.0)
            )
            workers[name] = side
            await until(lambda side=side: side.connected)
        assert await workers["a"].ask(request("first", tokens)) == (expected,)
        reached = (Tier.HOST, Tier.PEER)
        await gateways["b"].until(
            lambda: len({key for key, tier in gateways["b"].held if tier in reached}) >= BLOCKS
        )
        asked = request("second", tokens)
        assert await workers["b"].ask(asked, fetch=BLOCKS * BLOCK) == (expected,)
        assert workers["b"].fetched(asked).fetched_tokens == BLOCKS * BLOCK
        for side in workers.values():
            await side.rest()
