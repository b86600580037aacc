"""`antiphon serve`: a model behind the OpenAI API."""

import typer

from . import options, serve_options
from .progress import Progress, tell


def serve(
    ctx: typer.Context,
    model: serve_options.ModelOrFile = None,
    prefill: serve_options.Prefill = None,
    decode: serve_options.Decode = None,
    mixed: serve_options.Mixed = None,
    host: serve_options.Host = None,
    port: serve_options.Port = None,
    api_key_file: serve_options.ApiKeyFile = None,
    served_model_name: serve_options.ServedModelName = None,
    quantize: options.EngineQuantize = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    kv_memory: options.KvMemory = None,
    page_tokens: options.PageTokens = None,
    kv_dtype: options.KvDtype = None,
    max_num_seqs: serve_options.MaxNumSeqs = None,
    max_batched_tokens: serve_options.MaxBatchedTokens = None,
    cores: options.Cores = None,
    device: options.Device = None,
    store: serve_options.Store = None,
    store_memory: options.StoreMemory = None,
    store_disk: options.StoreDisk = None,
    store_dir: options.StoreDir = None,
    store_key_file: options.StoreKeyFile = None,
    profile: serve_options.Profile = None,
    planner: serve_options.Planner = None,
    budget: serve_options.Budget = None,
    keys: options.Keys = None,
    decision_log: serve_options.DecisionLog = None,
    request_log: serve_options.RequestLog = None,
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
    antiphon serve ./folder --device cuda --kv-memory 20GiB
    antiphon serve smollm2-135m --store-memory 4GiB --store-disk 20GiB
    antiphon serve smollm2-135m --prefill 1 --decode 1 --planner act --cores 0-7
    antiphon serve cluster.toml
    antiphon serve cluster.toml --keys keys/box1

    With several workers, `antiphon status` shows them, `antiphon role` gives one another role.
    Every other setting, and its meaning: `antiphon config show`.
    """
    settings = serve_options.config_of(ctx.params)
    with Progress() as progress:

        def announce(line: str) -> None:
            progress.done()
            tell(line)

        progress.say("Starting")
        from antiphon.live.serve import serve as run

        code = run(settings, say=progress.say, log=progress.log, announce=announce)
    raise typer.Exit(code)
