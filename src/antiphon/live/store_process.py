"""The store's process: keeps blocks of KV for workers that come and go. It loads no torch.

Started by the supervisor (`child_process.command_of`), or by `antiphon store`, which runs it in the
foreground.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from antiphon.adapters.redis_tier import RedisValues, RemoteLogin
from antiphon.host import give_back_freed_memory
from antiphon.store.disk import PrivateFolder
from antiphon.store.record.record_seal import RecordSeal
from antiphon.store.remote_values import RemoteValues
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.store.transfer.tcp.warm_up import warm_up_owner, warm_up_taker
from antiphon.types import Config, EngineConfig, KvShape, Seconds, StoreConfig

from .cache_folder import cache_folder
from .loop_guard import guard_loop
from .socket_folder import STORE_SOCKET, private_folder
from .store.at_rest_key import read_at_rest_key
from .store.kv_store import KvStore
from .store.pool.opened_pool import OpenedPool, opened_pool
from .store.port import StorePort
from .supervisor.messages import Alive, Ready, Stop, ToRunning
from .supervisor.parent import Parent, run_child

HAND_OVER_S: Seconds = 3.0
"""How long the others of its pool may take for what only a store that leaves has."""
_SMALL = KvShape(layout="none", page_tokens=1, block_tokens=1, page_bytes=1024, pages=1)


@dataclass(frozen=True, slots=True)
class SlowerTiers:
    """The folder of the disk tier, locked, the system of the remote one, and what seals records
    for both; None: there is to be none."""

    folder: PrivateFolder | None
    remote: RemoteValues | None
    seal: RecordSeal | None = None


def store(parent: Parent) -> int:
    """Be the store of the parent's configuration; returns the exit code."""
    config = parent.config
    slower = slower_tiers(config)
    warm_up(pooled=config.store_pool.listen is not None)
    path = Path(parent.launch.sockets) / STORE_SOCKET

    async def run() -> int:
        stop = asyncio.Event()

        def told(message: ToRunning) -> None:
            if isinstance(message, Stop):
                stop.set()

        parent.listen(told)
        living = asyncio.create_task(_say_that_it_lives(parent))
        try:
            await serve_store(config, path, slower, stop, on_ready=lambda: parent.tell(Ready()))
        finally:
            living.cancel()
        return 0

    return uvloop.run(run())


async def _say_that_it_lives(parent: Parent) -> None:
    """Where there is no gateway that would miss it. From `Ready` on it counts."""
    while parent.config.network.join:
        parent.tell_if_read(Alive())
        await asyncio.sleep(parent.config.cluster.heartbeat_s)


def run_store(config: Config, path: Path, *, on_ready: Callable[[], object]) -> None:
    """Be a store of its own, until SIGTERM or Ctrl-C.

    Raises `UsageError`: the disk's folder, the remote's address, or see `serve_store`.
    """
    slower = slower_tiers(config)
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
    warm_up(pooled=config.store_pool.listen is not None)

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve_store(config, path, slower, stop, on_ready=on_ready)

    uvloop.run(run())


async def serve_store(
    config: Config,
    path: Path,
    slower: SlowerTiers,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[], object],
) -> None:
    """Keep blocks, reached at socket `path`, until `stop`. The folder of `slower` is closed then.

    Raises `UsageError` if the socket can't be had, or the place in a pool of stores, and the first
    law that was broken.
    """
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def breaks(error: BaseException) -> None:
        if not broken.done():
            broken.set_exception(error)

    guard_loop(breaks)
    pool, kv_store = await _made(config, slower, breaks)
    port = StorePort(
        path,
        kv_store,
        heartbeat_s=config.cluster.heartbeat_s,
        lost_after_s=config.cluster.lost_after_s,
        clock=time.monotonic,
    )
    stopped = asyncio.create_task(stop.wait())
    try:
        await port.start()
        if pool is not None:
            await pool.port.start(kv_store, kv_store.spawn)
        on_ready()
        await asyncio.wait({stopped, broken}, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            broken.result()
    finally:
        in_order = stopped.done() and not broken.done()
        stopped.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            broken.cancel()
        await port.close()
        if pool is not None:
            if in_order:
                await kv_store.hand_over(HAND_OVER_S)
            await pool.port.close()
        await kv_store.close()


async def _made(
    config: Config, slower: SlowerTiers, broken: Callable[[BaseException], None]
) -> tuple[OpenedPool | None, KvStore]:
    """The place in a pool, and the store; when one can't be had, nothing stays open."""
    pool = None
    try:
        pool = opened_pool(config, clock=time.monotonic)
        return pool, KvStore(
            config,
            slower.folder,
            slower.remote,
            pool.where if pool is not None else None,
            seal=slower.seal,
            broken=broken,
            clock=time.monotonic,
        )
    except BaseException:
        if pool is not None:
            await pool.port.close()
        if slower.folder is not None:
            slower.folder.close()
        raise


def slower_tiers(config: Config) -> SlowerTiers:
    """What the configuration says; the folder is made if it is not there, the system not asked.

    Raises `UsageError` if the folder can't be made, others can enter it, another store has it, or
    the address is none; `ConfigError` if the file of the password or of the key can't be used.
    """
    remote, file = _remote(config.store), config.store.at_rest_key_file
    seal = RecordSeal(read_at_rest_key(Path(file))) if file is not None else None
    return SlowerTiers(_disk_folder(config.store, config.engine), remote, seal)


def _remote(config: StoreConfig) -> RemoteValues | None:
    if config.remote is None:
        return None
    file = config.remote_password_file
    login = RemoteLogin.from_file(Path(file)) if file is not None else None
    return RedisValues(config.remote, login)


def _disk_folder(config: StoreConfig, engine: EngineConfig) -> PrivateFolder | None:
    if not config.disk_bytes:
        return None
    if config.dir is not None:
        return PrivateFolder(private_folder(Path(config.dir), "store.dir (--store-dir)"))
    parent = cache_folder(engine)
    parent.mkdir(parents=True, exist_ok=True)
    return PrivateFolder(private_folder(parent / "kv", "folder of the disk tier"))


def warm_up(*, pooled: bool) -> None:
    """Compile, or load, what copies pages, between hosts too if `pooled`: no worker's hello shall
    wait for it."""
    ours, theirs = OwnedRegion(_SMALL), OwnedRegion(replace(_SMALL, pages=2))
    MappedRegion(theirs.fd, ours).close()
    ours.intact(ours.seal([0])[0])
    if pooled:
        warm_up_owner(ours)
        warm_up_taker(ours)
    ours.close()
    theirs.close()
    give_back_freed_memory()


if __name__ == "__main__":
    run_child(store)
