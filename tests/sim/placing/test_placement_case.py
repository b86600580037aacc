"""How candidates become fleets, and what their simulation says."""

import pytest
from placing_kit import FAST, SLOW, case

from antiphon.core.config import build
from antiphon.core.placement import Candidate, Colocated, Split
from antiphon.sim.placing import cluster_values
from antiphon.types import Role, Slo

MIXED = Colocated(instance=SLOW.instance, workers=2, step_tokens=512)
FIRST = Colocated(instance=SLOW.instance, workers=1, step_tokens=512, prefill_first=True)
SPLIT = Split(
    prefill=FAST.instance,
    prefill_workers=1,
    decode=SLOW.instance,
    decode_workers=2,
    step_tokens=512,
)
CONDITIONAL = Split(
    prefill=FAST.instance,
    prefill_workers=1,
    decode=SLOW.instance,
    decode_workers=2,
    step_tokens=512,
    conditional=True,
)


@pytest.mark.parametrize("candidate", [MIXED, FIRST, SPLIT, CONDITIONAL], ids=lambda one: one.text)
def test_a_fleet_is_what_the_configuration_says(candidate: Candidate) -> None:
    slo = Slo(ttft_s=1.0, tpot_s=0.3)
    config = build(cluster_values(candidate, slo))
    fleet = case().fleet(candidate)
    roles = {pool.role: pool.workers for pool in fleet.pools}
    assert roles.get(Role.PREFILL, 0) == config.cluster.prefill
    assert roles.get(Role.DECODE, 0) == config.cluster.decode
    assert roles.get(Role.MIXED, 0) == (config.cluster.mixed or 0)
    assert fleet.config.scheduler == config.scheduler
    assert fleet.config.router == config.router
    assert (config.router.ttft_s, config.router.tpot_s) == (1.0, 0.3)
    assert fleet.devices == candidate.devices


def test_only_a_conditional_split_computes_prompts_where_it_decodes() -> None:
    """With one prefill worker for far too many calls, decode workers help if they may."""
    overload = 20.0
    alone = case().records(SPLIT, overload, 1, 6.0)
    helped = case().records(CONDITIONAL, overload, 1, 6.0)
    assert len(alone) == len(helped) > 60
    in_time = [case().judge(records, case().slo, 0.0).both().value for records in (alone, helped)]
    assert in_time[1] > in_time[0] + 0.1


def test_prefill_first_stalls_tokens_and_hurries_prompts() -> None:
    chunked = Colocated(instance=SLOW.instance, workers=1, step_tokens=256)
    waits, stalls = [], []
    for candidate in (FIRST, chunked):
        records = case("fixed:input=400,output=40").records(candidate, 0.8, 1, 60.0)
        assert len(records) > 30
        spans = [one.token_at_s for one in records]
        waits.append(sum(one.token_at_s[0] - one.sent_at_s for one in records))
        stalls.append(sum(span[-1] - span[0] for span in spans))
    assert waits[0] < waits[1]
    assert stalls[0] > stalls[1]


def test_a_link_is_as_fast_as_its_slower_end() -> None:
    of = case()
    assert of.fleet(SPLIT).transfer.seconds(10**9) == pytest.approx(1.002)
    free = type(of)(**{**vars_of(of), "transfer_free": True})
    assert free.fleet(SPLIT).transfer.seconds(10**9) < 1e-6


def vars_of(of: object) -> dict[str, object]:
    return {name: getattr(of, name) for name in type(of).__dataclass_fields__}  # type: ignore[attr-defined]


def test_equal_seeds_find_equal_goodput() -> None:
    first, second = (case().goodput(MIXED, 3, 6.0) for _ in range(2))
    assert first == second
    assert first.rate_per_s > 0
    assert first.devices == 2


def test_a_known_rate_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    of = case()
    known = of.holds(MIXED, 0, 4.0)
    asked: list[float] = []
    holds = type(of).holds

    def spy(self: object, candidate: Candidate, seed: int, rate: float) -> object:
        asked.append(rate)
        return holds(of, candidate, seed, rate)

    monkeypatch.setattr(type(of), "holds", spy)
    found = of.goodput(MIXED, 0, 4.0, (4.0, known))
    assert asked
    assert 4.0 not in asked
    assert 4.0 in [probe.rate_per_s for probe in found.probes]
