"""Numbers in sentences: plain decimals, whatever their size."""

from math import isfinite

_PLAIN = (1e-12, 1e21)
"""What lies outside has an exponent after all: nobody reads so many zeros."""


def number_text(value: float, digits: int = 6) -> str:
    """1000000 · 0.00005 · 3.14159: all digits before the point, and `digits` that matter in all.

    Whole numbers (ints too, of any size) have all their digits. Zeros at the end are left out.
    """
    if isinstance(value, int):
        return str(int(value))
    low, high = _PLAIN
    if not isfinite(value) or not (low <= abs(value) < high or value == 0):
        return f"{value:.{digits}g}"
    if value == round(value):
        return f"{value:.0f}"
    exponent = int(f"{value:.{digits - 1}e}".rpartition("e")[2])
    text = f"{value:.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(amount: int, noun: str) -> str:
    """1 call · 2 calls · 1,000 calls."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"
