"""The numbers by which a set of times is told."""

from collections.abc import Sequence

SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, tails and the largest; not a number where there are none."""
    ordered = sorted(values) or [float("nan")]
    return {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in SHARES
    }
