"""Popularity: a few things are asked for often, most seldom."""

from bisect import bisect_right
from itertools import accumulate

from antiphon.core.draws import Draws


class Zipf:
    """Ranks 0 … count − 1; rank r is drawn in proportion to 1/(r + 1)^exponent."""

    def __init__(self, count: int, exponent: float) -> None:
        self._weights = [(rank + 1) ** -exponent for rank in range(count)]
        self._ends = list(accumulate(self._weights))

    def draw(self, many: int, draws: Draws, *purpose: str | int) -> list[int]:
        """`many` different ranks in the order drawn, each by its weight among those left.

        `many` is at most the count.
        """
        drawn: list[int] = []
        for place in range(many):
            left = self._ends[-1] - sum(self._weights[rank] for rank in drawn)
            mass = left * draws.fraction(*purpose, place)
            for rank in sorted(drawn):
                if mass >= self._ends[rank] - self._weights[rank]:
                    mass += self._weights[rank]
            drawn.append(self._free(bisect_right(self._ends, mass), drawn))
        return drawn

    def _free(self, rank: int, taken: list[int]) -> int:
        """That rank, or, where rounding led to a taken one, the next free one."""
        while rank % len(self._ends) in taken:
            rank += 1
        return rank % len(self._ends)
