"""`antiphon serve`: the supervisor of one server, put together.

take the port ─► sockets of the cluster ─► supervisor ─┬─► gateway process
                                                       ├─► store process
                                                       └─► worker processes, each on its cores
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable

from antiphon.core.config import format_size
from antiphon.core.host_names import format_host_port
from antiphon.core.worker_places import WorkerPlaces
from antiphon.core.worker_spec import (
    most_workers,
    spare_cores,
    with_budget,
    worker_count,
    worker_specs,
)
from antiphon.errors import ConfigError
from antiphon.host import available_bytes
from antiphon.types import STORE, Config

from .listener import listen
from .local_servers import registered
from .network import reach_of
from .socket_folder import check_store_socket
from .supervisor.child_process import command_of
from .supervisor.messages import Ready
from .supervisor.supervisor import GATEWAY, Supervisor, Voice

_GATEWAY_MODULE = "antiphon.live.gateway_process"
WORKER_MODULE = "antiphon.live.worker_process"
STORE_MODULE = "antiphon.live.store_process"
_MODULES = {GATEWAY: _GATEWAY_MODULE, STORE: STORE_MODULE}
"""All other children are workers."""


def serve(
    config: Config,
    *,
    say: Callable[[str], None],
    log: Callable[[str], None],
    announce: Callable[[str], None],
) -> int:
    """Serve until a signal comes; returns the exit code (0: what ran was finished).

    `say` gets lines about the start, `log` what processes write, `announce` what is for the user
    once requests are answered. Raises `UsageError` if the port, a file, the store's socket, the
    model or the memory is not right, `PeerError` if a process can't be started.
    """
    if config.network.join:
        raise ConfigError(
            "network.join is set: the gateway is on another host, so run `antiphon worker` here"
        )
    reach_of(config.network)
    cores = usable_cores(config.engine.cores)
    config = with_budget(config, cores)
    most = most_workers(config)
    specs = worker_specs(config.cluster, cores, most)
    check_store_socket(config.store)
    check_memory(config, available_bytes())
    with listen(config.http) as listener, registered(config.cluster.socket_dir) as entry:
        url = _url(listener)

        def greet(ready: Ready) -> None:
            for line in (*_greeting(url, ready), *_expecting(config)):
                announce(line)

        supervisor = Supervisor(
            config,
            specs,
            listener=listener,
            sockets=str(entry.sockets),
            commands=lambda name: command_of(_MODULES.get(name, WORKER_MODULE), name),
            voice=Voice(say=say, log=log, ready=greet, announce=announce),
            clock=time.monotonic,
        )
        supervisor.let_grow(
            WorkerPlaces(
                spare_cores(config.cluster, cores, most), each_bytes=config.kv.memory_bytes
            ),
            available_bytes,
        )
        entry.publish(url)
        return asyncio.run(supervisor.run())


def check_memory(config: Config, available: int) -> None:
    """Refuse what the workers and the store together can't get. Each alone would look before
    another has taken its part, and the system would kill one of them then."""
    workers, each = worker_count(config.cluster), config.kv.memory_bytes
    own_store = config.store.enabled and config.store.socket is None
    store = config.store.memory_bytes if own_store else 0
    if (workers == 1 and not store) or workers * each + store <= available:
        return
    check_store_memory(store, available, ", or have no store (--store off)")
    if not workers:
        return
    room = (available - store) // workers // 2**20
    whose = f"for each of {workers} workers" if workers > 1 else "for a worker"
    beside = f" beside store.memory_bytes = {format_size(store)}" if store else ""
    remedy = " or the store's (--store-memory), have no store (--store off)" if store else ""
    fewer = ", or start fewer workers" if workers > 1 else ""
    raise ConfigError(
        f"kv.memory_bytes = {format_size(each)} is {whose}{beside}, in all "
        f"{format_size(workers * each + store)}, but this machine (or its container) has only "
        f"{available / 2**30:.1f}GiB free: lower kv.memory_bytes (--kv-memory) to "
        f"{room}MiB or less{remedy}{fewer}"
    )


def check_store_memory(store: int, available: int, other_remedy: str = "") -> None:
    """Refuse a store that alone is more than can be had."""
    if store >= available:
        raise ConfigError(
            f"store.memory_bytes = {format_size(store)} is more than this machine (or its "
            f"container) has free, {available / 2**30:.1f}GiB: lower it (--store-memory)"
            f"{other_remedy}"
        )


def usable_cores(wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The cores that the workers share; empty where threads can't be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        if wanted:
            raise ConfigError("engine.cores: this operating system can't pin a thread to cores")
        return ()
    allowed = sorted(os.sched_getaffinity(0))
    for core in wanted:
        if core not in allowed:
            listed = ",".join(map(str, allowed))
            raise ConfigError(f"engine.cores: core {core} is not one of {listed}")
    return wanted or tuple(allowed)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _expecting(config: Config) -> list[str]:
    """Who is still to come from other hosts, and how."""
    network = config.network
    if not network.expected:
        return []
    where = ", ".join(format_host_port(address, network.port) for address in network.addresses)
    return [
        f"Workers of other hosts join at {where}: {', '.join(network.expected)}",
        "Start them there: antiphon worker cluster.toml --keys FOLDER",
    ]


def _greeting(url: str, ready: Ready) -> list[str]:
    key = " -H 'Authorization: Bearer KEY'" if ready.needs_key else ""
    return [
        f"Antiphon serves {ready.serves} on {url}",
        "Try it:",
        f"  curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d "
        f"""'{{"model": "{ready.serves}", "temperature": 0, "messages": """
        """[{"role": "user", "content": "What is the capital of France?"}]}'""",
        f"Docs: {url}/docs (the API), docs/guides/quickstart.md (all else)",
    ]
