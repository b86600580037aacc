"""`antiphon worker`: workers on this host for a gateway on another one."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.errors import UsageError

from . import options
from .progress import Progress, tell
from .settings import engine_options, file_or_model, load


def worker(
    model: Annotated[
        str | None,
        typer.Argument(
            help="The cluster's file (.toml), as the gateway has it; or the model, with --join.",
            show_default="smollm2-135m",
        ),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST:PORT of the gateway; again for each path to it. From the file, if given.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    keys: options.Keys = None,
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="An address of this host that other hosts reach; again for each. From the file.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    prefill: Annotated[
        int | None, typer.Option(help="Workers that compute prompts.", metavar="N")
    ] = None,
    decode: Annotated[
        int | None, typer.Option(help="Workers that generate from them.", metavar="N")
    ] = None,
    mixed: Annotated[int | None, typer.Option(help="Workers that do both.", metavar="N")] = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    kv_memory: options.KvMemory = None,
    page_tokens: options.PageTokens = None,
    kv_dtype: options.KvDtype = None,
    cores: options.Cores = None,
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
        **engine_options(name, dtype, max_model_len, kv_memory, page_tokens, kv_dtype, cores),
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

    with Progress() as progress:

        def announce(line: str) -> None:
            progress.done()
            tell(line)

        progress.say("Starting")
        from antiphon.live.join import join as run

        code = run(settings, say=progress.say, log=progress.log, announce=announce)
    raise typer.Exit(code)


def _folder_of_keys(file: Path | None, keys: str | None) -> Path:
    """From the option, or else the file; the file alone can't say which of its hosts this is."""
    if keys is None and file is not None:
        keys = load(file, reaches_hosts=False).network.keys
    if keys is None:
        raise UsageError("--keys FOLDER is missing: this host's keys, of `antiphon cluster keys`")
    return Path(keys)
