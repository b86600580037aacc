"""`antiphon drill`: faults on a live cluster under load."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.errors import PeerError, UsageError

from . import drill_options, options
from .key_file import first_key
from .progress import Progress, tell

if TYPE_CHECKING:
    from antiphon.drill import DrillPlan, DrillReport
    from antiphon.types import Role

_SHAPE = {"prefill": 2, "decode": 2, "mixed": 0}
_EVERY_S, _STOP_FOR_S = 5.0, 5.0


def drill(
    model: options.Model = None,
    plan: drill_options.PlanFile = None,
    kind: drill_options.Kind = None,
    seed: drill_options.Seed = None,
    duration: drill_options.Duration = None,
    every: drill_options.Every = None,
    stop_for: drill_options.StopFor = None,
    rate: drill_options.Rate = None,
    asks: drill_options.Asks = None,
    prompt_words: drill_options.PromptWords = None,
    max_tokens: drill_options.MaxTokens = None,
    prefill: drill_options.Prefill = None,
    decode: drill_options.Decode = None,
    mixed: drill_options.Mixed = None,
    url: drill_options.Url = None,
    api_key_file: drill_options.ApiKeyFile = None,
    dry_run: drill_options.DryRun = False,
    output: drill_options.Output = None,
    as_json: drill_options.AsJson = False,
    kv_memory: options.KvMemory = None,
    config: options.ConfigFile = None,
) -> None:
    """Play faults on a live cluster under load, and show that no request is lost.

    First all chats are asked without faults. Then they come at random times while faults happen:
    those of a plan, or every few seconds one of a random worker whose phase another worker still
    serves. Every answer must be what it was before, to the last token; afterwards nothing may be
    left: no request, no page.

    \b
    antiphon drill                                  a cluster of its own: 2 prefill, 2 decode
    antiphon drill --kind mixed --seed 7
    antiphon drill --plan faults.toml --dry-run     what would happen, and when
    antiphon drill --plan faults.toml -o drill/     with its report and a plot
    antiphon drill --duration 3600 --every 10       an hour of it
    antiphon drill --url http://127.0.0.1:8000      the server that runs there

    Exit code 0: passed. 1: something was lost, or a fault could not be carried out. 2: it could not
    begin as it was asked for.
    """
    _check_server(url, api_key_file, (model, config, kv_memory, prefill, decode, mixed))
    chosen = _plan(plan, seed, kind=kind, every=every, stop_for=stop_for)
    chosen = _with_load(
        chosen,
        duration_s=duration,
        rate_per_s=rate,
        asks=asks,
        prompt_words=prompt_words,
        max_tokens=max_tokens,
    )
    chosen.faults()
    given = {"prefill": prefill, "decode": decode, "mixed": mixed}
    shape = {role: _SHAPE[role] if count is None else count for role, count in given.items()}
    if url is None:
        _check_own(chosen, shape, model)
    if dry_run:
        _show(chosen, shape if url is None else {})
        return
    if output is not None:
        _make_folder(output)
    arguments = _arguments(model, shape, kv_memory, config)
    report = _drilled(chosen, arguments, url, api_key_file)
    _tell(report, chosen, output, as_json=as_json)
    raise typer.Exit(0 if report.passed else 1)


def _check_server(url: str | None, api_key_file: Path | None, own: Sequence[object]) -> None:
    """Raise `UsageError` if a server that runs is named beside options of one of our own."""
    if url is not None and any(value is not None for value in own):
        raise UsageError(
            "--url hits a server that runs: give no model, no workers and no settings with it"
        )
    if api_key_file is not None and url is None:
        raise UsageError("--api-key-file goes with --url: a cluster of the drill's own has no keys")


def _arguments(
    model: str | None, shape: Mapping[str, int], kv_memory: str | None, config: Path | None
) -> list[str]:
    """Of `antiphon serve`, for a cluster of the drill's own."""
    arguments = [model] if model else []
    for name, value in shape.items():
        arguments += [f"--{name}", str(value)]
    arguments += ["--kv-memory", kv_memory] if kv_memory else []
    return arguments + (["--config", str(config)] if config else [])


def _tell(report: "DrillReport", plan: "DrillPlan", folder: Path | None, *, as_json: bool) -> None:
    if folder is not None:
        from antiphon.drill import write_report

        write_report(folder, report, plan.load)
    if as_json:
        typer.echo(json.dumps(report.as_mapping(), indent=2))
        return
    for line in report.lines():
        tell(line)


def _plan(
    file: Path | None,
    seed: int | None,
    *,
    kind: str | None,
    every: float | None,
    stop_for: float | None,
) -> "DrillPlan":
    from antiphon.drill import DrillPlan, FaultKind, random_faults, read_plan

    if file is not None:
        for option, value in (("--kind", kind), ("--every", every), ("--stop-for", stop_for)):
            if value is not None:
                raise UsageError(f"{option} goes without --plan: the plan says what happens when")
        return read_plan(file, seed)
    if kind is not None and kind not in list(FaultKind):
        raise UsageError(f'--kind "{kind}": must be kill, stop or mixed')
    schedule = random_faults(
        FaultKind(kind or FaultKind.KILL),
        seed=seed or 0,
        every_s=every or _EVERY_S,
        stop_for_s=stop_for or _STOP_FOR_S,
    )
    return DrillPlan(schedule=schedule)


def _with_load(
    plan: "DrillPlan", *, prompt_words: str | None, max_tokens: str | None, **given: float | None
) -> "DrillPlan":
    """Options go over the plan's own load."""
    mix = plan.load.mix
    if prompt_words is not None:
        mix = replace(mix, prompt_words=_range(prompt_words, "--prompt-words"))
    if max_tokens is not None:
        mix = replace(mix, max_tokens=_range(max_tokens, "--max-tokens"))
    said = {name: value for name, value in given.items() if value is not None}
    return replace(plan, load=replace(plan.load, mix=mix, **said))


def _workers(shape: Mapping[str, int]) -> Sequence[tuple[str, "Role"]]:
    from antiphon.types import Role

    roles = [role for role in Role if role.value in shape]
    return [(f"{role}-{number}", role) for role in roles for number in range(shape[role.value])]


def _check_own(plan: "DrillPlan", shape: Mapping[str, int], model: str | None) -> None:
    """Raise `UsageError` for what can be known of a cluster of the drill's own beforehand."""
    from antiphon.checkpoint import here
    from antiphon.drill import check_feasible

    if model is not None and not model.endswith(".toml"):
        here(model)
    check_feasible(plan.faults(), _workers(shape))


def _show(plan: "DrillPlan", shape: Mapping[str, int]) -> None:
    """Of a server that runs (no `shape`) nobody is asked who its workers are."""
    from antiphon.core.faults import schedule_lines

    for line in schedule_lines(plan.faults(), plan.seed, _workers(shape)):
        tell(line)


def _drilled(
    plan: "DrillPlan", arguments: list[str], url: str | None, key_file: Path | None
) -> "DrillReport":
    from antiphon.drill import drill_cluster, drill_server

    try:
        with Progress() as progress:
            if url is None:
                return drill_cluster(plan, arguments, progress.say)
            return drill_server(plan, url, progress.say, first_key(key_file))
    except PeerError as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: can't be made: {error.strerror}") from None


def _range(text: str, option: str) -> tuple[int, int]:
    from antiphon.drill import parse_range

    try:
        return parse_range(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
