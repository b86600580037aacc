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


@pytest.mark.parametrize("level", ["raw", "lossless", "int8"])
async def test_what_another_hosts_worker_computed_gives_the_same_tokens(
    folder: Path, level: str
) -> None:
    """But where it came at a lossy level: then it need not, and all that the workers have is named
    after it."""
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
            table = {**pool_table(name, port, [peer]), "level": level}
            path = await until_end.enter_async_context(served(own, pool=table))
            gateways[name] = await until_end.enter_async_context(FakeGateway(path))
            side = await until_end.enter_async_context(
                store_worker(own, name, fetch_timeout_s=20.0, pool={"level": level})
            )
            workers[name] = side
            await until(lambda side=side: side.connected)
        assert await workers["a"].ask(request("first", tokens)) == (expected,)
        reached = (Tier.HOST, Tier.PEER)
        await gateways["b"].until(
            lambda: len({key for key, tier in gateways["b"].held if tier in reached}) >= BLOCKS
        )
        asked = request("second", tokens)
        answer = await workers["b"].ask(asked, fetch=BLOCKS * BLOCK)
        numerics = {side.info.model.numerics for side in workers.values()}
        if level == "int8":
            assert len(answer[0]) == len(expected)
            assert len(numerics) == 1
            assert "+lossy:int8:" in numerics.pop()
        else:
            assert answer == (expected,)
            assert not any("lossy" in one for one in numerics)
        assert workers["b"].fetched(asked).fetched_tokens == BLOCKS * BLOCK
        kv = workers["b"].worker._kv
        assert kv is not None
        assert kv._fetch is not None
        named = workers["b"].loaded.scheduler.named_blocks()
        kept_back = {key for key in named if kv._exact_block(key) is None}
        assert kept_back == set(kv._fetch.lossy), "a new store would take them for exact"
        assert bool(kept_back) == (level == "int8")
        for side in workers.values():
            await side.rest()
