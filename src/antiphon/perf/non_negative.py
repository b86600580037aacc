"""Least squares with coefficients that can't be negative."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def non_negative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The x ≥ 0 that minimises ‖matrix · x − target‖ (Lawson & Hanson 1974, chapter 23).

    matrix [m, n], target [m], result [n], float64. The same input gives the same result. Columns
    are scaled to length 1 first, so units don't matter; a column of zeros gets coefficient 0.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    columns = matrix / scale
    count = columns.shape[1]
    solution = np.zeros(count)
    free = np.zeros(count, bool)
    tolerance = 1e-12 * max(1.0, float(np.linalg.norm(target)))
    # Each round frees one coefficient and then ends at a smaller residual; rounding could make it
    # go round for ever, so the rounds are bounded.
    for _ in range(3 * count):
        gradient = np.where(free, -np.inf, columns.T @ (target - columns @ solution))
        best = int(np.argmax(gradient))
        if gradient[best] <= tolerance:
            break
        free[best] = True
        solution = _within_bounds(columns, target, solution, free)
    return solution / scale


def _within_bounds(columns: Floats, target: Floats, start: Floats, free: npt.NDArray) -> Floats:
    """Go from `start` towards the best fit of the `free` coefficients, as far as none is negative.

    Those that reach 0 on the way are fixed there (`free` changes), and it goes on without them.
    """
    solution = start
    while free.any():
        best = np.zeros_like(solution)
        best[free] = np.linalg.lstsq(columns[:, free], target, rcond=None)[0]
        blocked = free & (best <= 0)
        if not blocked.any():
            return best
        reach = solution[blocked] / (solution[blocked] - best[blocked])
        solution = solution + float(reach.min(initial=1.0)) * (best - solution)
        free &= ~(blocked & (solution <= 1e-15 * solution.max(initial=0.0)))
        solution = np.where(free, solution, 0.0)
    return solution
