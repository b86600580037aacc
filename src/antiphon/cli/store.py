"""`antiphon store`: a KV store of its own, which outlives the servers that use it."""

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .progress import tell
from .settings import load


def store(
    socket_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder for its socket, store.sock; private to you.",
            metavar="FOLDER",
            show_default="antiphon-store in the folder of running servers",
        ),
    ] = None,
    store_memory: options.StoreMemory = None,
    store_disk: options.StoreDisk = None,
    store_dir: options.StoreDir = None,
    config: options.ConfigFile = None,
) -> None:
    """Run a KV store by itself, for servers that come and go.

    `antiphon serve` starts a store of its own, which ends with it. One that is started by this
    command keeps what it has in memory while servers are stopped, updated and started again;
    several servers of one model can share it. Name its socket to them. SIGTERM and Ctrl-C end it.

    \b
    antiphon store --socket-dir /run/user/1000/kv --store-memory 8GiB
    antiphon serve smollm2-135m --store /run/user/1000/kv/store.sock
    """
    given = {
        ("cluster", "socket_dir"): socket_dir,
        ("store", "memory_bytes"): store_memory,
        ("store", "disk_bytes"): store_disk,
        ("store", "dir"): store_dir,
    }
    settings = load(config, given)

    from antiphon.host import available_bytes
    from antiphon.live.local_servers import runtime_folder
    from antiphon.live.serve import check_store_memory
    from antiphon.live.socket_folder import STORE_SOCKET, private_folder
    from antiphon.live.store_process import run_store

    check_store_memory(settings.store.memory_bytes, available_bytes())
    chosen = settings.cluster.socket_dir
    folder = private_folder(Path(chosen) if chosen else runtime_folder() / "antiphon-store")
    path = folder / STORE_SOCKET
    run_store(settings, path, on_ready=lambda: tell(f"The store is reached at {path}"))
