"""Least squares of a few unknowns, without a library: what a forecast needs."""

from collections.abc import Sequence


def solve(
    rows: Sequence[Sequence[float]], values: Sequence[float], *, ridge: float = 0.0
) -> list[float]:
    """Weights w that make |rows · w − values|² least, plus `ridge` times the mean square of w.

    The ridge is relative to the diagonal, so that it means the same at any scale; 0 needs rows that
    are independent. O(rows · columns² + columns³).
    """
    columns = len(rows[0])
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(columns)] for i in range(columns)
    ]
    right = [
        sum(row[i] * value for row, value in zip(rows, values, strict=True)) for i in range(columns)
    ]
    scale = sum(matrix[i][i] for i in range(columns)) / columns
    for i in range(columns):
        matrix[i][i] += ridge * scale + 1e-12
    return _eliminated(matrix, right)


def _eliminated(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with the largest pivot of each column."""
    size = len(right)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: (abs(matrix[row][column]), -row))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        right[column], right[pivot] = right[pivot], right[column]
        top = matrix[column][column]
        for row in range(column + 1, size):
            factor = matrix[row][column] / top
            for place in range(column, size):
                matrix[row][place] -= factor * matrix[column][place]
            right[row] -= factor * right[column]
    found = [0.0] * size
    for row in range(size - 1, -1, -1):
        known = sum(matrix[row][place] * found[place] for place in range(row + 1, size))
        found[row] = (right[row] - known) / matrix[row][row]
    return found
