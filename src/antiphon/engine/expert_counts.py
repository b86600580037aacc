"""How many tokens each routed expert of each sparse layer has computed."""

import numpy as np

from antiphon.checkpoint import ModelSpec
from antiphon.types import MOST_EXPERT_COUNTS, ExpertTokens


class ExpertCounts:
    """Counts of one model. Each thread of a pass adds to its own, and waits for nobody.

    `said` may be called from any thread, also during a pass: each count is one that was true.
    """

    def __init__(self, spec: ModelSpec) -> None:
        experts = spec.experts
        numbers = range(spec.layers) if experts is not None else ()
        self._layers = tuple(n for n in numbers if experts is not None and experts.sparse(n))
        self._shape = (spec.layers, 0 if experts is None else experts.count)
        self._of_threads: list[np.ndarray] = []

    def of_threads(self, threads: int) -> list[np.ndarray]:
        """For each of so many threads, at least, its int64 [layers, experts] to add to."""
        while len(self._of_threads) < threads:
            self._of_threads.append(np.zeros(self._shape, np.int64))
        return self._of_threads

    def add(self, layer: int, chosen: np.ndarray) -> None:
        """Rows of a layer chose these experts: int64, of any shape. For passes of one thread."""
        experts = self._shape[1]
        self.of_threads(1)[0][layer] += np.bincount(chosen.ravel(), minlength=experts)

    def said(self) -> ExpertTokens | None:
        """All threads' together; None: the model has no experts."""
        if not self._layers:
            return None
        totals = sum(tuple(self._of_threads), np.zeros(self._shape, np.int64))[list(self._layers)]
        layers = self._layers
        if totals.size > MOST_EXPERT_COUNTS:
            layers, totals = (), totals.sum(axis=0)
        counts = tuple(totals.ravel().tolist())
        return ExpertTokens(experts=self._shape[1], layers=layers, totals=counts)

    def forget(self) -> None:
        """Begin at 0. Not during a pass."""
        for counts in self._of_threads:
            counts[:] = 0
