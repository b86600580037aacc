"""A worker's process: loads a model's engine, joins the gateway, and computes until it is stopped.

Started by the supervisor (`child_process.command_of`).
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from antiphon import __version__
from antiphon.adapters import nixl_agent
from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.host_names import parse_host_port, worker_on
from antiphon.core.recorded_run import Setup
from antiphon.core.worker_spec import most_workers, worker_specs
from antiphon.engine import use_cores
from antiphon.types import (
    BlockKey,
    Config,
    HostPort,
    Incarnation,
    Seconds,
    Tier,
    WorkerId,
    WorkerInfo,
)

from .decision_log import DecisionLog, opened_log
from .kv_followers import followed
from .kv_journal import KvJournal
from .loaded_engine import LoadedEngine, load_engine
from .loop_guard import guard_loop
from .network import Address, WorkerDoor, reach_of, worker_door
from .shared_kv import SharedKv
from .socket_folder import gateway_socket
from .supervisor.messages import Alive, Drain, Drained, Launch, Ready, Stop, ToRunning
from .supervisor.parent import Parent, run_child
from .worker import Worker
from .worker_port import WorkerPort


def work(parent: Parent) -> int:
    """Be the worker that the parent's launch describes; returns the exit code."""
    launch, config = parent.launch, parent.config
    use_cores(launch.cores)
    door = _door(config, launch.name)
    with opened_log(config.log.decisions, launch.name, launch.life) as log:
        parent.say(f"Opening {config.model.name}")
        checkpoint = open_checkpoint(resolve(config.model.name))
        shares_kv = most_workers(config) > 1 or config.store.enabled or door is not None
        loaded = load_engine(
            checkpoint,
            config,
            parent.say,
            shares_kv=shares_kv,
            number=_number(config, launch.name),
        )
        if log is not None:
            log.begin(_setup(parent, loaded, _name(launch, door)))
        return uvloop.run(serve_worker(parent, loaded, log and DecisionLog(log), door))


class _Orders:
    """What the parent has said so far."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.drain = asyncio.Event()
        self.drain_timeout_s = 0.0

    def told(self, message: ToRunning) -> None:
        """The newest word."""
        match message:
            case Stop():
                self.stop.set()
            case Drain(timeout_s=timeout_s):
                self.drain_timeout_s = timeout_s
                self.drain.set()
            case _:
                pass


async def serve_worker(
    parent: Parent,
    loaded: LoadedEngine,
    log: DecisionLog | None,
    door: WorkerDoor | None = None,
) -> int:
    """Join, serve and join anew until told to stop, or until the engine is beyond help.

    `door`: where workers of other hosts reach this one, if any can.
    """
    orders = _Orders()
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    guard_loop(partial(_break, broken))
    parent.listen(orders.told)
    async with contextlib.AsyncExitStack() as until_end:
        if loaded.commit is not None:
            until_end.callback(loaded.commit.stop)
        name = WorkerId(parent.launch.name)
        until_end.enter_context(followed(parent.config, name, loaded.heard))
        kv, renewed = None, list[Callable[[], None]]()
        if loaded.region is not None:
            kv = SharedKv(
                loaded.region,
                loaded.heard,
                lambda: worker.info,
                config=parent.config,
                folder=Path(parent.launch.sockets),
                layers=loaded.layers,
                door=door,
            )
            until_end.push_async_callback(kv.close)
            renewed.append(kv.new_life)
        worker = Worker(
            _info(parent, loaded, door),
            loaded.scheduler,
            loaded.engine,
            clock=time.monotonic,
            log_decision=log,
            exchange=kv.exchange if kv is not None else None,
        )
        await until_end.enter_async_context(worker)
        if kv is not None:
            await until_end.enter_async_context(kv.open(worker.leases))
        if loaded.commit is not None:
            loaded.commit.done.add_done_callback(
                partial(_committed, asyncio.get_running_loop(), broken)
            )
        journal = _journal(loaded)
        settled = kv.settled if kv is not None else None
        gateway = _gateway(parent.launch, door)
        port = _port(parent, worker, gateway, renewed, journal)
        await _join_and_serve(parent, worker, port, settled, orders, broken)
        return 0 if worker.healthy else 1


def _committed(
    loop: asyncio.AbstractEventLoop, broken: asyncio.Future[None], commit: Future[None]
) -> None:
    """KV memory that the system does not have ends the worker: not a step that needs it."""
    if (error := commit.exception()) is not None:
        loop.call_soon_threadsafe(_break, broken, error)


def _break(broken: asyncio.Future[None], error: BaseException) -> None:
    """The first broken law counts."""
    if not broken.done():
        broken.set_exception(error)


def _port(
    parent: Parent,
    worker: Worker,
    gateway: Address,
    renewed: Sequence[Callable[[], None]],
    journal: KvJournal,
) -> WorkerPort:
    """`renewed` are called at each new life of the worker: what others were told is over. The
    gateway hears what `journal` notes."""

    async def new_life() -> None:
        await worker.new_life(Incarnation(secrets.token_hex(8)))
        for begin_anew in renewed:
            begin_anew()

    return WorkerPort(
        worker,
        gateway,
        new_life=new_life,
        clock=time.monotonic,
        on_joined=lambda: parent.tell(Ready()),
        journal=journal,
    )


async def _join_and_serve(
    parent: Parent,
    worker: Worker,
    port: WorkerPort,
    settled: Callable[[], Awaitable[None]] | None,
    orders: _Orders,
    broken: asyncio.Future[None],
) -> None:
    """Until told to stop, or the engine is beyond help. Raises what `broken` was given.

    The gateway is joined once `settled` returns: the first request may need the store.
    """

    async def leave() -> None:
        await orders.drain.wait()
        await port.leave(orders.drain_timeout_s)
        parent.tell(Drained())
        await orders.stop.wait()

    async def serve() -> None:
        if settled is not None:
            await settled()
        await port.run()

    beat_s = parent.config.cluster.heartbeat_s
    serving = asyncio.create_task(serve())
    ends: tuple[asyncio.Future[Any], ...] = (
        broken,
        serving,
        asyncio.create_task(orders.stop.wait()),
        asyncio.create_task(leave()),
        asyncio.create_task(_until_unhealthy(worker, parent, beat_s)),
    )
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in ends:
        if not task.done():
            task.cancel()
    await asyncio.wait(ends)
    for end in (broken, serving):
        if not end.cancelled():
            end.result()


def _journal(loaded: LoadedEngine) -> KvJournal:
    """Notes from now on what the prefix cache has, for the gateway."""

    def held() -> list[tuple[BlockKey, Tier]]:
        return [(key, Tier.DEVICE) for key in loaded.scheduler.named_blocks()]

    journal = KvJournal(held)
    loaded.heard.add(journal.heard)
    return journal


async def _until_unhealthy(worker: Worker, parent: Parent, beat_s: Seconds) -> None:
    """An engine that fails over and over is given up: the supervisor starts another process. It is
    told that this one runs: where there is no gateway nobody else would see that it does not."""
    while worker.healthy:
        if parent.config.network.join:
            parent.tell_if_read(Alive())
        await asyncio.sleep(beat_s)


def _door(config: Config, name: str) -> WorkerDoor | None:
    """Bound before anything slow begins. Raises `UsageError`: its keys or a port will not do, or
    NIXL is not there."""
    reach = reach_of(config.network)
    if reach is None:
        return None
    if config.network.kv_transport == "nixl":
        nixl_agent.library()
    return worker_door(reach, _number(config, name))


def _number(config: Config, name: str) -> int:
    """Which of this host's workers it is; those that come later are behind all others."""
    names = [spec.id for spec in worker_specs(config.cluster, ())]
    return names.index(WorkerId(name)) if name in names else len(names)


def _name(launch: Launch, door: WorkerDoor | None) -> WorkerId:
    """What the gateway calls it: with its host, unless that is the gateway's own."""
    if door is None or not door.reach.network.join:
        return WorkerId(launch.name)
    return worker_on(door.reach.host, launch.name)


def _gateway(launch: Launch, door: WorkerDoor | None) -> Address:
    if door is None or not door.reach.network.join:
        return gateway_socket(Path(launch.sockets))
    return door.reach.gateway()


def _info(parent: Parent, loaded: LoadedEngine, door: WorkerDoor | None) -> WorkerInfo:
    launch = parent.launch
    return WorkerInfo(
        id=_name(launch, door),
        incarnation=Incarnation(secrets.token_hex(8)),
        model=loaded.info,
        max_model_len=loaded.max_model_len,
        role=launch.role,
        kv=loaded.region.shape if loaded.region is not None else None,
        pid=os.getpid(),
        cores=launch.cores,
        at=None if door is None else door.at,
        store=None if door is None else _host_store(parent.config, door),
    )


def _host_store(config: Config, door: WorkerDoor) -> HostPort | None:
    """Where the gateway watches the store of this host; None: it is beside it, or there is none."""
    listen = config.store_pool.listen
    if not config.network.join or not config.store.enabled or listen is None:
        return None
    where = parse_host_port(listen)
    return None if where is None else door.reach.own(where[1])


def _setup(parent: Parent, loaded: LoadedEngine, worker: WorkerId) -> Setup:
    return Setup(
        program=__version__,
        config=parent.config,
        pages=loaded.scheduler.view(0.0).total_pages,
        model=loaded.info,
        max_model_len=loaded.max_model_len,
        worker=worker,
    )


if __name__ == "__main__":
    run_child(work)
