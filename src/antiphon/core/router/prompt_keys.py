"""The names of a prompt's blocks, computed as far as somebody asks."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from antiphon.core.kv import BlockKeys
from antiphon.types import BlockKey, TokenId, WorkerInfo

_MOST_BLOCKS = 4096
"""Blocks of one prompt that are looked for: a longer one is taken to be new from there on."""


class KeySpace(NamedTuple):
    """What a block's key depends on beside tenant and tokens. Workers with equal ones can use each
    other's blocks."""

    identity: bytes
    numerics: str
    block_tokens: int


def space_of(worker: WorkerInfo) -> KeySpace | None:
    """None: a worker that exchanges no KV."""
    if worker.kv is None:
        return None
    return KeySpace(worker.model.identity, worker.model.numerics, worker.kv.block_tokens)


class PromptKeys:
    """The keys of a prompt's complete blocks, but for one that holds its last token, in order.

    That token is always computed, to go on from. Hashing is what costs, so that it goes no further
    than it is read, and is done once.
    """

    def __init__(self, prompt: Sequence[TokenId], salt: bytes, space: KeySpace) -> None:
        self.block_tokens = space.block_tokens
        self._prompt = prompt
        self._hash = BlockKeys(
            identity=space.identity,
            numerics=space.numerics,
            salt=salt,
            block_tokens=space.block_tokens,
        )
        self._blocks = min((len(prompt) - 1) // space.block_tokens, _MOST_BLOCKS)
        self._keys: list[BlockKey] = []

    def __len__(self) -> int:
        return self._blocks

    def __iter__(self) -> Iterator[BlockKey]:
        """All of them. Mutates: what was computed is kept."""
        keys, size = self._keys, self.block_tokens
        block = 0
        while block < self._blocks:
            if block == len(keys):
                tokens = self._prompt[block * size : (block + 1) * size]
                keys.append(self._hash.key(keys[-1] if keys else None, tokens))
            yield keys[block]
            block += 1

    def first(self, blocks: int) -> Sequence[BlockKey]:
        """The first so many of them, or all. Mutates: what was computed is kept."""
        blocks = min(blocks, self._blocks)
        if blocks > len(self._keys):
            self._hash.extend(self._keys, self._prompt, blocks)
        return self._keys[:blocks]

    @property
    def known(self) -> Sequence[BlockKey]:
        """Those that were computed so far: to read, not to change."""
        return self._keys
