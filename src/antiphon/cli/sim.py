"""`antiphon sim`: a fleet in virtual time, and what its users saw."""

import typer

from antiphon.errors import UsageError

from . import options, sim_options
from .bench_group import DEFAULT, DefaultCommand, UrlOrCommand
from .sim_explore import explore

_JOBS = 2

sim_app = typer.Typer(
    cls=UrlOrCommand,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a fleet of devices in virtual time, with the live system's own decisions.",
)


sim_app.command()(explore)


@sim_app.command(DEFAULT, cls=DefaultCommand, hidden=True)
def run(
    scenarios: sim_options.Scenarios,
    seed: sim_options.Seed = None,
    seeds: sim_options.Seeds = 1,
    rate: sim_options.Rate = None,
    duration: sim_options.Duration = None,
    find_goodput: options.FindGoodput = False,
    min_rate: sim_options.MinRate = None,
    max_rate: options.MaxRate = None,
    tolerance: options.Tolerance = None,
    jobs: sim_options.Jobs = _JOBS,
    output: sim_options.Output = None,
    overwrite: options.OverwriteRun = False,
    as_json: sim_options.AsJson = False,
    dry_run: sim_options.DryRun = False,
) -> None:
    """Run a fleet in virtual time: how fast it answers, what it bears, what a fault costs.

    The router, request book, scheduler, leases and membership are those of the live system; only
    devices and links are models (rooflines, published or measured times). Results are told and kept
    as `antiphon bench` does, and `antiphon bench compare` reads them. The same seed gives the same
    run, to the byte.

    \b
    antiphon sim chat.toml                          a table of what users saw
    antiphon sim chat.toml --dry-run                what it would be: memory, devices, faults
    antiphon sim chat.toml --seeds 5 -o chat/       mean and spread over five seeds
    antiphon sim split.toml mixed.toml -o both/     side by side, a process each
    antiphon sim chat.toml --find-goodput           the highest rate that is within targets
    antiphon bench compare both/split both/mixed

    Exit code 0: it was run, whatever it came to. 1: every call failed, or none came after the
    warm-up. 2: something to change in the command or the scenario. 130: Ctrl-C, 143: SIGTERM; what
    had come by then is told.
    """
    from .sim_order import SimWords, describe, jobs_of
    from .sim_run import run_jobs

    words = SimWords(
        files=tuple(scenarios),
        seed=seed,
        seeds=seeds,
        rate=rate,
        duration=duration,
        find_goodput=find_goodput,
        min_rate=min_rate,
        max_rate=max_rate,
        tolerance=tolerance,
        folder=output,
        overwrite=overwrite,
    )
    if dry_run and (as_json or output is not None):
        raise UsageError("--dry-run: runs nothing: leave out --json and -o")
    planned = jobs_of(words)
    if dry_run:
        for job in planned:
            typer.echo(describe(job))
        return
    raise typer.Exit(run_jobs(planned, jobs, as_json=as_json))
