"""Closed forms of waiting: cross-checks of the simulator, and bounds that prune a search.

All for Poisson arrivals at `rate_per_s`. Infinite at or beyond saturation.
"""

from math import inf

from antiphon.types import Seconds


def utilisation(rate_per_s: float, service_s: Seconds) -> float:
    """ρ = λ·E[S]: the share of time in which the server is busy; at 1 the queue grows for ever."""
    return rate_per_s * service_s


def md1_ttft_s(rate_per_s: float, prefill_s: Seconds) -> Seconds:
    """Mean time to first token of one worker that computes prompts one by one, all alike.

    D + R·D² / (2·(1 − R·D)): M/D/1, DistServe §3.1, equation 1.
    """
    busy = utilisation(rate_per_s, prefill_s)
    return inf if busy >= 1 else prefill_s + rate_per_s * prefill_s**2 / (2 * (1 - busy))


def pipelined_ttft_s(rate_per_s: float, prefill_s: Seconds) -> Seconds:
    """With two pipeline stages: D + R·D² / (4·(2 − R·D)), DistServe §3.1, equation 2.

    Latency stays D, and a stage is busy for half of it.
    """
    busy = utilisation(rate_per_s, prefill_s / 2)
    return inf if busy >= 1 else prefill_s + rate_per_s * prefill_s**2 / (8 * (1 - busy))


def tensor_parallel_ttft_s(rate_per_s: float, prefill_s: Seconds, speedup: float) -> Seconds:
    """With two tensor-parallel devices that are `speedup` (1 < K < 2) times as fast.

    D/K + R·D² / (2·K·(K − R·D)): DistServe §3.1, equation 3.
    """
    return md1_ttft_s(rate_per_s, prefill_s / speedup)


def mg1_wait_s(rate_per_s: float, service_s: Seconds, square_s2: float) -> Seconds:
    """Mean wait for service times of that mean and mean square: Pollaczek–Khinchine."""
    busy = utilisation(rate_per_s, service_s)
    return inf if busy >= 1 else rate_per_s * square_s2 / (2 * (1 - busy))
