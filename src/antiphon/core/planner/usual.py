"""What the usual request is like: means that follow slowly."""

from .capacity import Shape
from .observation import Observation

_WEIGHT = 0.2
"""Of the newest interval."""


class Usual:
    """Lengths, and what caches have of prompts. An interval without requests says nothing."""

    def __init__(self) -> None:
        self._input: float | None = None
        self._output: float | None = None
        self._hits: float | None = None
        self._variation: float | None = None

    def observe(self, seen: Observation) -> None:
        """Mutates. A cold worker's caches are empty: its misses are not what is usual."""
        if seen.input_tokens > 0:
            self._input = _mixed(self._input, seen.input_tokens)
            self._variation = _mixed(self._variation, seen.input_variation)
            if not any(pool.cold for pool in seen.pools):
                self._hits = _mixed(self._hits, seen.hit_rate)
        if seen.output_tokens > 0:
            self._output = _mixed(self._output, seen.output_tokens)

    @property
    def shape(self) -> Shape:
        """Of the usual request; one token in, one out, before any was seen."""
        tokens = max(1.0, self._input or 0.0)
        return Shape(
            input_tokens=tokens,
            output_tokens=max(1.0, self._output or 0.0),
            uncached=max(1.0, tokens * (1 - (self._hits or 0.0))),
            variation=self._variation or 0.0,
        )


def _mixed(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)
