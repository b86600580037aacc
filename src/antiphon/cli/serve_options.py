"""The options of `antiphon serve` that no other command has, and the key of each one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from antiphon.errors import UsageError
from antiphon.types import Config

from .settings import ENGINE_OPTIONS, engine_options, file_or_model, load

ModelOrFile: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help="Known name (see `antiphon models`), folder, .gguf file or hub name; or a "
        "configuration file (.toml).",
        show_default="smollm2-135m",
    ),
]
Prefill: TypeAlias = Annotated[
    int | None, typer.Option(help="Workers that compute prompts.", metavar="N")
]
Decode: TypeAlias = Annotated[
    int | None, typer.Option(help="Workers that generate from them.", metavar="N")
]
Mixed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Workers that do both.",
        metavar="N",
        show_default="1, or 0 beside --prefill and --decode",
    ),
]
Host: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Address to listen on; any but loopback needs --api-key-file."),
]
Port: TypeAlias = Annotated[int | None, typer.Option(help="TCP port; 0: any free one.")]
ApiKeyFile: TypeAlias = Annotated[
    str | None, typer.Option(help="File of API keys, one a line.", metavar="FILE")
]
ServedModelName: TypeAlias = Annotated[
    str | None, typer.Option(help="The model's name in the API.", metavar="NAME")
]
MaxNumSeqs: TypeAlias = Annotated[int | None, typer.Option(help="Most sequences that run at once.")]
MaxBatchedTokens: TypeAlias = Annotated[
    int | None, typer.Option(help="Most tokens computed in one step.")
]
Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Keep KV over requests and workers' lives: on, off, or the socket of an "
        "`antiphon store`.",
        metavar="on|off|SOCKET",
        show_default="on",
    ),
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(help="File of `antiphon profile` that the router predicts with.", metavar="FILE"),
]
Planner: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="advise: say how many workers there should be as load changes; act: start, end "
        "and flip them.",
        metavar="off|advise|act",
        show_default="off",
    ),
]
Budget: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Most workers that the planner may have, each on its part of the cores.",
        metavar="N",
        show_default="one a core",
    ),
]
DecisionLog: TypeAlias = Annotated[
    str | None, typer.Option(help="Record every decision, for replay.", metavar="FILE")
]
RequestLog: TypeAlias = Annotated[
    str | None, typer.Option(help="One line of JSON for each request.", metavar="FILE")
]

_KEYS: Mapping[str, tuple[str, str]] = {
    "served_model_name": ("model", "served_name"),
    "max_num_seqs": ("scheduler", "max_num_seqs"),
    "max_batched_tokens": ("scheduler", "max_batched_tokens"),
    "prefill": ("cluster", "prefill"),
    "decode": ("cluster", "decode"),
    "mixed": ("cluster", "mixed"),
    "host": ("http", "host"),
    "port": ("http", "port"),
    "api_key_file": ("http", "api_key_file"),
    "store_memory": ("store", "memory_bytes"),
    "store_disk": ("store", "disk_bytes"),
    "store_dir": ("store", "dir"),
    "store_key_file": ("store", "at_rest_key_file"),
    "profile": ("router", "profile"),
    "planner": ("planner", "mode"),
    "budget": ("planner", "budget"),
    "keys": ("network", "keys"),
    "decision_log": ("log", "decisions"),
    "request_log": ("log", "requests"),
}
"""Of options whose value is the key's: table and name."""
STORES_OWN = ("memory", "disk", "dir", "key-file")
"""Of the options --store-NAME, which are about a store that this command runs."""


def config_of(words: Mapping[str, Any]) -> Config:
    """The configuration that these options ask for, by their names; None: not given.

    Raises `UsageError` for what is wrong, or has no effect, with the remedy.
    """
    store, budget = words["store"], words["budget"]
    given_store = {name: words[f"store_{name.replace('-', '_')}"] for name in STORES_OWN}
    check_store_options(given_store, store)
    config_file = words["config"]
    file, name = file_or_model(words["model"], Path(config_file) if config_file else None)
    given = {key: words[option] for option, key in _KEYS.items()}
    engine = {option: words[option] for option in ENGINE_OPTIONS}
    given |= {
        **engine_options(name, **engine),
        ("store", "enabled"): None if store is None else store != "off",
        ("store", "socket"): None if store in (None, "on", "off") else store,
    }
    config = load(file, given)
    if budget is not None and config.planner.mode == "off":
        raise UsageError(
            f"--budget {budget} has no effect while the planner is off: give --planner act, or "
            f"--planner advise, or leave it out"
        )
    return config


def check_store_options(given: Mapping[str, str | None], store: str | None) -> None:
    """Raise `UsageError` for an option --store-NAME that is `given` about a store that is not run
    here; `store` is that of --store."""
    if store in (None, "on"):
        return
    for name, value in given.items():
        if value is not None:
            remedy = (
                "leave one of them out"
                if store == "off"
                else "that store has settings of its own, give it to `antiphon store`"
            )
            raise UsageError(f"--store-{name} has no effect with --store {store}: {remedy}")
