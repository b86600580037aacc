"""`antiphon sim explore`: clusters and faults drawn from seeds, every law held against each run."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.core.draws import LARGEST_SEED
from antiphon.core.number_text import plural
from antiphon.errors import UsageError
from antiphon.host import terminable

from .interrupted import code_of
from .progress import Progress, tell

if TYPE_CHECKING:
    from antiphon.sim.explore.case_json import Case
    from antiphon.sim.explore.drawn_cluster import Family
    from antiphon.sim.explore.scorecard import Scorecard, SeedRun
    from antiphon.sim.explore.shrink import Shrunk

_MOST_CASES = 5
"""Laws of which the first run that broke them is made small."""
_TOLD_EVERY_S = 5.0


def explore(
    seeds: Annotated[
        int, typer.Option(help="How many seeds.", min=1, max=10_000_000, metavar="N")
    ] = 200,
    first: Annotated[
        int, typer.Option(help="The first seed.", min=0, max=LARGEST_SEED, metavar="SEED")
    ] = 0,
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="What may happen: honest, impatient, gateway, hostile, store or handover. "
            "May be given several times.",
            show_default="all",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="Processes.", min=1, max=512, show_default="one for each core"
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Run a case that -o DIR has kept, nothing else.", metavar="FILE"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for explore.json and, of each broken law, a case and a test.",
            metavar="DIR",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The sums as JSON.")] = False,
) -> None:
    """Look for a run in which the cluster breaks one of its laws.

    Each seed draws a small cluster, its clients and its faults, and runs the live router, request
    book, scheduler and leases in virtual time. Afterwards every law is checked: each token once, no
    page lost, nothing left over. Of each law that is broken the first run is made as small as it
    can be and still break it, and printed as a test.

    \b
    antiphon sim explore                              200 seeds, every family
    antiphon sim explore --seeds 20000 --jobs 8 -o found/
    antiphon sim explore --family hostile --first 1000 --seeds 500
    antiphon sim explore --replay found/case-I4-seed12.json

    Exit code 0: all laws held. 1: one was broken. 2: it could not begin as it was asked for.
    130: Ctrl-C, 143: SIGTERM, after the sums so far.
    """
    if replay is not None:
        raise typer.Exit(_replayed(replay))
    families = _families(family)
    if output is not None:
        _make_folder(output)
    card, interrupt = _searched(range(first, first + seeds), families, jobs or _cores())
    cases = [] if interrupt else _shrunk(card)
    if output is not None:
        _write(output, card, cases)
    _show(card, cases, output, as_json=as_json)
    if interrupt is not None:
        raise typer.Exit(code_of(interrupt))
    raise typer.Exit(1 if card.broken else 0)


def _families(names: Sequence[str] | None) -> "list[Family]":
    from antiphon.sim.explore.drawn_cluster import Family

    for name in names or ():
        if name not in list(Family):
            raise UsageError(f'--family "{name}": must be one of {", ".join(Family)}')
    return [one for one in Family if not names or one.value in names]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _searched(
    seeds: range, families: "Sequence[Family]", jobs: int
) -> "tuple[Scorecard, KeyboardInterrupt | None]":
    """The sums, up to what interrupted them."""
    from antiphon.sim.explore.scorecard import Scorecard
    from antiphon.sim.explore.search import search

    card, whole = Scorecard(), len(seeds) * len(families)
    began = told = time.monotonic()
    with Progress() as progress:
        try:
            with terminable():
                for run in search(seeds, families, jobs=min(jobs, whole)):
                    card.add(run)
                    now = time.monotonic()
                    if progress.is_live or now - told >= _TOLD_EVERY_S:
                        told = now
                        progress.say(
                            f"{card.runs:,} of {plural(whole, 'run')} in {now - began:.0f} s, "
                            f"{len(card.broken)} broke a law"
                        )
        except KeyboardInterrupt as interrupt:
            return card, interrupt
    return card, None


def _shrunk(card: "Scorecard") -> "list[tuple[SeedRun, Shrunk]]":
    from antiphon.sim.explore.drawn_cluster import setup_of
    from antiphon.sim.explore.shrink import shrink

    cases: list[tuple[SeedRun, Shrunk]] = []
    with Progress() as progress:
        for run in card.firsts(_MOST_CASES):
            told = progress.say if progress.is_live else lambda _: None
            cases.append((run, shrink(setup_of(run.seed, run.family), run.family, told=told)))
    return cases


# ── what is kept and shown ───────────────────────────────────────────────────────────────────────


def _case(small: "Shrunk") -> "Case":
    from antiphon.sim.explore.case_json import Case

    return Case(small.family, small.setup, small.broken.law, small.broken.problem)


def _title(run: "SeedRun", small: "Shrunk") -> str:
    return (
        f"Seed {run.seed} of family {run.family.value}, of which {small.size} are left"
        f"{'' if small.is_minimal else ' (there may be less)'}."
    )


def _write(folder: Path, card: "Scorecard", cases: "Sequence[tuple[SeedRun, Shrunk]]") -> None:
    from antiphon.sim.explore.case_json import case_text
    from antiphon.sim.explore.case_python import case_test

    (folder / "explore.json").write_text(_as_json(card, cases) + "\n")
    for run, small in cases:
        name = f"{_slug(small.broken.law)}-seed{run.seed}"
        (folder / f"case-{name}.json").write_text(case_text(_case(small)))
        test = case_test(_case(small), _title(run, small))
        (folder / f"test_case_{name.replace('-', '_')}.py").write_text(test)


def _slug(law: str) -> str:
    return "".join(one if one.isalnum() else "_" for one in law)[:40]


def _show(
    card: "Scorecard",
    cases: "Sequence[tuple[SeedRun, Shrunk]]",
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    from antiphon.sim.explore.case_python import case_test

    if as_json:
        tell(_as_json(card, cases))
        return
    tell(_as_table(card))
    for run, small in cases:
        tell(f"\n{small.broken.problem}\n{_title(run, small)}")
        if folder is None:
            tell("\n" + case_test(_case(small), _title(run, small)))
    if folder is not None:
        tell(f"\nwritten to {folder}")


def _as_json(card: "Scorecard", cases: "Sequence[tuple[SeedRun, Shrunk]]") -> str:
    from antiphon.sim.explore.case_python import case_test

    made_small = [
        {
            "law": small.broken.law,
            "problem": small.broken.problem,
            "seed": run.seed,
            "family": run.family.value,
            "left": small.size,
            "runs": small.runs,
            "is_minimal": small.is_minimal,
            "test": case_test(_case(small), _title(run, small)),
        }
        for run, small in cases
    ]
    return json.dumps({**card.as_plain(), "cases": made_small}, indent=2)


def _as_table(card: "Scorecard") -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from antiphon.sim.explore.cluster_run import LAWS
    from antiphon.sim.explore.drawn_cluster import Family

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("family", "runs", "requests", "failed"):
        table.add_column(name, justify="left" if name == "family" else "right")
    table.add_column("faults that happened", ratio=1)
    table.add_column("slowest recovery", no_wrap=True)
    for family in (one for one in Family if one in card.families):
        score = card.families[family]
        slowest = next(iter(score.recoveries), None)
        table.add_row(
            family.value,
            f"{score.runs:,}",
            f"{sum(score.outcomes.values()):,}",
            f"{score.outcomes.get('failed', 0):,}",
            ", ".join(f"{kind} {count:,}" for kind, count in score.faults.items()),
            "–" if slowest is None else f"{slowest.seconds:.2f} s (seed {slowest.seed})",
        )
    console = Console(width=120, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
        for number, meaning in LAWS.items():
            broken = sum(run.broken is not None and run.broken.law == number for run in card.broken)
            console.print(f"{number:<4} {meaning}" + (f": BROKEN by {broken}" if broken else ""))
        console.print(f"Of {plural(card.runs, 'run')} {len(card.broken):,} broke a law")
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip()


def _replayed(file: Path) -> int:
    from antiphon.sim.explore.case_json import read_case
    from antiphon.sim.explore.cluster_run import broken_by

    try:
        case = read_case(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--replay {file}: can't be read: {error}") from None
    except UsageError as error:
        raise UsageError(f"--replay {file}: {error}") from None
    broken = broken_by(case.setup, case.family)
    if broken is None:
        tell(f"{case.law} holds now; it was: {case.problem}")
        return 0
    tell(broken.problem)
    return 1


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: can't be made: {error.strerror}") from None
