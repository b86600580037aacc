"""The simulator against the live cluster: the same calls, on two cores and in virtual time.

    .venv/bin/antiphon profile smollm2-135m --cores 0 -o /tmp/profile.json   once
    .venv/bin/python benchmarks/fidelity.py --profile /tmp/profile.json         45 quiet minutes
    .venv/bin/python benchmarks/fidelity.py --profile FILE --seconds 10         to see it work

A live cluster gets chats at three rates, chosen by the profile: a slow machine gets as much to do
as a fast one. Then a virtual one with the profile's step times gets
calls at the same times, of as many tokens. Goals: attainment within 5 points, median TTFT and TPOT
within 10 %, the 99th percentiles within 25 %. Load generator, gateway and workers share the two
cores; the simulator knows of the workers only, and of what HTTP and text add to a call (`front_s`).

Machines that others share don't keep the speed that they had when the profile was made. So calls
that have the cluster for themselves come right before each load, other ones than the load's: from
how long they take beside what the profile says follow `front_s` and `pace`, by which all step times
are multiplied. (`sim_unpaced` is kept too: what comes out without.) And each load is given to the
live cluster twice, with a start of its own each: how far these two are apart is what no simulator
can be better than, and stands in brackets where it alone is more than the goal.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from support import result
from support.host_fleet import KV_BYTES_PER_TOKEN, PROFILE, host_fleet

from antiphon.bench import LoadLimits, Server, probe, run_load
from antiphon.core.config import build
from antiphon.core.goodput import Attainment, Distribution, e2e_s, tpot_s, ttft_s
from antiphon.drill import started
from antiphon.perf import FittedPhaseTime, FittedStepTime, read_profile
from antiphon.perf.step_time import Ramp
from antiphon.sim.fleet import Fleet, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.types import CallRecord, Role, Slo
from antiphon.workload import Constant, Poisson, parse_workload, timed

PROMPT, ANSWER = 200, 40
CHATS = parse_workload(
    f"chat:input=lognormal:mean={PROMPT},sd={PROMPT},min=8,"
    f"output=lognormal:mean={ANSWER},sd=30,min=8"
)
SLO = Slo(ttft_s=1.0, tpot_s=0.03)
WARMUP_S = 3.0
FULL_S, FULL_CALLS = 60.0, 60
"""Of each rate's load, at least."""
FIRST_CALLS, ALONE_CALLS = 5, 16
"""Calls that have the cluster for themselves; those of a process that just began do not count."""
ALONE_EVERY_CALLS = 3.0
"""From one of them to the next: as long as so many usual ones take by the profile."""
KV_BYTES = 2**30
LIVES = 2
"""How often the live cluster gets the same load."""


@dataclass(frozen=True)
class Setup:
    """A cluster of two cores at most: how it is started, and what it is in the simulator."""

    name: str
    arguments: tuple[str, ...]
    roles: tuple[Role, ...]
    prompts_share: tuple[float, ...]
    """What the prompts alone would take of one core's time, at each of three rates."""


SETUPS = (
    Setup("1 mixed", ("--mixed", "1", "--cores", "0"), (Role.MIXED,), (0.08, 0.16, 0.24)),
    Setup("2 mixed", ("--mixed", "2", "--cores", "0,1"), (Role.MIXED,) * 2, (0.15, 0.30, 0.45)),
    Setup(
        "1 prefill, 1 decode",
        ("--prefill", "1", "--decode", "1", "--cores", "0,1"),
        (Role.PREFILL, Role.DECODE),
        (0.15, 0.30, 0.45),
    ),
)


async def live(
    setup: Setup, rate: float, profile: Path, seconds: float, every_s: float
) -> tuple[Sequence[CallRecord], Sequence[CallRecord]]:
    """What clients of a real cluster saw: some who came `every_s`, and those of the load."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "cluster.toml"
        config.write_text(
            f'[router]\nttft_s = {SLO.ttft_s}\ntpot_s = {SLO.tpot_s}\nprofile = "{profile}"\n'
        )
        arguments = [*setup.arguments, "--kv-memory", str(KV_BYTES), "--store", "off"]
        async with started([*arguments, "--config", str(config)]) as target:
            probed = await probe(Server(url=target.url, model=target.model))
            found: list[list[CallRecord]] = []
            for arrivals, seed, for_s in (
                (Constant(1 / every_s), 3, FIRST_CALLS * every_s),
                (Constant(1 / every_s), 2, ALONE_CALLS * every_s),
                (Poisson(rate), 1, seconds),
            ):
                found.append([])
                sessions = timed(CHATS, arrivals, seed=seed, duration_s=for_s)
                limits = LoadLimits(timeout_s=60.0)
                await run_load(probed.server, sessions, observe=found[-1].append, limits=limits)
            return found[1], found[2]


def besides_steps(
    setup: Setup, calls: Sequence[CallRecord], steps: FittedStepTime
) -> tuple[float, float]:
    """Of calls that came one by one: seconds besides their steps, and how long these took by those
    of the profile. The line through (virtual, real) times of the calls, by Theil and Sen."""
    served = sorted((one for one in calls if one.prompt_tokens), key=lambda one: one.due_at_s)
    virtual = sorted(simulated(setup, served, steps, 0.0), key=lambda one: one.due_at_s)
    times = [(e2e_s(ours), e2e_s(real)) for real, ours in zip(served, virtual, strict=True)]
    pace = median(
        (one[1] - other[1]) / (one[0] - other[0])
        for one, other in combinations(times, 2)
        if one[0] != other[0]
    )
    pairs = zip(map(ttft_s, served), map(ttft_s, virtual), strict=True)
    front_s = median(
        real - pace * ours for real, ours in pairs if real is not None and ours is not None
    )
    return max(0.0, front_s), pace


def at_pace(steps: FittedStepTime, pace: float) -> FittedStepTime:
    """Step times of a machine that takes `pace` times as long for everything."""

    def slower(ramp: Ramp) -> Ramp:
        slopes_s = tuple(pace * slope for slope in ramp.slopes_s)
        return Ramp(starts=ramp.starts, slopes_s=slopes_s)

    return FittedStepTime(
        fixed_s=pace * steps.fixed_s,
        token=slower(steps.token),
        sampled=slower(steps.sampled),
        chunk_s=pace * steps.chunk_s,
        context_s=pace * steps.context_s,
        attention_s=pace * steps.attention_s,
    )


def simulated(
    setup: Setup, calls: Sequence[CallRecord], steps: FittedStepTime, front_s: float
) -> Sequence[CallRecord]:
    """The same calls in virtual time."""
    config = build(
        {
            "router": {"ttft_s": SLO.ttft_s, "tpot_s": SLO.tpot_s},
            "kv": {"memory_bytes": KV_BYTES},
        }
    )
    phases = FittedPhaseTime(step_time=steps, step_tokens=config.scheduler.max_batched_tokens)
    pools = tuple(
        Pool(
            name=role.value,
            role=role,
            workers=setup.roles.count(role),
            step_time=steps,
            phases=phases,
            kv_tokens=KV_BYTES // KV_BYTES_PER_TOKEN,
        )
        for role in dict.fromkeys(setup.roles)
    )
    spec = host_fleet(pools, config, phases)
    records: list[CallRecord] = []
    rules = UserRules(slos=(("", SLO),), front_s=front_s)
    Fleet(spec, sessions_of(calls), rules, records.append).run()
    return records


def sessions_of(calls: Sequence[CallRecord]) -> Iterator[TokenSession]:
    """A session for each call that was served, with a prompt of its own."""
    for call in sorted(calls, key=lambda one: one.due_at_s):
        if call.prompt_tokens:
            prompt = answer_tokens(call.number, 1, call.prompt_tokens)
            turn = TokenTurn((prompt,), call.output_tokens)
            yield TokenSession(call.due_at_s, call.number, (turn,))


def facts(records: Sequence[CallRecord]) -> dict[str, float]:
    """What is compared."""
    counted = [one for one in records if one.due_at_s >= WARMUP_S]
    attainment = Attainment.of(records, (("", SLO),), warmup_s=WARMUP_S)
    first = Distribution.of(x for one in counted if (x := ttft_s(one)) is not None)
    each = Distribution.of(x for one in counted if (x := tpot_s(one)) is not None)
    assert first is not None
    assert each is not None
    return {
        "calls": len(counted),
        "attainment": attainment.both().value,
        "ttft_p50_s": first.p50,
        "ttft_p99_s": first.p99,
        "tpot_p50_s": each.p50,
        "tpot_p99_s": each.p99,
    }


GOALS: Mapping[str, float] = {
    "attainment": 0.05,
    "ttft_p50_s": 0.10,
    "tpot_p50_s": 0.10,
    "ttft_p99_s": 0.25,
    "tpot_p99_s": 0.25,
}


def difference(name: str, one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Of attainment in its own unit, else as a ratio."""
    return one[name] - other[name] if name == "attainment" else one[name] / other[name] - 1


def row(
    setup: Setup,
    rate: float,
    lives: Sequence[Mapping[str, float]],
    real: Mapping[str, float],
    ours: Mapping[str, float],
) -> str:
    """One line of the table; ! marks what is outside its goal, (n) lives that far apart."""
    cells: list[str] = []
    for name, goal in GOALS.items():
        off, apart = difference(name, ours, real), abs(difference(name, *lives))
        was = f"{real[name]:.0%}" if name == "attainment" else f"{real[name] * 1e3:.0f} ms"
        mark = "!" if abs(off) > goal else ""
        cells.append(f"{was} {off * 100:+.0f}{mark}" + (f" ({apart:.0%})" if apart > goal else ""))
    return f"| {setup.name} | {rate:.2g}/s | " + " | ".join(cells) + " |"


def told_of(besides: Sequence[tuple[float, float]]) -> str:
    """Of each live run: what its calls take besides their steps, and the pace of these."""
    return "; ".join(f"front {front * 1e3:.0f} ms, pace {pace:.2f}" for front, pace in besides)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--profile", type=Path, default=PROFILE, help="of one core of this machine; it has to be"
    )
    parser.add_argument("--seconds", type=float, help="of load at each rate; nothing is kept")
    options = parser.parse_args()
    profile = read_profile(options.profile)
    steps = profile.step_time
    phases = FittedPhaseTime(step_time=steps, step_tokens=PROMPT)
    a_prompt_s = phases.prefill_s(PROMPT)
    every_s = ALONE_EVERY_CALLS * (a_prompt_s + ANSWER * phases.decode_step_s(1, PROMPT))
    machine = profile.engine.machine
    if result.cpu_model() not in machine:
        print(f"The profile is of another machine ({machine}): measure one of this, see --help")
    print("| cluster | rate | attainment | TTFT p50 | TPOT p50 | TTFT p99 | TPOT p99 |")
    print("|---|---|---|---|---|---|---|")
    found: list[dict[str, object]] = []
    for setup in SETUPS:
        for share in setup.prompts_share:
            rate = share / a_prompt_s
            seconds = options.seconds or max(FULL_S, FULL_CALLS / rate)
            runs = [
                await live(setup, rate, options.profile.resolve(), seconds, every_s)
                for _ in range(LIVES)
            ]
            besides = [besides_steps(setup, alone, steps) for alone, _ in runs]
            paced: list[CallRecord] = []
            unpaced: list[CallRecord] = []
            for (_, calls), (front_s, pace) in zip(runs, besides, strict=True):
                paced += simulated(setup, calls, at_pace(steps, pace), front_s)
                unpaced += simulated(setup, calls, steps, front_s)
            lives = [facts(calls) for _, calls in runs]
            real = facts([call for _, calls in runs for call in calls])
            ours = facts(paced)
            print(row(setup, rate, lives, real, ours), told_of(besides), flush=True)
            found.append(
                {
                    "cluster": setup.name,
                    "prompts_share": share,
                    "rate_per_s": rate,
                    "front_s": [front_s for front_s, _ in besides],
                    "pace": [pace for _, pace in besides],
                    "live": real,
                    "sim": ours,
                    "sim_unpaced": facts(unpaced),
                    "lives": lives,
                }
            )
    if options.seconds is None:
        print(result.write("fidelity", {"slo": asdict(SLO), "runs": found}))


if __name__ == "__main__":
    asyncio.run(main())
