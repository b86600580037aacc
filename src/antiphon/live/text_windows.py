"""Parts of a text, as token ids, spread evenly over it."""

from collections.abc import Sequence

from antiphon.types import TokenId


def spread_windows(tokens: Sequence[TokenId], size: int, most: int) -> list[Sequence[TokenId]]:
    """Up to `most` parts of `size` tokens (at least 1), none over another: the first is where the
    text begins, the last, of two or more, where it ends. None if the text is shorter than one."""
    count = min(most, len(tokens) // size)
    room = len(tokens) - size
    starts = [number * room // max(count - 1, 1) for number in range(count)]
    return [tokens[start : start + size] for start in starts]
