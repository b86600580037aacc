"""Load, workers and attainment over time, and goodput against cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .planned_fleets import Outcome
from .varying_load import VaryingLoad


def draw(
    load: VaryingLoad, statics: Sequence[Outcome], planners: Sequence[Outcome], path: Path
) -> None:
    """Over time: the first planner, and the best static fleet of its cost."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, ((rates, goodput), (workers, met)) = pyplot.subplots(2, 2, figsize=(12, 7))
    one = planners[0]
    _rates(rates, load, one)
    _workers(workers, load, one)
    _goodput(goodput, statics, planners)
    affordable = [fleet for fleet in statics if fleet.mean_devices <= -(-one.mean_devices // 1)]
    fleets = [one, *sorted(affordable, key=lambda fleet: -fleet.met)[:1]]
    for fleet in fleets:
        times = [at for at, _, _ in fleet.windows]
        shares = [within / calls if calls else None for _, calls, within in fleet.windows]
        met.step(times, shares, where="post", label=fleet.name)
    met.set(xlabel="seconds", ylabel="share within both targets", ylim=(0, 1.05))
    met.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _rates(axes: Any, load: VaryingLoad, one: Outcome) -> None:
    times = [load.duration_s * n / 300 for n in range(301)]
    axes.plot(times, [load.per_s(at) for at in times], color="0.6", label="true rate")
    axes.plot(*zip(*one.expected, strict=True), ":", color="0.2", label="highest in the forecast")
    axes.set(ylabel="requests/s", xlim=(0, load.duration_s), ylim=(0, None), title=one.name)
    axes.legend(fontsize=7, loc="upper left")


def _workers(axes: Any, load: VaryingLoad, one: Outcome) -> None:
    times = [at for at, _, _ in one.sizes]
    for place, role in ((1, "prefill"), (2, "decode")):
        counts = [size[place] for size in one.sizes]
        axes.step(times, counts, where="post", label=f"{role} workers, ready or paid for")
    axes.set(xlabel="seconds", ylabel="workers", xlim=(0, load.duration_s), ylim=(0, None))
    axes.legend(fontsize=7, loc="upper left")


def _goodput(axes: Any, statics: Sequence[Outcome], planners: Sequence[Outcome]) -> None:
    for name, fleets, mark, size in (("static", statics, "o", 30), ("planner", planners, "*", 90)):
        costs = [one.mean_devices for one in fleets]
        axes.scatter(costs, [one.goodput for one in fleets], marker=mark, s=size, label=name)
    for one in (*statics, *planners):
        short = one.name.replace(" prefill, ", "P").replace(" decode", "D")
        axes.annotate(
            short.replace("planner, ", ""),
            (one.mean_devices, one.goodput),
            fontsize=6,
            xytext=(4, 3),
            textcoords="offset points",
        )
    axes.set(xlabel="mean devices", ylabel="goodput, requests/s", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=7)
