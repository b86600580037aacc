"""Options that several commands share, each stated once."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Model: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help="Known name (see `antiphon models`), folder, .gguf file or hub name.",
        show_default="smollm2-135m",
    ),
]
Quantize: TypeAlias = Annotated[
    str | None, typer.Option(help="What weights are rounded to: int8 (fast), or none: fp32.")
]
EngineQuantize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="What weights are rounded to: int8 (fast, on a processor), or none.",
        show_default="int8, with --dtype or on CUDA none",
    ),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="What is computed in where nothing is rounded: fp32, bf16 or fp16.",
        show_default="fp32, on CUDA bf16",
    ),
]
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Where the model runs: cpu, cuda or cuda:N.",
        metavar="DEVICE",
        show_default="cpu",
    ),
]
MaxModelLen: TypeAlias = Annotated[
    int | None, typer.Option(help="Longest prompt plus output, in tokens.")
]
KvMemory: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Memory for keys and values, such as 512MB or 2GiB.", metavar="SIZE"),
]
KvDtype: TypeAlias = Annotated[
    str | None, typer.Option(help="What keys and values are kept as: auto, fp32 or bf16.")
]
PageTokens: TypeAlias = Annotated[
    int | None, typer.Option(help="Tokens a page of KV memory; 1 is Token Attention.")
]
Cores: TypeAlias = Annotated[
    str | None, typer.Option(help="CPU cores to use, such as 0,1 or 0-3.", metavar="LIST")
]
ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="TOML file; the other options go over it.", metavar="FILE")
]
StoreMemory: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The KV store's shared memory, such as 512MB or 8GiB.", metavar="SIZE"),
]
StoreDisk: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Most bytes that it keeps on disk, over restarts.", metavar="SIZE"),
]
StoreDir: TypeAlias = Annotated[
    str | None, typer.Option(help="Folder for that; private to you.", metavar="FOLDER")
]
StoreKeyFile: TypeAlias = Annotated[
    str | None,
    typer.Option(help="File of the key that seals what it keeps on disk.", metavar="FILE"),
]
PoolLevel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="How blocks cross the network: raw, lossless, int8, int4, entropy-1 … entropy-5, or "
        "adaptive.",
        metavar="LEVEL",
    ),
]
KvProfileFile: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Profile of the model, of `antiphon kv profile`.", metavar="FILE"),
]
PoolListen: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Be one of a pool of stores, reached there.", metavar="HOST:PORT"),
]
Peer: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Another store of the pool; may be repeated.", metavar="NAME@HOST:PORT"),
]
Keys: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Folder of this host's keys, of `antiphon cluster keys`.", metavar="FOLDER"),
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Address of the server.",
        metavar="URL",
        show_default="the only one of yours on this machine",
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="File of the admin token, for a server that is not yours or not here.", metavar="FILE"
    ),
]
DrainTimeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout",
        help="How long running requests may take there; then they move to other workers.",
        metavar="SECONDS",
        min=0.0,
        max=86400.0,
    ),
]
Worker: TypeAlias = Annotated[
    str, typer.Argument(help="A worker's id, as `antiphon status` shows it.", show_default=False)
]
FindGoodput: TypeAlias = Annotated[
    bool, typer.Option("--find-goodput", help="Search for the highest rate that is within SLO.")
]
MaxRate: TypeAlias = Annotated[float | None, typer.Option(help="The same.", show_default="1000")]
"""Comes after `--min-rate`."""
Tolerance: TypeAlias = Annotated[
    float | None,
    typer.Option(help="How exact that is to be: 0.05 is 5 %.", show_default="0.05"),
]
OverwriteRun: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that is in that folder.")
]
