"""Stores of a pool with keys: over TLS, KV encrypted; without a certificate nobody is in."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from link_kit import running
from pool_kit import eventually_all, free_ports, pool_table, right_or_missing
from store_callers import FakeWorker, until
from store_kit import served

from antiphon.errors import ConfigError
from antiphon.live.kv_journal import KvNews
from antiphon.live.network import TlsAddress, read_host_keys, tls_name
from antiphon.live.network.authority import add_host, open_authority
from antiphon.live.watched_store import WatchedStore
from antiphon.types import (
    BlockKey,
    ClusterConfig,
    Incarnation,
    KvDump,
    KvEvents,
    PeerState,
    Tier,
)


def make_keys(folder: Path, *hosts: str) -> None:
    authority, _ = open_authority(folder)
    for host in hosts:
        add_host(folder, authority, host, gateway=host == hosts[0], days=3)


@asynccontextmanager
async def store_on(
    folder: Path, name: str, port: int, peer: tuple[str, int], keys: Path | None
) -> AsyncIterator[FakeWorker]:
    """A worker beside a store of that host."""
    own = folder / f"s-{name}"
    own.mkdir(mode=0o700)
    network = {"keys": str(keys), "addresses": ["127.0.0.1"]} if keys is not None else {}
    table = pool_table(name, port, [peer])
    async with served(own, pool=table, network=network) as path, FakeWorker(path) as worker:
        yield worker


async def test_stores_with_keys_of_one_authority_are_a_pool(folder: Path) -> None:
    make_keys(folder / "keys", "box1", "box2")
    one, two = free_ports(2)
    keys = folder / "keys"
    async with (
        store_on(folder, "box1", one, ("box2", two), keys / "box1") as here,
        store_on(folder, "box2", two, ("box1", one), keys / "box2") as there,
    ):
        await eventually_all(there, await here.put_prompt(blocks=12))


async def test_only_the_gateways_host_watches_a_store(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It hears what is there, and what the store thinks of its pool; a store's host is refused."""
    make_keys(folder / "keys", "box1", "box2")
    one, two = free_ports(2)
    keys = folder / "keys"
    async with (
        store_on(folder, "box1", one, ("box2", two), keys / "box1") as here,
        store_on(folder, "box2", two, ("box1", one), keys / "box2"),
        watched(keys / "box1", "box2", two) as (allowed, held),
        watched(keys / "box2", "box1", one) as (refused, _),
    ):
        prompt = await here.put_prompt(blocks=12)
        await until(lambda: {key for key, _ in held} >= set(prompt))
        await until(lambda: [peer.name for peer in allowed.pool] == ["box1"])
        assert allowed.pool[0].state is PeerState.HERE
        await until(lambda: "host without gateway" in caplog.text)
        assert not refused.present


@asynccontextmanager
async def watched(
    keys: Path, host: str, port: int
) -> AsyncIterator[tuple[WatchedStore, set[tuple[BlockKey, Tier]]]]:
    """The store of that host, as whoever has these keys watches it, and what it has said."""
    held: set[tuple[BlockKey, Tier]] = set()

    def news(life: Incarnation, said: KvNews) -> None:
        match said:
            case KvDump():
                held.update(said.blocks)
            case KvEvents():
                held.update((change.key, change.tier) for change in said.changes if change.stored)

    address = TlsAddress((("127.0.0.1", port),), tls_name(host), read_host_keys(keys).client())
    store = WatchedStore(
        address,
        Incarnation("g"),
        ClusterConfig(),
        on_news=news,
        on_left=lambda: None,
        clock=time.monotonic,
    )
    async with running(store.run()):
        yield store, held


@pytest.mark.parametrize("stranger", ["plain", "foreign", "other name"])
async def test_who_has_no_such_certificate_reads_nothing(
    folder: Path, stranger: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_keys(folder / "keys", "box1", "box3")
    make_keys(folder / "others", "box2")
    keys = {"plain": None, "foreign": folder / "others/box2", "other name": folder / "keys/box3"}
    name = "box3" if stranger == "other name" else "box2"
    one, two = free_ports(2)
    async with (
        store_on(folder, "box1", one, ("box2", two), folder / "keys/box1") as here,
        store_on(folder, name, two, ("box1", one), keys[stranger]) as there,
    ):
        if stranger == "other name":  # box1 was told that box2 is there: it is not, but box3 is
            await eventually_all(there, await here.put_prompt(blocks=4))
            return
        prompt = await here.put_prompt(blocks=4)
        await until(lambda: "box1" in caplog.text)
        assert right_or_missing(prompt, await there.fetch(prompt, wait_s=0.5)) == 0


async def test_other_hosts_are_not_listened_to_without_keys(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"network\.keys"):
        async with served(folder, pool={"name": "a", "listen": "0.0.0.0:7420"}):
            pass
