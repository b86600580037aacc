"""Goodput of one prefill and one decode worker against two mixed ones, on the same two cores.

    .venv/bin/python benchmarks/goodput.py                20 minutes; writes results/goodput.*
    .venv/bin/python benchmarks/goodput.py --minutes 2    to see it work; writes nothing

For each workload and cluster, goodput is searched for as `antiphon bench --find-goodput` does, at
SLO scale 1 first. A run's calls can be judged by any targets, so each further scale begins with all
that was measured before, and measures only what is still missing, until the time is over.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from support import result

from antiphon.bench import LoadLimits, Server, find_goodput, probe, run_load
from antiphon.core.goodput import (
    Attainment,
    Goodput,
    GoodputSearch,
    SearchRules,
    Slos,
    StopReason,
    scaled_all,
)
from antiphon.drill import started
from antiphon.runs import LoadPlan
from antiphon.types import CallRecord, Slo
from antiphon.workload import Mix, Poisson, Workload, parse_workload

SCALES = (1.0, 0.5, 2.0, 0.75, 1.5)
"""In the order in which they get their time."""
WARMUP_S = 3.0
FULL_MINUTES = 15.0
"""Shorter runs are for trying, and are not kept."""
LIMITS = LoadLimits(timeout_s=60.0, drain_s=15.0)


@dataclass(frozen=True)
class Traffic:
    """A workload, its targets, and the rate at which its search begins.

    `server`: the targets that the server is told, and acts on.
    """

    name: str
    workload: Workload
    slos: Slos
    server: Slo
    start_per_s: float


@dataclass(frozen=True)
class Cluster:
    """One way to use the two cores."""

    name: str
    arguments: tuple[str, ...]


CHATS = parse_workload(
    "chat:input=lognormal:mean=100,sd=100,min=8,output=lognormal:mean=40,sd=30,min=8"
)
LONG = parse_workload("summarise:input=lognormal:mean=1000,sd=300,min=300,output=8-32")
CHAT_SLO, LONG_SLO = Slo(ttft_s=1.0, tpot_s=0.02), Slo(ttft_s=4.0, tpot_s=0.05)
TRAFFIC = (
    Traffic("chats", CHATS, (("chat", CHAT_SLO),), CHAT_SLO, 2.0),
    Traffic(
        "chats, one in five a long prompt",
        Mix(((CHATS, 0.8), (LONG, 0.2))),
        (("chat", CHAT_SLO), ("summarise", LONG_SLO)),
        CHAT_SLO,
        1.0,
    ),
)
CLUSTERS = (
    Cluster("1 prefill, 1 decode", ("--prefill", "1", "--decode", "1")),
    Cluster("2 mixed", ("--mixed", "2")),
)
DEVICES = 2


class OutOfTime(Exception):
    """The search's share of the time is spent: what it has found by now counts."""


@dataclass
class Measurement:
    """One workload on one cluster: runs by rate, and what they say at each scale."""

    server: Server
    traffic: Traffic
    rules: SearchRules
    ends_at: float
    runs: list[tuple[float, Sequence[CallRecord]]] = field(default_factory=list)

    async def search(self, scale: float) -> None:
        """Measure what goodput at this scale still needs. Mutates; returns early out of time."""
        with contextlib.suppress(OutOfTime):
            await find_goodput(
                self.so_far(scale),
                self._measure,
                scaled_all(self.traffic.slos, scale),
                warmup_s=WARMUP_S,
            )

    def so_far(self, scale: float) -> GoodputSearch:
        """A search at this scale that has heard of all runs."""
        search = GoodputSearch(self.rules)
        slos = scaled_all(self.traffic.slos, scale)
        for rate, records in self.runs:
            search.observe(rate, Attainment.of(records, slos, warmup_s=WARMUP_S))
        return search

    async def _measure(self, rate_per_s: float, duration_s: float) -> Sequence[CallRecord]:
        if time.monotonic() + duration_s > self.ends_at:
            raise OutOfTime
        plan = LoadPlan(
            workload=self.traffic.workload,
            arrivals=Poisson(rate_per_s),
            calls_per_session=1.0,
            duration_s=duration_s,
            seed=1 + len(self.runs),
        )
        records: list[CallRecord] = []
        came = await run_load(self.server, plan.sessions(), observe=records.append, limits=LIMITS)
        self.runs.append((rate_per_s, records))
        met = Attainment.of(records, self.traffic.slos, warmup_s=WARMUP_S).both()
        print(
            f"    {rate_per_s:6.3g}/s for {duration_s:3.0f} s: {met.value:4.0%} of {len(records)} "
            f"within targets, {came.failed} failed, sent {came.lateness_p99_s * 1e3:.0f} ms late",
            flush=True,
        )
        return records


async def measure(
    cluster: Cluster, traffic: Traffic, options: argparse.Namespace, seconds: float
) -> Mapping[float, Goodput]:
    """Goodput at each scale."""
    print(f"{traffic.name}, {cluster.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "targets.toml"
        targets = traffic.server
        config.write_text(f"[router]\nttft_s = {targets.ttft_s}\ntpot_s = {targets.tpot_s}\n")
        arguments = [*cluster.arguments, "--cores", options.cores, "--kv-memory", "1GiB"]
        async with started([*arguments, "--config", str(config)]) as target:
            probed = await probe(Server(url=target.url, model=target.model))
            measurement = Measurement(
                server=probed.server,
                traffic=traffic,
                rules=SearchRules(
                    tolerance=options.tolerance,
                    start_per_s=traffic.start_per_s,
                    lowest_per_s=0.02,
                    run_s=options.run,
                    longest_run_s=2 * options.run,
                    least_calls=options.calls,
                    runs_per_rate=2,
                    devices=DEVICES,
                ),
                ends_at=time.monotonic() + seconds,
            )
            for scale in SCALES:
                await measurement.search(scale)
    return {scale: measurement.so_far(scale).result() for scale in sorted(SCALES)}


def facts(found: Goodput) -> dict[str, object]:
    return {
        "per_device": found.per_device,
        "fails_at_per_device": found.fails_at_per_s and found.fails_at_per_s / found.devices,
        "stopped": found.stopped,
        "runs": sum(probe.runs for probe in found.probes),
        "attainment_by_rate": {
            f"{probe.rate_per_s:g}": round(probe.attainment.both().value, 3)
            for probe in found.probes
        },
    }


def ratio(found: Mapping[str, Mapping[float, Goodput]], scale: float) -> float | None:
    """Goodput of the first cluster to the second's; None: there is no ratio."""
    first, second = (found[cluster.name][scale].rate_per_s for cluster in CLUSTERS)
    return first / second if second > 0 else None


def table(found: Mapping[str, Mapping[str, Mapping[float, Goodput]]]) -> str:
    """Markdown: goodput per device, and the split's ratio."""
    names = [cluster.name for cluster in CLUSTERS]
    lines = [["workload", "SLO scale", *names, "ratio"], ["---"] * 5]
    for traffic, clusters in found.items():
        for scale in sorted(SCALES):
            cells = [cell(clusters[name][scale]) for name in names]
            told = ratio(clusters, scale)
            lines.append([traffic, f"{scale:g}", *cells, "–" if told is None else f"{told:.2f}×"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(found: Goodput) -> str:
    """Per device; why the search ended, if it has not found it as exactly as was wanted."""
    mark = "" if found.stopped is StopReason.FOUND else f" ({found.stopped})"
    return f"{found.per_device:.3g}/s{mark}"


def draw(found: Mapping[str, Mapping[str, Mapping[float, Goodput]]], path: Path) -> None:
    """Goodput against SLO scale; the band reaches to the lowest rate that fails."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4.6 * len(found), 4), squeeze=False)
    for place, (traffic, clusters) in zip(axes[0], found.items(), strict=True):
        for name, by_scale in clusters.items():
            scales = sorted(by_scale)
            passes = [by_scale[scale].per_device for scale in scales]
            fails = [upper(by_scale[scale]) for scale in scales]
            (line,) = place.plot(scales, passes, marker="o", label=name)
            place.fill_between(scales, passes, fails, color=line.get_color(), alpha=0.15)
        place.set(title=traffic, xlabel="SLO scale (left: stricter)", ylim=(0, None))
        place.grid(alpha=0.3)
    axes[0][0].set_ylabel("goodput, requests/s per device")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def upper(found: Goodput) -> float:
    """The lowest rate that fails, per device; none did: the one that passes."""
    fails = found.rate_per_s if found.fails_at_per_s is None else found.fails_at_per_s
    return fails / found.devices


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="of load, all in all")
    parser.add_argument("--cores", default="0,1", help="the two cores")
    parser.add_argument("--run", type=float, default=25.0, help="seconds of load of one run")
    parser.add_argument("--calls", type=int, default=50, help="least calls of a run")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of a search")
    options = parser.parse_args()
    seconds = options.minutes * 60 / (len(TRAFFIC) * len(CLUSTERS))
    found: dict[str, dict[str, Mapping[float, Goodput]]] = {}
    for traffic in TRAFFIC:
        found[traffic.name] = {
            cluster.name: await measure(cluster, traffic, options, seconds) for cluster in CLUSTERS
        }
    print(table(found))
    if options.minutes < FULL_MINUTES:
        return
    draw(found, result.RESULTS / "goodput.svg")
    told = {
        traffic.name: {
            "workload": traffic.workload.description,
            "targets": {name: asdict(slo) for name, slo in traffic.slos},
            "goodput": {
                cluster: {f"{scale:g}": facts(one) for scale, one in by_scale.items()}
                for cluster, by_scale in found[traffic.name].items()
            },
            "ratio": {f"{scale:g}": ratio(found[traffic.name], scale) for scale in sorted(SCALES)},
        }
        for traffic in TRAFFIC
    }
    print(result.write("goodput", {"minutes": options.minutes, "devices": DEVICES, **told}))


if __name__ == "__main__":
    asyncio.run(main())
