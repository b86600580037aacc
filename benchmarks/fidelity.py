"""The simulator against the live cluster: the same calls, on two cores and in virtual time.

    .venv/bin/antiphon profile smollm2-135m --cores 0 -o /tmp/profile.json   once
    .venv/bin/python benchmarks/fidelity.py --profile /tmp/profile.json         15 quiet minutes
    .venv/bin/python benchmarks/fidelity.py --profile FILE --seconds 10         to see it work

A live cluster gets chats at three rates, chosen by the profile: a slow machine gets as much to do
as a fast one. Then a virtual one with the profile's step times gets
calls at the same times, of as many tokens. Goals: attainment within 5 points, median TTFT and TPOT
within 10 %, the 99th percentiles within 25 %. Load generator, gateway and workers share the two
cores; the simulator knows of the workers only, and of what HTTP and text add to a call: that is
what calls with nobody else there take longer than their steps (`front_s`), measured before each
rate with other calls. `pace` is how long a token took those calls, by what the profile says: far
from 1, and the machine has not kept its speed since the profile was made: make another.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from support import result
from support.host_fleet import KV_BYTES_PER_TOKEN, PROFILE, host_fleet

from antiphon.bench import LoadLimits, Server, probe, run_load
from antiphon.core.config import build
from antiphon.core.goodput import Attainment, Distribution, tpot_s, ttft_s
from antiphon.drill import started
from antiphon.perf import FittedPhaseTime, read_profile
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
FIRST_CALLS, ALONE_CALLS = 5, 12
"""Calls that have the cluster for themselves; those of a process that just began do not count."""
ALONE_EVERY_CALLS = 3.0
"""From one of them to the next: as long as so many usual ones take by the profile."""
KV_BYTES = 2**30


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


def besides_steps(setup: Setup, calls: Sequence[CallRecord], profile: Path) -> tuple[float, float]:
    """Of calls that came one by one, medians: seconds besides their steps up to the first token;
    and their time of a token, by that of the profile."""
    served = sorted((one for one in calls if one.prompt_tokens), key=lambda one: one.due_at_s)
    steps = sorted(simulated(setup, served, profile, 0.0), key=lambda one: one.due_at_s)

    def both(of: Callable[[CallRecord], float | None]) -> list[tuple[float, float]]:
        pairs = zip(map(of, served), map(of, steps), strict=True)
        return [(real, ours) for real, ours in pairs if real is not None and ours is not None]

    front_s = median(real - ours for real, ours in both(ttft_s))
    return max(0.0, front_s), median(real / ours for real, ours in both(tpot_s))


def simulated(
    setup: Setup, calls: Sequence[CallRecord], profile: Path, front_s: float
) -> Sequence[CallRecord]:
    """The same calls in virtual time."""
    config = build(
        {
            "router": {"ttft_s": SLO.ttft_s, "tpot_s": SLO.tpot_s},
            "kv": {"memory_bytes": KV_BYTES},
        }
    )
    steps = read_profile(profile).step_time
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
    "ttft_p50_s": 0.10,
    "tpot_p50_s": 0.10,
    "ttft_p99_s": 0.25,
    "tpot_p99_s": 0.25,
}


def row(setup: Setup, rate: float, real: Mapping[str, float], ours: Mapping[str, float]) -> str:
    """One line of the table; ! marks what is outside its goal."""
    off = ours["attainment"] - real["attainment"]
    cells = [f"{real['attainment']:.0%} {off * 100:+.0f}{'!' if abs(off) > 0.05 else ''}"]
    for name, goal in GOALS.items():
        error = ours[name] / real[name] - 1
        mark = "!" if abs(error) > goal else ""
        cells.append(f"{real[name] * 1e3:.0f} ms {error:+.0%}{mark}")
    return f"| {setup.name} | {rate:.2g}/s | " + " | ".join(cells) + " |"


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
    phases = FittedPhaseTime(step_time=profile.step_time, step_tokens=PROMPT)
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
            alone, calls = await live(setup, rate, options.profile.resolve(), seconds, every_s)
            real, (front, pace) = facts(calls), besides_steps(setup, alone, options.profile)
            ours = facts(simulated(setup, calls, options.profile, front))
            besides = f"front {front * 1e3:.0f} ms, pace {pace:.2f}"
            print(row(setup, rate, real, ours), besides, flush=True)
            told = {
                "cluster": setup.name,
                "prompts_share": share,
                "rate_per_s": rate,
                "front_s": front,
                "pace": pace,
            }
            found.append({**told, "live": real, "sim": ours})
    if options.seconds is None:
        print(result.write("fidelity", {"slo": asdict(SLO), "runs": found}))


if __name__ == "__main__":
    asyncio.run(main())
