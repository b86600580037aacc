"""Which experts a row takes, and with what weights: in float32, row by row, in a fixed order.

The same kernel serves fp32 and int8, since a router that is rounded chooses other experts.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from . import lanes as simd
from .kernel_cache import kernel
from .lanes import LANES

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_MINUS_INFINITY = np.float32(-np.inf)
_LEAST_SUM = np.float32(1e-20)


class ChoiceRules(NamedTuple):
    """See `checkpoint.Experts`; numba takes a named tuple apart at compile time."""

    count: int
    active: int
    shared: int
    groups: int
    active_groups: int
    sigmoid: bool
    normalised: bool
    scale: np.float32


NO_EXPERTS = ChoiceRules(0, 0, 0, 1, 1, False, False, _ONE)


@kernel
def choose_experts(rows, router, correction, rules, chosen, weights):
    """Fill `chosen` and `weights` for normalised rows.

    `rows` float32 [n, hidden], `router` float32 [count, hidden], hidden whole vectors;
    `correction` float32 [count]. `chosen` int64 [n, active + shared]: routed experts in ascending
    order, then the shared ones, numbered from `count` on; `weights` float32, as large: 1 for the
    shared. A row that is not finite gets some experts and weights that are NaN. Of equal scores
    the lower number is better.
    """
    count = rules.count
    wide = -(-count // LANES) * LANES
    scores, judged = np.empty(wide, np.float32), np.empty(count, np.float32)
    for row in range(len(rows)):
        _score(rows[row], router, rules, scores)
        for expert in range(count):
            judged[expert] = scores[expert] + correction[expert]
        if rules.groups > 1:
            _leave_groups(judged, rules)
        _take(judged, rules.active, chosen[row])
        total = _ZERO
        for slot in range(rules.active):
            weights[row, slot] = scores[chosen[row, slot]]
            total += weights[row, slot]
        factor = rules.scale / (total + _LEAST_SUM) if rules.normalised else rules.scale
        for slot in range(rules.active):
            weights[row, slot] *= factor
        for slot in range(rules.shared):
            chosen[row, rules.active + slot] = count + slot
            weights[row, rules.active + slot] = _ONE


@njit
def _score(row, router, rules, scores):
    """Router's logits as probabilities."""
    scores[:] = _MINUS_INFINITY
    for expert in range(rules.count):
        products = simd.splat(_ZERO)
        gate = router[expert]
        for at in range(0, len(row), LANES):
            products = simd.fma(simd.load(row, at), simd.load(gate, at), products)
        scores[expert] = simd.total(products)
    if rules.sigmoid:
        one, zero = simd.splat(_ONE), simd.splat(_ZERO)
        for at in range(0, len(scores), LANES):
            grown = simd.exp(simd.sub(zero, simd.load(scores, at)))
            simd.store(scores, at, simd.div(one, simd.add(one, grown)))
        return
    peak = _MINUS_INFINITY
    for expert in range(rules.count):
        peak = max(peak, scores[expert])
    total = _ZERO
    for at in range(0, len(scores), LANES):
        grown = simd.exp(simd.sub(simd.load(scores, at), simd.splat(np.float32(peak))))
        grown = simd.keep_first(grown, rules.count - at, simd.splat(_ZERO))
        simd.store(scores, at, grown)
        total += simd.total(grown)
    for expert in range(rules.count):
        scores[expert] /= total


@njit
def _leave_groups(judged, rules):
    """Experts outside of the best groups can't be chosen any more."""
    size = rules.count // rules.groups
    values = np.empty(rules.groups, np.float32)
    for group in range(rules.groups):
        first, second = _MINUS_INFINITY, _MINUS_INFINITY
        for expert in range(group * size, (group + 1) * size):
            if judged[expert] > first:
                first, second = judged[expert], first
            elif judged[expert] > second:
                second = judged[expert]
        values[group] = first + second
    best = np.empty(rules.active_groups, np.int64)
    _take(values, rules.active_groups, best)
    for group in range(rules.groups):
        if group not in best:
            judged[group * size : (group + 1) * size] = _MINUS_INFINITY


@njit
def _take(values, count, taken):
    """The first `count` entries of `taken` ← where the largest values are, in ascending order."""
    free = np.ones(len(values), np.bool_)
    for _ in range(count):
        best = -1
        for at in range(len(values)):
            if free[at] and (best < 0 or values[at] > values[best]):
                best = at
        free[best] = False
    slot = 0
    for at in range(len(values)):
        if not free[at]:
            taken[slot] = at
            slot += 1
