"""Blocks of one tenancy as bytes that cross the network, and back. On threads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon.core.kv.lineage import ADAPTIVE, lineage_of
from antiphon.core.store_joining import Tenancy, block_bytes, pages_a_block
from antiphon.core.store_pool import RAW, LevelGuess
from antiphon.errors import UsageError
from antiphon.live.kv_lineage import check_profile_model, of_setting
from antiphon.store.codec import (
    INT4,
    INT8,
    LOSSLESS,
    BlockShape,
    DecodeProblem,
    KvProfile,
    Level,
    decode_blob,
    encode,
    entropy,
    parse_level,
    read_blob,
    read_kv_profile,
)
from antiphon.types import StorePoolConfig

_PLAIN = (
    (LOSSLESS, 0, 0.70, 1.75e8, 4.15e8),
    (INT8, 1, 8.50 / 16, 8.6e8, 2.3e9),
    (INT4, 5, 4.50 / 16, 9.3e8, 1.5e9),
)
"""Level, rank (by what the next tokens lose, docs/guides/kv-codec.md), share of a bfloat16's bytes,
elements a second that are encoded and decoded."""
_ENTROPY_PER_S = 4e7
_ENTROPY_RANKS = (2, 3, 4, 6, 7)
_WARM_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Coding:
    """How a store's blocks cross the network: `StorePoolConfig.level`, and the profile, read."""

    level: str = RAW
    profile: KvProfile | None = None
    path: str = ""

    @classmethod
    def of(cls, pool: StorePoolConfig) -> "Coding":
        """As configured. Raises `UsageError`: a profile that is none, or lacks the level."""
        if pool.level == RAW or pool.profile is None:
            return cls(pool.level)
        profile = of_setting(pool.profile, read_kv_profile)
        coding = cls(pool.level, profile, pool.profile)
        if pool.level != ADAPTIVE and parse_level(pool.level) not in coding.levels():
            raise UsageError(
                f"store_pool.level (--pool-level) = {pool.level}: {pool.profile} has "
                f"{len(profile.levels)} entropy levels: use one of them"
            )
        return coding

    def levels(self) -> Sequence[Level]:
        """All but `raw`."""
        count = 0 if self.profile is None else min(len(self.profile.levels), len(_ENTROPY_RANKS))
        return (LOSSLESS, INT8, INT4, *(entropy(number) for number in range(1, count + 1)))

    def lineage(self) -> bytes:
        """Of what comes at a lossy level."""
        named = self.profile is not None and self.level not in ("int8", "int4")
        return lineage_of(self.level, self.profile.id if named and self.profile else b"")

    def warm_up(self) -> None:
        """Compile, or load, what encodes and decodes, and make entropy levels' tables: no read
        shall wait for it, nor one by a peer that asks for another level than this store does."""
        if self.level == RAW:
            return
        profile = self.profile
        sides = (3, 2, 16) if profile is None else (profile.layers, profile.heads, profile.width)
        layers, heads, width = sides
        for dtype in (np.uint16, np.float32):
            block = np.zeros((1, layers, 2, heads, _WARM_TOKENS, width), dtype)
            for level in self.levels():
                for start in (0, _WARM_TOKENS):  # a context's first tokens are kept
                    data = encode(block, level, start=start, profile=profile)
                    blob = None if data is None else read_blob(data)
                    if blob is not None and not isinstance(blob, DecodeProblem):
                        decode_blob(blob, blob.shape, block, profile)


class BlockCoder:
    """Of one tenancy. Any thread may call; while they compute calls hold no interpreter lock."""

    def __init__(self, tenancy: Tenancy, coding: Coding) -> None:
        """Raises `UsageError`: blocks of this layout can't be encoded, or the profile is of another
        model."""
        shape = BlockShape.in_layout(tenancy.kv.layout, pages_a_block(tenancy.kv))
        self.block_bytes = block_bytes(tenancy.kv)
        if shape is None or shape.raw_bytes != self.block_bytes:
            raise UsageError(
                f"store_pool.level = {coding.level}: blocks of the layout "
                f"{tenancy.kv.layout!r:.80} can't be encoded: use raw"
            )
        if (profile := coding.profile) is not None:
            check_profile_model(coding.path, profile.model, profile.identity, tenancy.identity)
        self.coding = coding
        self.shape = shape
        self._levels = {level.name: level for level in coding.levels()}

    def guesses(self) -> list[LevelGuess]:
        """All levels, raw among them, with what to expect of them."""
        elements, half = self.shape.elements, 2 * self.shape.elements
        raw = LevelGuess(name=RAW, rank=0, block_bytes=self.block_bytes, encode_s=0.0, decode_s=0.0)
        plain = [
            LevelGuess(
                name=level.name,
                rank=rank,
                block_bytes=half * share,
                encode_s=elements / encoded_per_s,
                decode_s=elements / decoded_per_s,
            )
            for level, rank, share, encoded_per_s, decoded_per_s in _PLAIN
        ]
        profiled = () if self.coding.profile is None else self.coding.profile.levels
        coded = [
            LevelGuess(
                name=entropy(number).name,
                rank=rank,
                block_bytes=elements * level.bits_per_element / 8,
                encode_s=elements / _ENTROPY_PER_S,
                decode_s=elements / _ENTROPY_PER_S,
            )
            for number, (rank, level) in enumerate(
                zip(_ENTROPY_RANKS, profiled, strict=False), start=1
            )
        ]
        return [raw, *plain, *coded]

    def encode(self, content: npt.NDArray[np.uint8], level: str, start: int) -> bytes | None:
        """A block's bytes, whose first token is at `start`; None: it must stay as it is."""
        known = self._levels.get(level)
        if known is None:
            return None
        block = self.shape.block(content)
        return encode(block, known, start=start, profile=self.coding.profile)

    def decode(self, data: bytes, level: str, into: npt.NDArray[np.uint8]) -> bool:
        """Whether the bytes were such a block, at that level: then it is in `into`; else anything
        is. Damage is found by the blob's checksum."""
        blob = read_blob(data)
        if isinstance(blob, DecodeProblem) or blob.level != self._levels.get(level):
            return False
        block = self.shape.block(into)
        return decode_blob(blob, self.shape, block, self.coding.profile) is None
