"""`antiphon drill`: faults on a live cluster under load."""

import json
from pathlib import Path
from typing import Annotated

import typer

from antiphon.errors import PeerError, UsageError

from . import options
from .progress import Progress, tell

_LONGEST = 1_000_000


def drill(
    model: options.Model = None,
    kind: Annotated[
        str, typer.Option(help="kill (SIGKILL) or stop (SIGSTOP, later SIGCONT).")
    ] = "kill",
    seed: Annotated[int, typer.Option(help="Of prompts, arrivals, victims and moments.")] = 0,
    duration: Annotated[float, typer.Option(help="Seconds of load.", min=1, max=86400)] = 60.0,
    every: Annotated[
        float, typer.Option(help="Seconds between faults, on average.", min=0.1, max=3600)
    ] = 5.0,
    stop_for: Annotated[
        float,
        typer.Option(
            help="How long a stopped worker stands still, noticed or not.", min=0.1, max=3600
        ),
    ] = 5.0,
    rate: Annotated[
        float, typer.Option(help="Requests a second, on average.", min=0.01, max=10_000)
    ] = 2.0,
    asks: Annotated[int, typer.Option(help="How many different chats.", min=1, max=10_000)] = 40,
    prompt_words: Annotated[
        str, typer.Option(help="Length of the prompts, from and to.", metavar="LOW-HIGH")
    ] = "10-120",
    max_tokens: Annotated[
        str, typer.Option(help="Length of the answers, from and to.", metavar="LOW-HIGH")
    ] = "8-48",
    prefill: Annotated[int, typer.Option(help="Prefill workers of the cluster.", min=0)] = 2,
    decode: Annotated[int, typer.Option(help="Decode workers of the cluster.", min=0)] = 2,
    mixed: Annotated[int, typer.Option(help="Mixed workers of the cluster.", min=0)] = 0,
    url: Annotated[
        str | None,
        typer.Option(
            help="Hit a server of yours that runs on this machine instead of a new one.",
            metavar="URL",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="With --url: file whose first line is an API key.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    kv_memory: options.KvMemory = None,
    config: options.ConfigFile = None,
) -> None:
    """Kill or stop workers of a live cluster under load, and show that no request is lost.

    First all chats are asked without faults. Then they come at random times while, every few
    seconds, a random worker is hit whose phase another worker still serves. Every answer must be
    what it was before, to the last token; afterwards nothing may be left: no request, no page.

    \b
    antiphon drill                                  a cluster of its own: 2 prefill, 2 decode
    antiphon drill --kind stop --seed 7
    antiphon drill --duration 3600 --every 10       an hour of it
    antiphon drill --url http://127.0.0.1:8000      the server that runs there

    Exit code 0: passed. 1: something was lost, or no fault could be carried out.
    """
    from antiphon.drill import DrillPlan, FaultKind, drill_cluster, drill_server
    from antiphon.workload import AskMix

    if kind not in list(FaultKind):
        raise UsageError(f'--kind "{kind}": must be kill or stop')
    if url is not None and (model, config, kv_memory) != (None, None, None):
        raise UsageError("--url hits a server that runs: give no model and no settings with it")
    if api_key_file is not None and url is None:
        raise UsageError("--api-key-file goes with --url: a cluster of the drill's own has no keys")
    plan = DrillPlan(
        kind=FaultKind(kind),
        seed=seed,
        duration_s=duration,
        every_s=every,
        stop_for_s=stop_for,
        rate_per_s=rate,
        asks=asks,
        mix=AskMix(
            prompt_words=_range(prompt_words, "--prompt-words"),
            max_tokens=_range(max_tokens, "--max-tokens"),
        ),
    )
    arguments = [model] if model else []
    for name, value in (("prefill", prefill), ("decode", decode), ("mixed", mixed)):
        arguments += [f"--{name}", str(value)]
    arguments += ["--kv-memory", kv_memory] if kv_memory else []
    arguments += ["--config", str(config)] if config else []
    try:
        with Progress() as progress:
            if url is None:
                report = drill_cluster(plan, arguments, progress.say)
            else:
                report = drill_server(plan, url, progress.say, _key(api_key_file))
    except PeerError as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(report.as_mapping(), indent=2))
    else:
        for line in report.lines():
            tell(line)
    raise typer.Exit(0 if report.passed else 1)


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        lines = file.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--api-key-file {file}: can't be read ({error})") from None
    if not lines:
        raise UsageError(f"--api-key-file {file}: holds no key")
    return lines[0]


def _range(text: str, option: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if low.isascii() and low.isdigit() and high.isascii() and high.isdigit():
        ends = int(low), int(high)
        if 1 <= ends[0] <= ends[1] <= _LONGEST:
            return ends
    raise UsageError(f'{option} "{text}": must be two numbers of 1 to {_LONGEST}, such as 8-48')
