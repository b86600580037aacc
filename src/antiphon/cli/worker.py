"""`antiphon worker`: workers on this host for a gateway on another one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.errors import UsageError
from antiphon.types import Config

from . import options
from .progress import Progress, tell
from .serve_options import Store, check_store_options
from .settings import engine_options, file_or_model, load

_ClusterOrModel: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help="The cluster's file (.toml), as the gateway has it; or the model, with --join.",
        show_default="smollm2-135m",
    ),
]
_Join: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="HOST:PORT of the gateway; again for each path to it. From the file, if given.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
_Addresses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="An address of this host that other hosts reach; again for each. From the file.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
_Prefill: TypeAlias = Annotated[
    int | None, typer.Option(help="Workers that compute prompts.", metavar="N")
]
_Decode: TypeAlias = Annotated[
    int | None, typer.Option(help="Workers that generate from them.", metavar="N")
]
_Mixed: TypeAlias = Annotated[int | None, typer.Option(help="Workers that do both.", metavar="N")]


def worker(
    model: _ClusterOrModel = None,
    join: _Join = None,
    keys: options.Keys = None,
    address: _Addresses = None,
    prefill: _Prefill = None,
    decode: _Decode = None,
    mixed: _Mixed = None,
    quantize: options.EngineQuantize = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    kv_memory: options.KvMemory = None,
    page_tokens: options.PageTokens = None,
    kv_dtype: options.KvDtype = None,
    cores: options.Cores = None,
    device: options.Device = None,
    store: Store = None,
    store_memory: options.StoreMemory = None,
    store_disk: options.StoreDisk = None,
    store_dir: options.StoreDir = None,
    store_key_file: options.StoreKeyFile = None,
    pool_listen: options.PoolListen = None,
    peer: options.Peer = None,
    config: options.ConfigFile = None,
) -> None:
    """Run workers on this host for a gateway on another host.

    The gateway takes in who shows a certificate of its cluster, and has the same model and the same
    pages of KV; else it says why, and this exits with 2. When the connection breaks, workers join
    again by themselves. SIGTERM and Ctrl-C: the gateway gives them nothing new, what they have
    finishes, or goes on elsewhere, and this exits with 0; the second signal stops at once.

    A KV store runs beside the workers if the host has a place in the cluster's pool of stores: a
    `store_port` in the file, or --pool-listen. They use it, and what other hosts have through it.

    \b
    antiphon worker cluster.toml --keys /etc/antiphon/box2
    antiphon worker --join 10.0.0.1:7400 --keys box2 --address 10.0.0.2 smollm2-135m --decode 1
    antiphon worker … --pool-listen 10.0.0.2:7420 --peer box1@10.0.0.1:7420 --store-memory 8GiB

    Which host this is, its keys say. How to make them: antiphon cluster keys --help
    """
    given_store = {
        "memory": store_memory,
        "disk": store_disk,
        "dir": store_dir,
        "key-file": store_key_file,
    }
    check_store_options(given_store, store)
    file, name = file_or_model(model, config)
    folder = _folder_of_keys(file, keys)
    from antiphon.live.network import read_host_keys

    host = read_host_keys(folder).host
    given = {
        **engine_options(
            name, quantize, dtype, max_model_len, kv_memory, page_tokens, kv_dtype, cores, device
        ),
        ("cluster", "prefill"): prefill,
        ("cluster", "decode"): decode,
        ("cluster", "mixed"): mixed,
        ("network", "keys"): str(folder),
        ("network", "join"): join or None,
        ("network", "addresses"): address or None,
        ("store", "enabled"): store != "off" if store or pool_listen else None,
        ("store", "socket"): None if store in (None, "on", "off") else store,
        ("store", "memory_bytes"): store_memory,
        ("store", "disk_bytes"): store_disk,
        ("store", "dir"): store_dir,
        ("store", "at_rest_key_file"): store_key_file,
        ("store_pool", "listen"): pool_listen,
        ("store_pool", "peers"): peer or None,
    }
    settings = _pooled_or_none(load(file, given, host), [store, *given_store.values()], file)
    if not settings.network.join:
        remedy = "say --join ADDRESS" if file is None else "run `antiphon serve` here"
        raise UsageError(f"host {host} has no gateway to join: {remedy}")
    raise typer.Exit(_run(settings))


def _pooled_or_none(settings: Config, said: Sequence[str | None], file: Path | None) -> Config:
    """A store here that is in no pool is of no use: the gateway would never hear of it. Raises
    `UsageError` if one was asked for."""
    if settings.store_pool.listen is not None or not settings.store.enabled:
        return settings
    if any(value not in (None, "off") for value in said):
        where = "--pool-listen HOST:PORT" if file is None else "store_port in [hosts.…]"
        raise UsageError(
            f"a store on this host needs a place in the cluster's pool of stores, or the gateway "
            f"would not know what it has: give it one ({where}), or leave out --store…"
        )
    return replace(settings, store=replace(settings.store, enabled=False))


def _run(settings: Config) -> int:
    """Work until a signal comes; returns the exit code."""
    with Progress() as progress:

        def announce(line: str) -> None:
            progress.done()
            tell(line)

        progress.say("Starting")
        from antiphon.live.join import join as run

        return run(settings, say=progress.say, log=progress.log, announce=announce)


def _folder_of_keys(file: Path | None, keys: str | None) -> Path:
    """From the option, or else the file; the file alone can't say which of its hosts this is."""
    if keys is None and file is not None:
        keys = load(file, reaches_hosts=False).network.keys
    if keys is None:
        raise UsageError("--keys FOLDER is missing: this host's keys, of `antiphon cluster keys`")
    return Path(keys)
