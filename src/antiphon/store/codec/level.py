"""Levels: how much of a block is kept. Their names are what people and configurations say."""

import re
from dataclasses import dataclass

from antiphon.core.kv.lineage import lineage_of
from antiphon.errors import UsageError
from antiphon.store.record import Codec

MOST_LEVELS = 16
"""Entropy-coded levels of a profile."""
_WORDS = {Codec.RAW: "raw", Codec.LOSSLESS: "lossless", Codec.INT8: "int8", Codec.INT4: "int4"}


@dataclass(frozen=True, slots=True, order=True)
class Level:
    """A codec and, where that is entropy coding, which of the profile's levels: 1 is the finest."""

    codec: Codec
    number: int = 0

    @property
    def name(self) -> str:
        """`raw`, `lossless`, `int8`, `int4`, `entropy-1`, `entropy-2` …"""
        return _WORDS.get(self.codec) or f"entropy-{self.number}"

    @property
    def is_exact(self) -> bool:
        """What is decoded is what was encoded, to the bit."""
        return self.codec.is_exact

    @property
    def needs_profile(self) -> bool:
        """Of the model (`antiphon kv profile`)."""
        return self.codec is Codec.ENTROPY

    def lineage(self, profile: bytes = b"") -> bytes:
        """What goes into the keys of KV of this level, and of all that is computed on top of it.

        `profile`: its id. Empty for exact levels: their KV is what it was. Any other makes keys
        that no exact look-up finds.
        """
        return lineage_of(self.name, profile if self.needs_profile else b"")


RAW, LOSSLESS = Level(Codec.RAW), Level(Codec.LOSSLESS)
INT8, INT4 = Level(Codec.INT8), Level(Codec.INT4)


def entropy(number: int) -> Level:
    """The entropy-coded level of that number."""
    return Level(Codec.ENTROPY, number)


def parse_level(name: str) -> Level:
    """The level of a name. Raises `UsageError` that says which there are."""
    for codec, word in _WORDS.items():
        if name == word:
            return Level(codec)
    found = re.fullmatch(r"entropy-([1-9]\d?)", name)
    if found is None or int(found[1]) > MOST_LEVELS:
        raise UsageError(
            f'codec level "{name}": must be raw, lossless, int8, int4 or entropy-1 … '
            f"entropy-{MOST_LEVELS} (as many as the model's profile has)"
        )
    return entropy(int(found[1]))
