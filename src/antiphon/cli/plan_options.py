"""The options of `antiphon plan`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Model: TypeAlias = Annotated[
    str,
    typer.Option(help="Model by its dimensions, such as llama-3-70b.", show_default=False),
]
Devices: TypeAlias = Annotated[
    str,
    typer.Option(help="Kinds that may be used, such as h800,h20.", show_default=False),
]
Count: TypeAlias = Annotated[int, typer.Option(help="Devices at most, in all.", metavar="N")]
Node: TypeAlias = Annotated[int, typer.Option(help="Devices of one node.", metavar="N")]
Workload: TypeAlias = Annotated[
    str,
    typer.Option(help="Who calls: see `antiphon bench --list-workloads`.", metavar="NAME[:…]"),
]
Arrivals: TypeAlias = Annotated[
    str, typer.Option(help="When: poisson, bursts:cv=2, trace, …", metavar="KIND[:…]")
]
Slo: TypeAlias = Annotated[
    str | None,
    typer.Option(help="What is in time.", metavar="ttft=TIME,tpot=TIME"),
]
SloPreset: TypeAlias = Annotated[
    str | None, typer.Option(help="The same by name: chat, code, summarise, …", metavar="NAME")
]
By: TypeAlias = Annotated[
    str, typer.Option(help="Best for each: devices or money.", metavar="devices|money")
]
Price: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="An hour of a device, such as h800=2.5.", metavar="KIND=PRICE"),
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Calls a second to serve, with the least that does it.", metavar="R"),
]
LowAffinity: TypeAlias = Annotated[
    bool, typer.Option("--low-affinity", help="KV must not leave a node.")
]
WeightBits: TypeAlias = Annotated[int, typer.Option(help="Of a weight: 4, 8, 16 or 32.")]
KvBits: TypeAlias = Annotated[int, typer.Option(help="Of a number in the KV cache.")]
Seeds: TypeAlias = Annotated[
    int, typer.Option(help="Different users for the best ones.", metavar="K")
]
Trials: TypeAlias = Annotated[
    int, typer.Option(help="Candidates to glance at, at most.", metavar="N")
]
Processes: TypeAlias = Annotated[
    int | None, typer.Option(help="Simulations side by side.", show_default="one a core")
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Keep plan.json, plan.svg, cluster.toml there.", metavar="DIR"
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
