"""`antiphon plan`: which devices, how many and split how, for this traffic and these targets."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.errors import UsageError
from antiphon.host import terminable

from . import plan_options
from .interrupted import code_of
from .plan_words import PlanWords
from .progress import Progress, tell

if TYPE_CHECKING:
    from antiphon.sim.placing import PlanOrder, SearchRun


def plan(  # noqa: PLR0913  each is an option
    model: plan_options.Model,
    devices: plan_options.Devices,
    count: plan_options.Count = 8,
    node: plan_options.Node = 8,
    workload: plan_options.Workload = "chat",
    arrivals: plan_options.Arrivals = "poisson",
    slo: plan_options.Slo = None,
    slo_preset: plan_options.SloPreset = None,
    by: plan_options.By = "devices",
    price: plan_options.Price = None,
    rate: plan_options.Rate = None,
    low_affinity: plan_options.LowAffinity = False,
    weight_bits: plan_options.WeightBits = 16,
    kv_bits: plan_options.KvBits = 16,
    seeds: plan_options.Seeds = 3,
    trials: plan_options.Trials = 16,
    processes: plan_options.Processes = None,
    output: plan_options.Output = None,
    as_json: plan_options.AsJson = False,
) -> None:
    """Find the placement of MODEL that serves most calls in time for its devices, or its money.

    Prefill and decode apart or together, on which kind of device, over how many of them, in which
    ratio: candidates are bounded by closed forms, and the promising ones are run in the simulator,
    with the live router, scheduler and hand-over. Goodput is the highest rate at which 90 % of
    calls have both their first token and their tokens in time.

    \b
    antiphon plan --model llama-3-70b --devices h800,h20 --count 16 --slo ttft=500ms,tpot=50ms
    antiphon plan --model opt-13b --devices a100 --workload chat:max_context=2048 \\
                  --slo-preset chat --by money --price a100=1.5
    antiphon plan --model qwen3-32b --devices h100 --workload summarise --slo ttft=5s,tpot=60ms \\
                  --rate 20 -o plan/

    Prices are illustrative unless you say yours. Ctrl-C and SIGTERM print what is known by then.
    """
    words = PlanWords(
        model=model,
        devices=devices,
        count=count,
        node=node,
        workload=workload,
        arrivals=arrivals,
        slo=slo,
        slo_preset=slo_preset,
        by=by,
        prices=price or (),
        rate=rate,
        low_affinity=low_affinity,
        weight_bits=weight_bits,
        kv_bits=kv_bits,
        seeds=seeds,
        trials=trials,
    )
    _plan(words, processes, output, as_json=as_json)


def _plan(words: PlanWords, processes: int | None, output: Path | None, *, as_json: bool) -> None:
    """Search, and say what was found: on stdout, and in `output`."""
    if processes is not None and not 1 <= processes <= 256:
        raise UsageError(f"--processes {processes}: must be from 1 to 256")
    order = words.order()
    if output is not None:
        _check_folder(output)
    run, interrupt = _searched(order, processes or len(os.sched_getaffinity(0)))
    whole = interrupt is None

    from .plan_report import document, keep, table

    if as_json:
        tell(json.dumps(document(order, run, whole=whole), indent=2))
    else:
        tell(table(order, run, whole=whole))
    if output is not None:
        keep(output, order, run, whole=whole)
        tell(f"Kept in {output}: plan.json, plan.svg, cluster.toml", err=as_json)
    if interrupt is not None:
        raise typer.Exit(code_of(interrupt))


def _searched(order: "PlanOrder", processes: int) -> "tuple[SearchRun, KeyboardInterrupt | None]":
    """The search, run to its end, or up to what interrupted it."""
    from antiphon.core.goodput import Attainment, Goodput
    from antiphon.core.placement import Look, Trial

    begun = time.monotonic()
    with Progress() as progress:
        progress.say("Looking at what fits")
        run = order.search_run()
        search = run.search
        all_of_them = len(search.promises)

        def heard(trial: Trial, answer: Goodput | Attainment) -> None:
            ranking = search.ranking()
            if trial.look is Look.GLANCE:
                looked = len(ranking) + len(search.beaten)
                most = min(all_of_them - len(search.pruned), search.effort.most_trials)
                what = f"glance {looked} of {most} at most"
            else:
                told = sum(len(one.rates_per_s) for one in ranking if one.look is Look.FULL)
                what = f"full run {told} of {len(search.finalists) * search.effort.seeds}"
            best = f"; best so far: {ranking[0].promise.candidate.text}" if ranking else ""
            progress.say(
                f"{time.monotonic() - begun:.0f} s, {what}: {trial.promise.candidate.text}{best}"
            )

        progress.say(f"{all_of_them} candidates; simulating the most promising")
        try:
            with terminable():
                run.run(processes=processes, on_progress=heard)
        except KeyboardInterrupt as interrupt:
            return run, interrupt
    return run, None


def _check_folder(folder: Path) -> None:
    """Raise `UsageError` if a plan can't be kept there: better now than in five minutes."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {folder}: is not an empty folder: give another one")
    above = folder.absolute()
    while not above.exists():
        above = above.parent
    if not os.access(above, os.W_OK):
        raise UsageError(f"--output {folder}: can't be written")
