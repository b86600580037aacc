"""The options of `antiphon drill`, each stated once."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.core.draws import LARGEST_SEED

PlanFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Faults and load out of a file, see the guide.", metavar="FILE"),
]
Kind: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Without a plan: kill (SIGKILL), stop (SIGSTOP, later SIGCONT), or mixed.",
        show_default="kill",
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Of prompts, arrivals, victims and moments.",
        min=0,
        max=LARGEST_SEED,
        show_default="the plan's, or 0",
    ),
]
Duration: TypeAlias = Annotated[
    float | None, typer.Option(help="Seconds of load.", min=1, max=86400, show_default="60")
]
Every: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Without a plan: seconds between faults, on average.",
        min=0.1,
        max=3600,
        show_default="5",
    ),
]
StopFor: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Without a plan: how long a stopped worker stands still, noticed or not.",
        min=0.1,
        max=3600,
        show_default="5",
    ),
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Requests a second, on average.", min=0.01, max=10_000, show_default="2"),
]
Asks: TypeAlias = Annotated[
    int | None,
    typer.Option(help="How many different chats.", min=1, max=10_000, show_default="40"),
]
PromptWords: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Length of the prompts, from and to.", metavar="LOW-HIGH", show_default="10-120"
    ),
]
MaxTokens: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Length of the answers, from and to.", metavar="LOW-HIGH", show_default="8-48"
    ),
]
Prefill: TypeAlias = Annotated[
    int | None, typer.Option(help="Prefill workers of the cluster.", min=0, show_default="2")
]
Decode: TypeAlias = Annotated[
    int | None, typer.Option(help="Decode workers of the cluster.", min=0, show_default="2")
]
Mixed: TypeAlias = Annotated[
    int | None, typer.Option(help="Mixed workers of the cluster.", min=0, show_default="0")
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Hit a server of yours that runs on this machine instead of a new one.",
        metavar="URL",
    ),
]
ApiKeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="With --url: file whose first line is an API key.", metavar="FILE"),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the faults and their times; start nothing.")
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder for the report and its time line.", metavar="DIR"),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="The report as JSON.")]
