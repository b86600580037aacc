"""A fleet small enough for tests, on devices whose times can be told by hand."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from antiphon.core.config import build
from antiphon.core.faults import FaultPlan
from antiphon.perf import FittedPhaseTime, FittedStepTime, LinkTime, Ramp
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role

STEPS = FittedStepTime(
    fixed_s=0.01,
    token=Ramp(starts=(0,), slopes_s=(1e-4,)),
    sampled=Ramp(starts=(0,), slopes_s=(1e-4,)),
    chunk_s=0.0,
    context_s=1e-7,
    attention_s=0.0,
)
PHASES = FittedPhaseTime(step_time=STEPS, step_tokens=512)
LINK = LinkTime(setup_s=0.001, bytes_per_s=1e9)
PAGE = 16


def pool(role: Role, workers: int, *, kv_tokens: int = 20_000) -> Pool:
    """Workers of the device above."""
    return Pool(
        name=role.value,
        role=role,
        workers=workers,
        step_time=STEPS,
        phases=PHASES,
        kv_tokens=kv_tokens,
    )


def spec(
    *pools: Pool, faults: FaultPlan | None = None, repeats: int = 64, policy: str = "slo"
) -> FleetSpec:
    """A fleet of these pools."""
    config = build(
        {
            "kv": {"page_tokens": PAGE, "block_tokens": 64},
            "cluster": {"heartbeat_s": 0.25, "lost_after_s": 2.0},
            "router": {"policy": policy, "ttft_s": 1.0, "tpot_s": 0.1},
        }
    )
    made = FleetSpec(
        pools=pools,
        config=config,
        expected=Expected(PHASES, LINK),
        transfer=LINK,
        kv_bytes_per_token=1000,
        max_model_len=4096,
        repeats=repeats,
    )
    return made if faults is None else replace(made, faults=faults)


def single_calls(
    count: int, every_s: float, *, prompt: int = 100, output: int = 20
) -> Iterator[TokenSession]:
    """Calls that share nothing, at even times."""
    for number in range(count):
        turn = TokenTurn((answer_tokens(number, 9, prompt),), output)
        yield TokenSession(number * every_s, number, (turn,))


@dataclass(frozen=True)
class Ran:
    """A run that is over."""

    fleet: Fleet
    records: list[CallRecord]


def ran(fleet: FleetSpec, sessions: Iterable[TokenSession], rules: UserRules | None = None) -> Ran:
    """Run it to its end."""
    records: list[CallRecord] = []
    made = Fleet(fleet, iter(sessions), rules or UserRules(), records.append)
    made.run(drain_s=200.0)
    return Ran(made, sorted(records, key=lambda one: one.number))
