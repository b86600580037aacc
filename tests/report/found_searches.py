"""Results of searches to show."""

from antiphon.core.goodput import (
    Attainment,
    Estimate,
    Goodput,
    Probe,
    ScalePoint,
    SloScale,
    StopReason,
)


def probe(rate_per_s: float, met: int, *, fitted: float | None = None, runs: int = 1) -> Probe:
    """100 calls, of which `met` met both targets."""
    attainment = Attainment(calls=100, met=met, ttft_met=min(100, met + 2), tpot_met=met)
    value = met / 100 if fitted is None else fitted
    return Probe(
        rate_per_s=rate_per_s,
        runs=runs,
        attainment=attainment,
        fitted=value,
        passes=value >= 0.9,
    )


GOODPUT = Goodput(
    rate_per_s=2.0,
    fails_at_per_s=2.1,
    goal=0.9,
    devices=2,
    stopped=StopReason.FOUND,
    probes=(
        probe(1.0, 99),
        probe(1.5, 98),
        probe(2.0, 89, fitted=0.9),
        probe(2.1, 85),
        probe(4.0, 20),
    ),
)
NOTHING_PASSES = Goodput(
    rate_per_s=0.0,
    fails_at_per_s=0.05,
    goal=0.9,
    devices=1,
    stopped=StopReason.ALL_FAIL,
    probes=(probe(0.05, 0),),
)
NOTHING_MEASURED = Goodput(
    rate_per_s=0.0,
    fails_at_per_s=None,
    goal=0.9,
    devices=1,
    stopped=StopReason.NO_CALLS,
    probes=(),
)
SLO_SCALE = SloScale(
    rate_per_s=2.0,
    goal=0.9,
    tightest=Estimate(0.8, 0.7, 0.95),
    curve=tuple(
        ScalePoint(scale, Attainment(calls=100, met=met, ttft_met=met, tpot_met=100))
        for scale, met in ((0.5, 30), (1.0, 95), (2.0, 100))
    ),
    calls=100,
    runs=1,
)
