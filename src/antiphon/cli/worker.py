"""`antiphon worker`: workers on this host for a gateway on another one."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.errors import UsageError
from antiphon.types import Config

from . import options
from .progress import Progress, tell
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
    config: options.ConfigFile = None,
) -> None:
    """Run workers on this host for a gateway on another host.

    The gateway takes in who shows a certificate of its cluster, and has the same model and the same
    pages of KV; else it says why, and this exits with 2. When the connection breaks, workers join
    again by themselves. SIGTERM and Ctrl-C: the gateway gives them nothing new, what they have
    finishes, or goes on elsewhere, and this exits with 0; the second signal stops at once.

    \b
    antiphon worker cluster.toml --keys /etc/antiphon/box2
    antiphon worker --join 10.0.0.1:7400 --keys box2 --address 10.0.0.2 smollm2-135m --decode 1

    Which host this is, its keys say. How to make them: antiphon cluster keys --help
    """
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
        ("store", "enabled"): False,
    }
    settings = load(file, given, host)
    if not settings.network.join:
        remedy = "say --join ADDRESS" if file is None else "run `antiphon serve` here"
        raise UsageError(f"host {host} has no gateway to join: {remedy}")
    raise typer.Exit(_run(settings))


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
