"""The options of `antiphon bench`, each stated once; those of searches are in `options`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.core.draws import LARGEST_SEED

Url: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help="The server, such as http://127.0.0.1:8000 or https://host/v1.",
        metavar="URL",
        show_default=False,
    ),
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Requests a second, on average.", show_default="1, or a trace's own times"),
]
Duration: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How long requests are sent; in a search, in each of its runs.", metavar="TIME"
    ),
]
Requests: TypeAlias = Annotated[
    int | None, typer.Option(help="Send no more than so many.", min=1, max=10_000_000)
]
Workload: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="What users send; --list-workloads lists them.",
        metavar="NAME[:KEY=VALUE,…]",
        show_default="chat",
    ),
]
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="A trace to replay, of Mooncake or Azure.", metavar="FILE"),
]
Arrivals: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="poisson, constant, bursts:…, sine:… or trace.",
        metavar="NAME[:KEY=VALUE,…]",
        show_default="poisson",
    ),
]
Targets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Targets, such as ttft=500ms,tpot=50ms; again for a class's own.",
        metavar="[CLASS:]TARGETS",
    ),
]
TargetsPreset: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Targets of the DistServe paper: chat, code, summarise, chat-66b, chat-175b.",
        metavar="[CLASS:]NAME",
        show_default="chat, without --slo",
    ),
]
Warmup: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Beginning that counts for nothing, such as 5s or 10%.", metavar="TIME|SHARE"
    ),
]
Devices: TypeAlias = Annotated[
    int, typer.Option(help="What goodput is divided by.", min=1, max=1_000_000)
]
Seed: TypeAlias = Annotated[
    int, typer.Option(help="Of prompts and arrivals.", min=0, max=LARGEST_SEED)
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Its name in the API.", show_default="the only one that is served"),
]
ApiKeyFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="File whose first word is an API key.", metavar="FILE")
]
ExtraBody: TypeAlias = Annotated[
    str | None, typer.Option(help="Fields that go with each request.", metavar="JSON")
]
Insecure: TypeAlias = Annotated[
    bool, typer.Option("--insecure", help="Do not verify the server's certificate.")
]
TokenizerPath: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Of a server that counts no tokens: tokenizer.json, its folder, or a model.",
        metavar="PATH",
    ),
]
Timeout: TypeAlias = Annotated[str, typer.Option(help="Longest time of a request.", metavar="TIME")]
MaxOpen: TypeAlias = Annotated[
    int, typer.Option(help="Most requests open at once; more fail.", min=1, max=65_536)
]
MinRate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Of --find-goodput, requests a second.", show_default="0.05"),
]
FindSloScale: TypeAlias = Annotated[
    bool,
    typer.Option("--find-slo-scale", help="At --rate: how tight may targets be, by factors?"),
]
Scales: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Those factors to be drawn.",
        metavar="LIST",
        show_default="0.25,0.5,0.75,1,1.25,1.5,2,3,4",
    ),
]
Title: TypeAlias = Annotated[
    str | None, typer.Option(help="Its name in reports.", show_default="model and host")
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Keep all requests there, and a report.", metavar="FOLDER"),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON on stdout instead of a table.")
]
ListWorkloads: TypeAlias = Annotated[
    bool, typer.Option("--list-workloads", help="Print workloads and arrivals, and end.")
]
