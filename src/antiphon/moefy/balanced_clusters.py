"""Clusters of equal size: k-means whose assignment leaves no cluster larger than another.

Balanced k-means as MoEfication groups neurons (Zhang et al. 2022, §3.2; Malinen & Fränti 2014),
with a stable matching in place of the optimal assignment: the pair of row and cluster that are
nearest to each other is matched first, and so on while a cluster has room.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def balanced_clusters(rows: Floats, count: int, *, rounds: int = 20) -> Labels:
    """The cluster of each row, 0 … `count` − 1: int64 [n], n / `count` rows in each.

    `rows` float32 [n, d] with n a multiple of `count`. Of at most `rounds` rounds that with the
    smallest sum of squared distances counts. Deterministic: equal rows give equal clusters.
    """
    size, rest = divmod(len(rows), count)
    if rest or not size:
        raise ValueError(f"{len(rows)} rows can't form {count} clusters of equal size")
    centres = _farthest_apart(rows, count)
    best, best_cost = np.zeros(len(rows), np.int64), np.inf
    labels = best
    for number in range(rounds):
        distances = _squared_distances(rows, centres)
        before, labels = labels, _match(distances, size)
        cost = float(distances[np.arange(len(rows)), labels].sum())
        if cost < best_cost:
            best, best_cost = labels, cost
        if number and np.array_equal(before, labels):
            break
        order = np.argsort(labels, kind="stable")
        centres = rows[order].reshape(count, size, -1).mean(1)
    return best


def _farthest_apart(rows: Floats, count: int) -> Floats:
    """First centres: the row nearest to the mean, then always the row farthest from all of them."""
    chosen = [int(_squared_distances(rows, rows.mean(0, keepdims=True))[:, 0].argmin())]
    nearest = _squared_distances(rows, rows[chosen])[:, 0]
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, _squared_distances(rows, rows[chosen[-1:]])[:, 0])
        nearest[chosen] = -1.0
    return rows[chosen]


def _squared_distances(rows: Floats, centres: Floats) -> Floats:
    lengths = np.einsum("nd,nd->n", rows, rows)[:, None] + np.einsum("cd,cd->c", centres, centres)
    return np.maximum(lengths - 2 * (rows @ centres.T), 0).astype(np.float32)


def _match(distances: Floats, size: int) -> Labels:
    """The only stable matching of rows to clusters with `size` places (Gale & Shapley 1962).

    Rows without a place ask the nearest cluster that has not sent them away; it keeps the nearest.
    """
    rows, count = distances.shape
    wishes = np.argsort(distances, axis=1, kind="stable")
    asked = np.zeros(rows, np.int64)
    while True:
        labels = wishes[np.arange(rows), asked]
        own = distances[np.arange(rows), labels]
        order = np.lexsort((own, labels))
        starts = np.searchsorted(labels[order], np.arange(count))
        ranks = np.empty(rows, np.int64)
        ranks[order] = np.arange(rows) - starts[labels[order]]
        sent_away = ranks >= size
        if not sent_away.any():
            return labels
        asked[sent_away] += 1
