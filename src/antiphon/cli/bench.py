"""`antiphon bench`: load on any server with an OpenAI API, and what came of it."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from antiphon.core.draws import LARGEST_SEED
from antiphon.errors import UsageError

from . import options
from .bench_group import DEFAULT, DefaultCommand, UrlOrCommand
from .interrupted import INTERRUPTED, TERMINATED
from .key_file import first_key

AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON on stdout instead of a table.")
]

bench_app = typer.Typer(
    cls=UrlOrCommand,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Put load on any server with an OpenAI API, and measure its goodput.",
)


@bench_app.command(DEFAULT, cls=DefaultCommand, hidden=True)
def run(
    url: Annotated[
        str | None,
        typer.Argument(
            help="The server, such as http://127.0.0.1:8000 or https://host/v1.",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Requests a second, on average.", show_default="1, or a trace's own times"
        ),
    ] = None,
    duration: Annotated[
        str,
        typer.Option(
            help="How long requests are sent; in a search, in each of its runs.", metavar="TIME"
        ),
    ] = "60s",
    requests: Annotated[
        int | None, typer.Option(help="Send no more than so many.", min=1, max=10_000_000)
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help="What users send; --list-workloads lists them.",
            metavar="NAME[:KEY=VALUE,…]",
            show_default="chat",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="A trace to replay, of Mooncake or Azure.", metavar="FILE"),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            help="poisson, constant, bursts:…, sine:… or trace.",
            metavar="NAME[:KEY=VALUE,…]",
            show_default="poisson",
        ),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            help="Targets, such as ttft=500ms,tpot=50ms; again for a class's own.",
            metavar="[CLASS:]TARGETS",
        ),
    ] = None,
    slo_preset: Annotated[
        list[str] | None,
        typer.Option(
            help="Targets of the DistServe paper: chat, code, summarise, chat-66b, chat-175b.",
            metavar="[CLASS:]NAME",
            show_default="chat, without --slo",
        ),
    ] = None,
    warmup: Annotated[
        str,
        typer.Option(
            help="Beginning that counts for nothing, such as 5s or 10%.", metavar="TIME|SHARE"
        ),
    ] = "10%",
    devices: Annotated[
        int, typer.Option(help="What goodput is divided by.", min=1, max=1_000_000)
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="Of prompts and arrivals.", min=0, max=LARGEST_SEED)
    ] = 0,
    model: Annotated[
        str | None,
        typer.Option(help="Its name in the API.", show_default="the only one that is served"),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File whose first word is an API key.", metavar="FILE")
    ] = None,
    extra_body: Annotated[
        str | None, typer.Option(help="Fields that go with each request.", metavar="JSON")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not verify the server's certificate.")
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Of a server that counts no tokens: tokenizer.json, its folder, or a model.",
            metavar="PATH",
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="Longest time of a request.", metavar="TIME")
    ] = "10m",
    max_open: Annotated[
        int, typer.Option(help="Most requests open at once; more fail.", min=1, max=65_536)
    ] = 4096,
    find_goodput: options.FindGoodput = False,
    min_rate: Annotated[
        float | None,
        typer.Option(help="Of --find-goodput, requests a second.", show_default="0.05"),
    ] = None,
    max_rate: options.MaxRate = None,
    tolerance: options.Tolerance = None,
    find_slo_scale: Annotated[
        bool,
        typer.Option("--find-slo-scale", help="At --rate: how tight may targets be, by factors?"),
    ] = False,
    scales: Annotated[
        str | None,
        typer.Option(
            help="Those factors to be drawn.",
            metavar="LIST",
            show_default="0.25,0.5,0.75,1,1.25,1.5,2,3,4",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Its name in reports.", show_default="model and host")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Keep all requests there, and a report.", metavar="FOLDER"
        ),
    ] = None,
    overwrite: options.OverwriteRun = False,
    as_json: AsJson = False,
    list_workloads: Annotated[
        bool, typer.Option("--list-workloads", help="Print workloads and arrivals, and end.")
    ] = False,
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
    import uvloop

    from antiphon.bench import Ending, Order, carry_out
    from antiphon.runs import slos_of

    from .bench_list import workloads_text
    from .bench_order import (
        LoadWords,
        limits_of,
        plan_of,
        server_of,
    )
    from .bench_results import Results
    from .bench_search import SearchWords, aim_of
    from .progress import Progress
    from .token_counter import token_counter

    if list_workloads:
        typer.echo(workloads_text())
        return
    if url is None:
        raise UsageError("URL is missing: give the server's, such as http://127.0.0.1:8000")
    plan = plan_of(
        LoadWords(
            workload=workload,
            trace=trace,
            arrivals=arrivals,
            rate=rate,
            duration=duration,
            requests=requests,
            warmup=warmup,
            slos=slos_of(slo or (), slo_preset or ()),
            devices=devices,
            seed=seed,
            title=title or "",
        )
    )
    words = SearchWords(
        find_goodput=find_goodput,
        min_rate=min_rate,
        max_rate=max_rate,
        tolerance=tolerance,
        find_slo_scale=find_slo_scale,
        scales=scales,
    )
    if overwrite and output is None:
        raise UsageError("--overwrite: has no effect without -o")
    order = Order(
        server=server_of(url, model, first_key(api_key_file), insecure, extra_body),
        limits=limits_of(timeout, max_open),
        count_tokens=token_counter(tokenizer) if tokenizer else None,
        plan=plan,
        aim=aim_of(words, plan, rate),
        folder=output,
        overwrite=overwrite,
        command=shlex.join(["antiphon", *sys.argv[1:]]),
    )
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
    as_json: AsJson = False,
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
    as_json: AsJson = False,
) -> None:
    """Print a run or a search again, and draw its page again, from the files in FOLDER."""
    from .bench_compare import report_again

    report_again(folder, as_json=as_json)
