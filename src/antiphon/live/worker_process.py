"""A worker's process: loads a model's engine, joins the gateway, and computes until it is stopped.

Started by the supervisor as `python -P -m antiphon.live.worker_process NAME`.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from antiphon import __version__
from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.recorded_run import Setup
from antiphon.engine import use_cores
from antiphon.store.transfer import OwnedRegion
from antiphon.types import Incarnation, WorkerId, WorkerInfo

from .decision_log import DecisionLog, opened_log
from .kv_exchange import KvExchange
from .loaded_engine import LoadedEngine, load_engine
from .peer_port import PeerPort
from .socket_folder import data_socket, gateway_socket
from .supervisor.messages import Children, Drain, Ready, Stop
from .supervisor.parent import Parent, run_child
from .worker import Worker
from .worker_port import WorkerPort


def work(parent: Parent) -> int:
    """Be the worker that the parent's launch describes; returns the exit code."""
    launch, config = parent.launch, parent.config
    use_cores(launch.cores)
    with opened_log(config.log.decisions, launch.name, launch.life) as log:
        parent.say(f"Opening {config.model.name}")
        checkpoint = open_checkpoint(resolve(config.model.name))
        loaded = load_engine(checkpoint, config, parent.say, shares_kv=True)
        if log is not None:
            log.begin(_setup(parent, loaded))
        return uvloop.run(_serve(parent, loaded, log and DecisionLog(log)))


async def _serve(parent: Parent, loaded: LoadedEngine, log: DecisionLog | None) -> int:
    """Join, serve and join anew until told to stop, or until the engine is beyond help."""
    stop = asyncio.Event()

    def told(message: Drain | Stop | Children) -> None:
        if isinstance(message, Stop):
            stop.set()

    parent.listen(told)
    folder = Path(parent.launch.sockets)
    info = _info(parent, loaded)
    exchange = None
    if loaded.region is not None:
        exchange = KvExchange(
            loaded.region,
            folder,
            taker=lambda: worker.info,
            lease_ttl_s=parent.config.cluster.lease_ttl_s,
            clock=time.monotonic,
        )
    async with (
        Worker(
            info,
            loaded.scheduler,
            loaded.engine,
            clock=time.monotonic,
            exchange=exchange,
            log_decision=log,
        ) as worker,
        _offering(worker, loaded.region, folder),
    ):
        port = WorkerPort(
            worker,
            gateway_socket(folder),
            new_life=worker.new_life,
            clock=time.monotonic,
            on_joined=lambda: parent.tell(Ready()),
        )
        serving = asyncio.create_task(port.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, stopping):
            if not task.done():
                task.cancel()
        await asyncio.wait((serving, stopping))
        if not serving.cancelled():
            serving.result()
    return 0


@contextlib.asynccontextmanager
async def _offering(
    worker: Worker, region: OwnedRegion | None, folder: Path
) -> AsyncIterator[None]:
    """While it lasts, other workers reach this one's leases and memory."""
    if region is None:
        yield
        return
    port = PeerPort(
        data_socket(folder, worker.info.id),
        owner=lambda: worker.info,
        descriptor=region.fd,
        leases=worker,
        clock=time.monotonic,
    )
    await port.start()
    try:
        yield
    finally:
        await port.close()


def _info(parent: Parent, loaded: LoadedEngine) -> WorkerInfo:
    launch = parent.launch
    return WorkerInfo(
        id=WorkerId(launch.name),
        incarnation=Incarnation(secrets.token_hex(8)),
        model=loaded.info,
        max_model_len=loaded.max_model_len,
        role=launch.role,
        kv=loaded.region.shape if loaded.region is not None else None,
        pid=os.getpid(),
        cores=launch.cores,
    )


def _setup(parent: Parent, loaded: LoadedEngine) -> Setup:
    return Setup(
        program=__version__,
        config=parent.config,
        pages=loaded.scheduler.view(0.0).total_pages,
        model=loaded.info,
        max_model_len=loaded.max_model_len,
        worker=WorkerId(parent.launch.name),
    )


if __name__ == "__main__":
    run_child(work)
