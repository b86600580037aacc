"""A gateway passes on how long blocks take from other stores, when that has changed, on record."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from answering_store import STATS, AnsweringStore
from link_kit import running, until

from antiphon.core.config import build
from antiphon.core.recorded_run import router_of
from antiphon.core.recorder import Entry
from antiphon.live import watched_store
from antiphon.live.gateway_kv import GatewayKv
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.perf import read_times
from antiphon.testing.strategies import MODEL
from antiphon.types import STORE, StoreAnswer, StoreAsk, Tier, TierStats

BLOCK_TOKENS = 64
CONFIG = build({"store": {"enabled": True}, "kv": {"block_tokens": BLOCK_TOKENS}})
PEERS = TierStats(tier=Tier.PEER, blocks=9, used_bytes=0, limit_bytes=0)


class Saying:
    """A store's answers: a block comes from a peer in `block_s`."""

    def __init__(self) -> None:
        self.block_s: float | None = None
        self.asked = 0

    def __call__(self, ask: StoreAsk) -> StoreAnswer:
        self.asked += 1
        other = [replace(one, block_s=7.0) for one in STATS if one.tier is not Tier.PEER]
        return StoreAnswer(stats=(*other, replace(PEERS, block_s=self.block_s)))

    async def look(self) -> None:
        """Return when what is said now was heard."""
        before = self.asked
        await until(lambda: self.asked >= before + 2)


@asynccontextmanager
async def gateway(folder: Path, log: Callable[[Entry], None]) -> AsyncIterator[GatewayKv]:
    router = router_of(CONFIG, MODEL, read_times("", step_tokens=512))
    kv = GatewayKv(router, CONFIG, folder, clock=time.monotonic, log_decision=log)
    async with running(kv.watch()):
        yield kv


async def test_the_router_hears_of_it_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_store, "STATS_EVERY_S", 0.01)
    folder, entries, saying = tmp_path / "sockets", list[Entry](), Saying()
    folder.mkdir(mode=0o700)

    def heard() -> list[object]:
        facts = [dict(entry.facts) for entry in entries if entry.method == "heard_peer_time"]
        assert {one["store"] for one in facts} <= {STORE}
        return [one["token_s"] for one in facts]

    async with gateway(folder, entries.append) as kv:
        async with AnsweringStore(folder / STORE_SOCKET, answer=saying):
            await until(lambda: bool(kv.store_present))
            said = ((None, 0), (0.64, 1), (0.65, 1), (0.32, 2), (0.0, 3), (0.0, 3), (None, 4))
            for block_s, times in (*said, (None, 4), (0.32, 5)):
                saying.block_s = block_s
                await saying.look()
                assert len(heard()) == times, block_s
            assert heard() == [0.01, 0.005, 0.0, None, 0.005]
        await until(lambda: not kv.store_present)
        assert entries[-1].method == "kv_holder_left"
        async with AnsweringStore(folder / STORE_SOCKET, answer=saying):
            await until(lambda: len(heard()) == 6)
