"""Small fleets in virtual time, with DistServe's published OPT-13B on A100s, and callers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from antiphon.core.config import build
from antiphon.core.draws import Draws
from antiphon.core.goodput import judge
from antiphon.perf import LinkTime
from antiphon.perf.published_times import published_times
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Seconds, Slo
from antiphon.workload.arrivals import poisson
from antiphon.workload.lengths import Lengths, parse_lengths

_KV_BYTES_PER_TOKEN = 819_200
"""2 x 40 layers x 5120 x 2 bytes."""
_CONTEXT = 8192
_TIMES = published_times("opt-13b", 1)
_LINK = LinkTime(setup_s=0.002, bytes_per_s=25e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Calls of one tenant, by chance, at a mean rate."""

    tenant: str
    rate_per_s: float
    seconds: Seconds
    prompt: Lengths
    output: Lengths
    priority: int = 0
    first_s: Seconds = 0.0

    def sessions(self, seed: int, place: int) -> Iterator[TokenSession]:
        """In order of time. `place` tells these callers' draws from others'."""
        draws = Draws(seed)
        for count, at_s in enumerate(poisson(self.rate_per_s, seed * 1000 + place)):
            if at_s >= self.seconds:
                return
            number = count * 100 + place
            prompt = self.prompt.draw(draws, self.tenant, "prompt", count)
            output = self.output.draw(draws, self.tenant, "output", count)
            noise = draws.below(1 << 40, self.tenant, "text", count)
            tokens = tuple(1 + (noise * (k + 1) >> 7) % 1000 for k in range(prompt))
            yield TokenSession(
                self.first_s + at_s,
                number,
                (TokenTurn((tokens,), output),),
                slo_class=self.tenant,
                tenant=self.tenant,
                priority=self.priority,
            )

    def due_between(self, seed: int, place: int, begin_s: Seconds, end_s: Seconds) -> int:
        """How many of its calls are due in that time."""
        all_times = poisson(self.rate_per_s, seed * 1000 + place)
        times = takewhile(lambda at: at < self.seconds, all_times)
        return sum(begin_s <= self.first_s + at < end_s for at in times)


def lengths(text: str) -> Lengths:
    """As `antiphon bench` reads them."""
    return parse_lengths(text)


def fleet_of(
    workers: Mapping[Role, int],
    values: Mapping[str, Mapping[str, object]],
    sessions: Iterator[TokenSession],
    slo: Slo,
    *,
    max_tokens: int,
    patience_s: Seconds | None = None,
) -> tuple[Fleet, list[CallRecord]]:
    """A fleet of A100s, one a worker, whose records come as calls end."""
    defaults: dict[str, dict[str, object]] = {
        "scheduler": {"max_num_seqs": 256, "max_queue": 100_000},
        "kv": {"prefix_cache": False},
        "cluster": {"heartbeat_s": 0.25},
        "router": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s, "hold_s": 0.05},
    }
    tables = {
        **defaults,
        **{name: {**defaults.get(name, {}), **one} for name, one in values.items()},
    }
    spec = FleetSpec(
        pools=tuple(
            Pool(
                name=role.value,
                role=role,
                workers=count,
                step_time=_TIMES,
                phases=_TIMES,
                kv_tokens=_TIMES.kv_tokens or 0,
            )
            for role, count in workers.items()
        ),
        config=build(tables),
        expected=Expected(_TIMES, _LINK),
        transfer=_LINK,
        kv_bytes_per_token=_KV_BYTES_PER_TOKEN,
        max_model_len=_CONTEXT,
    )
    records: list[CallRecord] = []
    rules = UserRules(
        slos=(("", slo),), max_tokens=max_tokens, patience_s=patience_s, all_stamps=False
    )
    return Fleet(spec, sessions, rules, records.append), records


def met(records: list[CallRecord], slo: Slo, begin_s: Seconds, end_s: Seconds) -> int:
    """How many calls due within that time met both targets."""
    return sum(judge(one, slo).met for one in records if begin_s <= one.due_at_s < end_s)
