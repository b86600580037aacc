"""What is true of a configuration key beside its type."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """`low` and `high` bound a number (both allowed values). `choices` are the only values of a
    string. `size`: bytes, which may also be written as "512MB" or "2GiB".
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    size: bool = False
