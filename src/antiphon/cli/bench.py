"""`antiphon bench`: load on any server with an OpenAI API, and what came of it."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.errors import UsageError

from . import bench_options, options
from .bench_group import DEFAULT, DefaultCommand, UrlOrCommand
from .interrupted import INTERRUPTED, TERMINATED

bench_app = typer.Typer(
    cls=UrlOrCommand,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Put load on any server with an OpenAI API, and measure its goodput.",
)


@bench_app.command(DEFAULT, cls=DefaultCommand, hidden=True)
def run(
    ctx: typer.Context,
    url: bench_options.Url = None,
    rate: bench_options.Rate = None,
    duration: bench_options.Duration = "60s",
    requests: bench_options.Requests = None,
    workload: bench_options.Workload = None,
    trace: bench_options.Trace = None,
    arrivals: bench_options.Arrivals = None,
    slo: bench_options.Targets = None,
    slo_preset: bench_options.TargetsPreset = None,
    warmup: bench_options.Warmup = "10%",
    devices: bench_options.Devices = 1,
    seed: bench_options.Seed = 0,
    model: bench_options.Model = None,
    api_key_file: bench_options.ApiKeyFile = None,
    extra_body: bench_options.ExtraBody = None,
    insecure: bench_options.Insecure = False,
    tokenizer: bench_options.TokenizerPath = None,
    timeout: bench_options.Timeout = "10m",
    max_open: bench_options.MaxOpen = 4096,
    find_goodput: options.FindGoodput = False,
    min_rate: bench_options.MinRate = None,
    max_rate: options.MaxRate = None,
    tolerance: options.Tolerance = None,
    find_slo_scale: bench_options.FindSloScale = False,
    scales: bench_options.Scales = None,
    title: bench_options.Title = None,
    output: bench_options.Output = None,
    overwrite: options.OverwriteRun = False,
    as_json: bench_options.AsJson = False,
    list_workloads: bench_options.ListWorkloads = False,
) -> None:
    """Put load on any server with an OpenAI API, and say how many requests met their targets.

    Requests are sent when they are due, whether or not others are answered, and latencies count
    from then. URL alone: a chat a second for a minute.

    \b
    antiphon bench http://127.0.0.1:8000
    antiphon bench http://127.0.0.1:8000 --rate 4 --slo ttft=500ms,tpot=50ms -o run
    antiphon bench http://127.0.0.1:8000 --find-goodput -o search
    antiphon bench https://api.example.com --api-key-file key --model small --requests 50
    antiphon bench http://127.0.0.1:8000 --trace conversation_trace.jsonl --rate 2
    antiphon bench compare run other-run

    Exit code 0: measured, whatever it came to. 1: the server is not there, or failed every request.
    2: something to change in the command. 130: Ctrl-C, 143: SIGTERM; what had ended by then is
    reported.
    """
    if list_workloads:
        from .bench_list import workloads_text

        typer.echo(workloads_text())
        return
    if url is None:
        raise UsageError("URL is missing: give the server's, such as http://127.0.0.1:8000")
    import uvloop

    from antiphon.bench import Ending, carry_out

    from .bench_order import order_of
    from .bench_results import Results
    from .progress import Progress

    order = order_of(ctx.params)
    with Progress(redraws_per_s=2.0) as progress:
        ending = uvloop.run(carry_out(order, Results(output, as_json, progress.done), progress))
    codes = {Ending.INTERRUPTED: INTERRUPTED, Ending.TERMINATED: TERMINATED}
    raise typer.Exit(codes.get(ending, 0))


@bench_app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or of searches; others are held against the first."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Draw the comparison as a page.", metavar="FILE"),
    ] = None,
    as_json: bench_options.AsJson = False,
) -> None:
    """Put runs side by side, with ratios, and say which differences are within noise.

    \b
    antiphon bench compare before after
    antiphon bench compare antiphon llama.cpp vllm -o comparison.html
    """
    from .bench_compare import compare_folders

    compare_folders(runs, output, as_json=as_json)


@bench_app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a search.")],
    as_json: bench_options.AsJson = False,
) -> None:
    """Print a run or a search again, and draw its page again, from the files in FOLDER."""
    from .bench_compare import report_again

    report_again(folder, as_json=as_json)
