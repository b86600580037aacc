"""`antiphon serve`: a model behind the OpenAI API."""

from typing import Annotated

import typer

from antiphon.errors import UsageError

from . import options
from .progress import Progress, tell
from .settings import engine_options, file_or_model, load


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Known name (see `antiphon models`), folder, .gguf file or hub name; or a "
            "configuration file (.toml).",
            show_default="smollm2-135m",
        ),
    ] = None,
    prefill: Annotated[
        int | None, typer.Option(help="Workers that compute prompts.", metavar="N")
    ] = None,
    decode: Annotated[
        int | None, typer.Option(help="Workers that generate from them.", metavar="N")
    ] = None,
    mixed: Annotated[
        int | None,
        typer.Option(
            help="Workers that do both.",
            metavar="N",
            show_default="1, or 0 beside --prefill and --decode",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; any but loopback needs --api-key-file."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0: any free one.")] = None,
    api_key_file: Annotated[
        str | None, typer.Option(help="File of API keys, one a line.", metavar="FILE")
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The model's name in the API.", metavar="NAME")
    ] = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    kv_memory: options.KvMemory = None,
    page_tokens: options.PageTokens = None,
    kv_dtype: options.KvDtype = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="Most sequences that run at once.")
    ] = None,
    max_batched_tokens: Annotated[
        int | None, typer.Option(help="Most tokens computed in one step.")
    ] = None,
    cores: options.Cores = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Keep KV over requests and workers' lives: on, off, or the socket of an "
            "`antiphon store`.",
            metavar="on|off|SOCKET",
            show_default="on",
        ),
    ] = None,
    store_memory: options.StoreMemory = None,
    store_disk: options.StoreDisk = None,
    store_dir: options.StoreDir = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="File of `antiphon profile` that the router predicts with.", metavar="FILE"
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            help="advise: say how many workers there should be as load changes; act: start, end "
            "and flip them.",
            metavar="off|advise|act",
            show_default="off",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Most workers that the planner may have, each on its part of the cores.",
            metavar="N",
            show_default="one a core",
        ),
    ] = None,
    keys: options.Keys = None,
    decision_log: Annotated[
        str | None, typer.Option(help="Record every decision, for replay.", metavar="FILE")
    ] = None,
    request_log: Annotated[
        str | None, typer.Option(help="One line of JSON for each request.", metavar="FILE")
    ] = None,
    config: options.ConfigFile = None,
) -> None:
    """Serve MODEL with an OpenAI-compatible API on http://127.0.0.1:8000.

    Stop it with Ctrl-C or SIGTERM: it finishes what runs, refuses what is new, and exits 0;
    the second signal stops it at once.

    \b
    antiphon serve smollm2-135m
    antiphon serve ./model.gguf --port 9000 --kv-memory 4GiB
    antiphon serve ./folder --host 0.0.0.0 --api-key-file keys.txt
    antiphon serve smollm2-135m --prefill 1 --decode 2 --cores 0-5
    antiphon serve smollm2-135m --store-memory 4GiB --store-disk 20GiB
    antiphon serve smollm2-135m --prefill 1 --decode 1 --planner act --cores 0-7
    antiphon serve cluster.toml
    antiphon serve cluster.toml --keys keys/box1

    With several workers, `antiphon status` shows them, `antiphon role` gives one another role.
    Every other setting, and its meaning: `antiphon config show`.
    """
    if store not in (None, "on"):
        _refuse_of_no_store(store, {"memory": store_memory, "disk": store_disk, "dir": store_dir})
    file, name = file_or_model(model, config)
    given = {
        **engine_options(name, dtype, max_model_len, kv_memory, page_tokens, kv_dtype, cores),
        ("model", "served_name"): served_model_name,
        ("scheduler", "max_num_seqs"): max_num_seqs,
        ("scheduler", "max_batched_tokens"): max_batched_tokens,
        ("cluster", "prefill"): prefill,
        ("cluster", "decode"): decode,
        ("cluster", "mixed"): mixed,
        ("http", "host"): host,
        ("http", "port"): port,
        ("http", "api_key_file"): api_key_file,
        ("store", "enabled"): None if store is None else store != "off",
        ("store", "socket"): None if store in (None, "on", "off") else store,
        ("store", "memory_bytes"): store_memory,
        ("store", "disk_bytes"): store_disk,
        ("store", "dir"): store_dir,
        ("router", "profile"): profile,
        ("planner", "mode"): planner,
        ("planner", "budget"): budget,
        ("network", "keys"): keys,
        ("log", "decisions"): decision_log,
        ("log", "requests"): request_log,
    }
    settings = load(file, given)

    with Progress() as progress:

        def announce(line: str) -> None:
            progress.done()
            tell(line)

        progress.say("Starting")
        from antiphon.live.serve import serve as run

        code = run(settings, say=progress.say, log=progress.log, announce=announce)
    raise typer.Exit(code)


def _refuse_of_no_store(store: str, given: dict[str, str | None]) -> None:
    """Raise `UsageError` for options about a store that this server does not run."""
    for name, value in given.items():
        if value is not None:
            remedy = (
                "leave one of them out"
                if store == "off"
                else "that store has settings of its own, give it to `antiphon store`"
            )
            raise UsageError(f"--store-{name} has no effect with --store {store}: {remedy}")
