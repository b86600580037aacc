"""`antiphon worker`: workers of this host for a gateway on another one, and their store, put
together."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from antiphon.core.host_names import store_on, worker_on
from antiphon.core.worker_spec import WorkerSpec, worker_specs
from antiphon.errors import ConfigError
from antiphon.host import available_bytes
from antiphon.types import STORE, Config, HostName, Seconds
from antiphon.wire import FrameStream

from .local_servers import registered
from .network import TlsAddress, dial, reach_of
from .serve import STORE_MODULE, WORKER_MODULE, check_memory, usable_cores
from .socket_folder import check_store_socket
from .supervisor.child_process import command_of
from .supervisor.host_workers import HostWorkers
from .supervisor.supervisor import Voice

MEET_TIMEOUT_S: Seconds = 5.0


def join(
    config: Config,
    *,
    say: Callable[[str], None],
    log: Callable[[str], None],
    announce: Callable[[str], None],
) -> int:
    """Work for the gateway of `config.network.join` until a signal comes; returns the exit code.

    Raises `UsageError` if keys, model, memory or a port are not right, or the gateway refuses;
    `PeerError` if a process can't be started.
    """
    reach = reach_of(config.network)
    if reach is None or not config.network.join:
        raise ConfigError(
            "network.join is not set: say which gateway to join (--join), and with which keys "
            "(--keys)"
        )
    cores = usable_cores(config.engine.cores)
    specs = worker_specs(config.cluster, cores)
    if not specs:
        raise ConfigError(
            f"host {reach.host} has no workers: give it prefill, decode or mixed ones, or run its "
            f"store alone (antiphon store)"
        )
    check_store_socket(config.store)
    check_memory(config, available_bytes())
    asyncio.run(_meet(reach.gateway()))
    say(f"Host {reach.host}: {', '.join(_names(config, reach.host, specs))}")
    with registered(config.cluster.socket_dir) as entry:
        workers = HostWorkers(
            config,
            specs,
            sockets=str(entry.sockets),
            command=lambda name: command_of(STORE_MODULE if name == STORE else WORKER_MODULE, name),
            voice=Voice(say=say, log=log, ready=lambda _: None, announce=announce),
            clock=time.monotonic,
        )
        return asyncio.run(workers.run())


async def _meet(gateway: TlsAddress) -> None:
    """Whoever answers there is the gateway: nobody loads a model to find out that it is not.

    Raises `UsageError`. A gateway that is not there yet is joined later.
    """
    stream = FrameStream({}, clock=time.monotonic)
    with contextlib.suppress(OSError):
        await dial(stream, gateway, MEET_TIMEOUT_S)
    stream.end("that was all")


def _names(config: Config, host: HostName, specs: Sequence[WorkerSpec]) -> Iterator[str]:
    """Those of what runs here, as the gateway has them."""
    yield from (worker_on(host, spec.id) for spec in specs)
    if config.store.enabled:
        yield store_on(host)
