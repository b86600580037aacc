"""The falling curve that is closest to noisy points."""

from collections.abc import Sequence


def falling_fit(points: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The values that never rise and are closest to `points`: (value, weight) in order.

    Least squares by pooling neighbours that are in the wrong order into their mean (isotonic
    regression; "pool adjacent violators", Ayer et al. 1955). Weights are positive.
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in points:
        size = 1
        while pools and pools[-1][0] < value:
            other, other_weight, other_size = pools.pop()
            value = (value * weight + other * other_weight) / (weight + other_weight)
            weight += other_weight
            size += other_size
        pools.append((value, weight, size))
    return tuple(value for value, _weight, size in pools for _ in range(size))
