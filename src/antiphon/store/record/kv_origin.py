"""What all records of one deployment have in common: whose KV it is, and how it lies in a page."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from antiphon.types import BlockKey, KvShape


class Rope(IntEnum):
    """What a record's keys are: with the rotary embedding, or without it. Numbers are frozen."""

    AFTER = 1
    """The rotary embedding is applied: they hold for their positions only."""
    BEFORE = 2


class ElementType(IntEnum):
    """What a record's numbers are. Numbers are frozen."""

    IN_LAYOUT = 0
    """What the name of the layout says."""
    FP32 = 1
    BF16 = 2
    FP16 = 3
    INT8 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOrigin:
    """A record of another origin is never read into our pages.

    `identity`: the model's digest (`ModelInfo.identity`). Heads `first_head` … `first_head` +
    `heads` - 1 are here; `heads` 0: all that the layout names. A block is `pages_per_block` pages:
    `entry_pages` together hold `page_tokens` tokens of all layers.
    `sealed_by`: `RecordSeal.name` of the key that seals the records; empty: they are plain.
    """

    identity: bytes
    layout: str
    page_tokens: int
    block_tokens: int
    page_bytes: int
    entry_pages: int = 1
    first_head: int = 0
    heads: int = 0
    element: ElementType = ElementType.IN_LAYOUT
    rope: Rope = Rope.AFTER
    sealed_by: bytes = b""

    @classmethod
    def of(cls, shape: KvShape, identity: bytes) -> Self:
        """The origin of whole blocks of workers with this shape and model."""
        return cls(
            identity=identity,
            layout=shape.layout,
            page_tokens=shape.page_tokens,
            block_tokens=shape.block_tokens,
            page_bytes=shape.page_bytes,
            entry_pages=shape.entry_pages,
        )

    @property
    def pages_per_block(self) -> int:
        """Pages of a block, each of which is one chunk of its record."""
        return self.block_tokens // self.page_tokens * self.entry_pages

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's pages."""
        return self.pages_per_block * self.page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBlock:
    """Which block a record holds: what a store must know of it after a restart.

    `tenant` names whose it is (a digest, never the salt; at most 64 bytes). `numerics` and
    `lineage` are for people and tools: the key has digested them.
    """

    key: BlockKey
    parent: BlockKey | None
    tenant: bytes = b""
    numerics: str = ""
    lineage: bytes = b""
