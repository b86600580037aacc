"""Delta debugging: as few things as still do it (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", IEEE TSE 2002, in the form that tests complements only)."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def minimal(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A part of `items`, in their order, that fails and of which no single one can be left out.

    `items` must fail. At most n² + 3n calls for n items, O(log n) of them if one item is to blame.
    Deterministic if `fails` is.
    """
    if not items or fails(()):
        return ()
    pieces = 2
    while len(items) > 1:
        without = _first(items, pieces, fails)
        if without is not None:
            items, pieces = without, max(pieces - 1, 2)
        elif pieces >= len(items):
            break
        else:
            pieces = min(2 * pieces, len(items))
    return items


def _first(
    items: tuple[T, ...], pieces: int, fails: Callable[[tuple[T, ...]], bool]
) -> tuple[T, ...] | None:
    """The items without the first of so many pieces that can be left out; None: none can."""
    for number in range(pieces):
        begin, end = (len(items) * place // pieces for place in (number, number + 1))
        without = items[:begin] + items[end:]
        if without and fails(without):
            return without
    return None
