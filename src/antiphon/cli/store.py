"""`antiphon store`: a KV store of its own, which outlives the servers that use it."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.core.host_names import parse_host_port
from antiphon.types import HostName

from . import options
from .progress import tell
from .settings import load


def store(  # noqa: PLR0913  each is an option
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
    store_key_file: options.StoreKeyFile = None,
    pool_listen: Annotated[
        str | None,
        typer.Option(help="Be one of a pool of stores, reached there.", metavar="HOST:PORT"),
    ] = None,
    pool_name: Annotated[
        str | None,
        typer.Option(
            help="What this store is called there.",
            metavar="NAME",
            show_default="its host's name, with keys",
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Another store of the pool; may be repeated.", metavar="NAME@HOST:PORT"),
    ] = None,
    pool_level: options.PoolLevel = None,
    kv_profile: options.KvProfileFile = None,
    keys: Annotated[
        str | None,
        typer.Option(help="Folder of this host's keys (`antiphon cluster keys`).", metavar="DIR"),
    ] = None,
    config: options.ConfigFile = None,
) -> None:
    """Run a KV store by itself, for servers that come and go.

    `antiphon serve` starts a store of its own, which ends with it. One that is started by this
    command keeps what it has in memory while servers are stopped, updated and started again;
    several servers of one model can share it. Name its socket to them. SIGTERM and Ctrl-C end it.

    \b
    antiphon store --socket-dir /run/user/1000/kv --store-memory 8GiB
    antiphon serve smollm2-135m --store /run/user/1000/kv/store.sock

    Stores of several hosts form a pool: what one has, workers beside the others can fetch. A file
    about several hosts says where each is (`store_port`), and the keys which host this is:

    \b
    antiphon store --config cluster.toml --keys /etc/antiphon/box2

    Without keys (`network.keys`) they must be on one host, and of one user: then no port is opened,
    and its number names a socket in the folder of running servers.

    \b
    antiphon store --socket-dir /run/user/1000/a --pool-name a --pool-listen 127.0.0.1:7421
    antiphon store --socket-dir /run/user/1000/b --pool-name b --pool-listen 127.0.0.1:7422 \\
        --peer a@127.0.0.1:7421

    Where the network is slow, blocks can cross it encoded. Levels other than lossless change what
    the model says a little: name the level to the servers too (`store_pool.level`), whose KV then
    has other names, so that nobody takes it for exact.

    \b
    antiphon store --config cluster.toml --keys /etc/antiphon/box2 \\
        --pool-level adaptive --kv-profile smollm2.kvprofile
    """
    given = {
        ("cluster", "socket_dir"): socket_dir,
        ("store", "memory_bytes"): store_memory,
        ("store", "disk_bytes"): store_disk,
        ("store", "dir"): store_dir,
        ("store", "at_rest_key_file"): store_key_file,
        ("store_pool", "listen"): pool_listen,
        ("store_pool", "name"): pool_name,
        ("store_pool", "peers"): peer or None,
        ("store_pool", "level"): pool_level,
        ("store_pool", "profile"): kv_profile,
        ("network", "keys"): keys,
        ("network", "addresses"): _addresses(keys, pool_listen),
    }
    settings = load(config, given, _host(config, keys))

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


def _host(file: Path | None, keys: str | None) -> HostName | None:
    """Which host of the file this is, as its keys say; None: it is about one host, or has none."""
    folder = keys if file is None or keys is not None else load(file).network.keys
    if file is None or folder is None:
        return None
    from antiphon.live.network import read_host_keys

    return read_host_keys(Path(folder)).host


def _addresses(keys: str | None, listen: str | None) -> list[str] | None:
    """At which other hosts reach this one: where its store listens. None: as the file says."""
    where = parse_host_port(listen) if keys is not None and listen is not None else None
    return None if where is None else [where[0]]
