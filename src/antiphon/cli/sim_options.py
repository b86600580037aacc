"""The options of `antiphon sim`, each stated once; those of searches are in `options`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.core.draws import LARGEST_SEED

Scenarios: TypeAlias = Annotated[
    list[Path],
    typer.Argument(help="Fleets, loads and faults, one TOML file each.", metavar="SCENARIO"),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Of prompts, arrivals, routes and victims.",
        min=0,
        max=LARGEST_SEED,
        show_default="the scenario's",
    ),
]
Seeds: TypeAlias = Annotated[
    int, typer.Option(help="Run it with so many seeds, from --seed on.", min=1, max=1000)
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Calls a second; a search begins there.", show_default="the scenario's"),
]
Duration: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="How long calls are sent, such as 10min.",
        metavar="TIME",
        show_default="the scenario's",
    ),
]
MinRate: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Of --find-goodput, calls a second.", show_default="0.05"),
]
Jobs: TypeAlias = Annotated[
    int,
    typer.Option("--jobs", "-j", help="Runs at once, a process each.", min=1, max=256),
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Keep all calls there, and a report.", metavar="FOLDER"),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON on stdout instead of a table.")
]
DryRun: TypeAlias = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the fleet, its load and its faults; run nothing."),
]
