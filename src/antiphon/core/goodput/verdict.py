"""Did a call meet its targets?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.errors import UsageError
from antiphon.types import CallRecord, Seconds, Slo

from .latency import served, tpot_s, ttft_s

Slos: TypeAlias = Sequence[tuple[str, Slo]]
"""Targets by class, as in `LoadRun.slos`; "" is for whoever has none of their own."""

NO_TARGETS = Slo(ttft_s=math.inf, tpot_s=math.inf)
"""Met by every call that was served."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which targets one call met."""

    ttft_met: bool
    tpot_met: bool

    @property
    def met(self) -> bool:
        """Both: what goodput counts."""
        return self.ttft_met and self.tpot_met


MISS = Verdict(ttft_met=False, tpot_met=False)


def judge(record: CallRecord, slo: Slo) -> Verdict:
    """The verdict on one call. A target that is hit exactly is met.

    A call that failed, was refused, was never sent, or got no content misses both targets. A call
    of one token has no TPOT, so it cannot miss that target.
    """
    first_s = ttft_s(record)
    if first_s is None or not served(record):
        return MISS
    per_token_s = tpot_s(record)
    return Verdict(
        ttft_met=first_s <= slo.ttft_s,
        tpot_met=per_token_s is None or per_token_s <= slo.tpot_s,
    )


def slo_of(slo_class: str, slos: Mapping[str, Slo]) -> Slo:
    """The targets of that class: its own, else everybody's, else none at all."""
    return slos.get(slo_class, slos.get("", NO_TARGETS))


def check_targets(slos: Slos) -> None:
    """Raises `UsageError` if nothing is aimed at: any rate and any scale would do."""
    if all(slo == NO_TARGETS for _, slo in slos):
        raise UsageError("a search needs targets, such as ttft=500ms,tpot=50ms: there are none")


def scaled(slo: Slo, scale: float) -> Slo:
    """Both targets times `scale`: below 1 is stricter. No target stays none.

    Raises `UsageError` unless `scale` is a positive number.
    """
    if not 0 < scale < math.inf:
        raise UsageError(f"SLO scale {scale}: it must be a positive number, such as 0.5")
    return Slo(ttft_s=slo.ttft_s * scale, tpot_s=slo.tpot_s * scale)


def scaled_all(slos: Slos, scale: float) -> Slos:
    """The targets of every class times `scale`."""
    return tuple((name, scaled(slo, scale)) for name, slo in slos)


def needed_scale(record: CallRecord, slo: Slo) -> float:
    """The smallest scale of `slo` at which the call would have met both targets.

    0 where it has no targets, inf where it was not served: no scale helps a call that failed.
    """
    first_s = ttft_s(record)
    if first_s is None or not served(record):
        return math.inf
    return max(_ratio(first_s, slo.ttft_s), _ratio(tpot_s(record) or 0.0, slo.tpot_s))


def _ratio(taken_s: Seconds, target_s: Seconds) -> float:
    """The smallest k, to the last bit but one, with taken <= k * target as numbers are rounded."""
    if taken_s <= 0 or math.isinf(target_s):
        return 0.0
    if target_s <= 0:
        return math.inf
    ratio = taken_s / target_s
    return ratio if taken_s <= ratio * target_s else math.nextafter(ratio, math.inf)
