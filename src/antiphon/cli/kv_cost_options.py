"""The options of `antiphon kv cost`, each stated once."""

from typing import Annotated, TypeAlias

import typer

CAPACITY = "2TB"

Model: TypeAlias = Annotated[
    str,
    typer.Argument(help="A name of the table that --list prints, or as for `antiphon serve`."),
]
Devices: TypeAlias = Annotated[int, typer.Option(min=1, max=10**6, help="How many there are.")]
TokensPerS: TypeAlias = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=1e9,
        help="Tokens whose KV a busy device computes in a second.",
        show_default="by model",
    ),
]
Busy: TypeAlias = Annotated[float, typer.Option(min=0.001, max=1, help="Share of the time.")]
DevicePrice: TypeAlias = Annotated[
    float, typer.Option(min=0.0001, max=1e6, help="Of a device in an hour.")
]
ValueBits: TypeAlias = Annotated[
    float, typer.Option(min=0.1, max=64, help="Of a number in KV memory: 16 for FP16.")
]
CodecRatio: TypeAlias = Annotated[
    float, typer.Option(min=1, max=1000, help="By which stored KV is smaller.")
]
Capacity: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Storage, such as 500GB or 2TB.", metavar="SIZE", show_default=CAPACITY),
]
Keep: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Instead of --capacity: how long blocks are to stay, such as 10min.",
        metavar="TIME",
    ),
]
SsdPrice: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1e6, help="Of 10^9 bytes of SSD in a month.")
]
RamPrice: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1e6, help="Of 10^9 bytes of memory in a month.")
]
HitRate: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1, help="Share of tokens found, for what is saved.")
]
ListModels: TypeAlias = Annotated[
    bool, typer.Option("--list", help="Print the models that are known by name.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
