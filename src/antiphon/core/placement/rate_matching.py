"""How many prefill workers for how many decode workers: so that neither phase waits for the other.

    max over (x, y) of  min(x·P, y·D) / (x·cost_p + y·cost_d)

P and D are what one worker of each serves (DistServe §4.1; AIConfigurator's rate matching).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One phase's worker: the requests a second that it serves, its devices, and its cost."""

    per_s: float
    devices: int
    cost: float


def matched(
    prefill: Side, decode: Side, most_devices: int, *, keep: int = 1
) -> Sequence[tuple[int, int]]:
    """Numbers of workers within `most_devices` that serve most for their cost, the best `keep`.

    Of equal ones the fewest devices, then the fewest prefill workers. Multiples of a ratio serve as
    much for their cost as the ratio, so they are left out. Empty: not even one of each fits.
    """
    options = [
        (x, y)
        for x in range(1, most_devices // prefill.devices + 1)
        for y in range(1, (most_devices - x * prefill.devices) // decode.devices + 1)
        if gcd(x, y) == 1
    ]

    def order(option: tuple[int, int]) -> tuple[float, int, int]:
        x, y = option
        cost = x * prefill.cost + y * decode.cost
        served = min(x * prefill.per_s, y * decode.per_s)
        return -served / cost, x * prefill.devices + y * decode.devices, x

    return sorted(options, key=order)[:keep]


def shared_per_s(prefill: float, decode: float, local_prefill: float) -> float:
    """What a conditional split serves at best.

    `prefill`, `decode`: what each pool serves if it does its phase only; `local_prefill`: prompts
    that the decode pool could compute if it did nothing else. It computes the share f that the
    prefill pool can't, in time that its decodes leave: r·(1 − f) ≤ prefill, and
    r·(f / local + 1 / decode) ≤ 1.
    """
    if prefill >= decode or not local_prefill:
        return min(prefill, decode)
    return (1 + prefill / local_prefill) / (1 / local_prefill + 1 / decode)
