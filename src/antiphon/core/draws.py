"""Chance without state: a draw is a function of a seed and of what it is drawn for."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

LARGEST_SEED = 2**62
"""Of what people give; those that follow from it, one a run, have room above."""


class Draws:
    """Numbered draws of one seed. The same (seed, purpose) gives the same value everywhere.

    A purpose is any text or number that names what is drawn ("fault", 3, "kind"), so that one
    more draw somewhere changes no other.
    """

    def __init__(self, seed: int) -> None:
        self._key = seed.to_bytes(16, "big", signed=True)

    def bits(self, *purpose: str | int) -> int:
        """64 equally likely bits."""
        facts = "\0".join(map(str, purpose)).encode()
        return int.from_bytes(blake2b(facts, digest_size=8, key=self._key).digest(), "big")

    def below(self, end: int, *purpose: str | int) -> int:
        """A whole number of 0 … end − 1. (The bias of 2^-64 · `end` is nothing here.)"""
        return self.bits(*purpose) % end

    def fraction(self, *purpose: str | int) -> float:
        """A number in [0, 1)."""
        return (self.bits(*purpose) >> 11) / 2**53

    def between(self, low: float, high: float, *purpose: str | int) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.fraction(*purpose)

    def choice(self, options: Sequence[T], *purpose: str | int) -> T:
        """One of `options`, which must not be empty."""
        return options[self.below(len(options), *purpose)]
