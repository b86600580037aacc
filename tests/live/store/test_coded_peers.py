"""What a store is ready to encode for its peers, and what it keeps of those it knows no more."""

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from encoded_kit import SHAPE, profile_file
from store_callers import IDENTITY

from antiphon.core.config import build
from antiphon.core.store_joining import Tenancy
from antiphon.core.store_pool.peer_address import MOST_PEERS, PeerAddress
from antiphon.live.store.pool import block_coder
from antiphon.live.store.pool.block_coder import Coding
from antiphon.live.store.pool.coded_blocks import CodedBlocks
from antiphon.live.store.pool.known_peers import Said
from antiphon.live.store.pool.pool_member import PoolMember
from antiphon.live.store.pool.whereabouts import Whereabouts
from antiphon.store.codec import read_kv_profile
from antiphon.types import PoolWelcome, StoreName

PLAIN, ENTROPY = {"lossless", "int8", "int4"}, {f"entropy-{number}" for number in range(1, 6)}


@pytest.mark.parametrize("level", ["lossless", "int8", "int4", "entropy-2", "adaptive", "raw"])
@pytest.mark.parametrize("profiled", [False, True])
def test_all_that_a_peer_may_ask_for_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, profiled: bool
) -> None:
    """A peer that is set otherwise asks for its own level."""
    if level == "entropy-2" and not profiled:
        pytest.skip("there is no such store")
    profile = read_kv_profile(profile_file(tmp_path)) if profiled else None
    coding = Coding(level, profile)
    encoded: set[str] = set()

    def encode(block: object, level: Any, **_: object) -> None:
        encoded.add(level.name)

    monkeypatch.setattr(block_coder, "encode", encode)
    coding.warm_up()
    assert encoded == (set() if level == "raw" else {one.name for one in coding.levels()})
    if level != "raw":
        assert encoded >= PLAIN
        assert bool(encoded & ENTROPY) == profiled


def welcome_of(name: StoreName) -> PoolWelcome:
    said: Any = dict.fromkeys(("incarnation", "blocks", "kv", "data", "known"))
    return PoolWelcome(name=name, level="raw", **said)


def kept(coded: CodedBlocks) -> int:
    tables = (*vars(coded.book).values(), coded._told)
    return sum(len(one) for one in tables if isinstance(one, dict))


async def test_a_peer_that_made_room_for_another_leaves_nothing() -> None:
    """However many names come, one after another."""
    config = build({"store_pool": {"level": "int8", "listen": "127.0.0.1:1", "name": "a"}})
    address = PeerAddress(StoreName("a"), "127.0.0.1", 1)
    where = Whereabouts(
        address, (), sealed=False, here=True, dial=cast("Any", None), coding=Coding("int8")
    )

    def spawn(work: Any) -> "asyncio.Task[None]":
        work.close()
        return asyncio.create_task(asyncio.sleep(0))

    tenancy = Tenancy(IDENTITY, SHAPE)
    member = PoolMember(
        tenancy, config, where, note=lambda _: None, spawn=spawn, clock=time.monotonic
    )
    coded, sources = member._coded, member.pool.sources
    before = kept(coded)
    for number in range(3 * MOST_PEERS):
        name = StoreName(f"p{number}")
        member._known.hear_of(f"{name}@127.0.0.1:2", Said.BY_OTHERS)
        coded.meets(welcome_of(name))
        sources.asked(name, 1)
        sources.failed(name, 1, 0.0)
    assert len(member._known.links) == MOST_PEERS
    assert kept(coded) == before + 2 * MOST_PEERS
    assert len(sources._peers) == MOST_PEERS
    await member.close()
