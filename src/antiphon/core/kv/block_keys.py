"""The name of a block of KV: a chained hash over everything that its content depends on.

A block's KV depends on the model, on how it was computed and on all tokens up to the block's end.
Equal keys therefore mean equal KV, on any machine, with no set-up:

    key = BLAKE2b-256(person = domain, key = tenant salt,
                      identity ‖ numerics ‖ lineage ‖ parent key ‖ token ids ‖ extra)

Every part is preceded by its length and every number is little endian of fixed width, so no two
different inputs give the same bytes. The parent's key stands for all earlier tokens.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct, pack
from sys import byteorder

from antiphon.errors import BugError
from antiphon.types import BlockKey, TokenId

KEY_BYTES = 32
MAX_SALT_BYTES = 64
_DOMAIN = b"antiphon.kv.1"
"""BLAKE2b personalisation: another domain, or a later version, never gives an equal key."""
_PARENT = Struct(f"<I{KEY_BYTES}sI")
_TOKEN_BYTES = 4


class BlockKeys:
    """Keys of one tenant's blocks under one model, numerics id and lineage.

    The parts that all blocks share are hashed once; a key costs one more hash call.
    """

    def __init__(
        self,
        *,
        identity: bytes,
        numerics: str,
        salt: bytes = b"",
        lineage: bytes = b"",
        block_tokens: int = 64,
    ) -> None:
        if len(salt) > MAX_SALT_BYTES:
            raise BugError(f"tenant salt has {len(salt)} bytes, at most {MAX_SALT_BYTES} work")
        if block_tokens < 1:
            raise BugError(f"block_tokens is {block_tokens}, must be at least 1")
        self.block_tokens = block_tokens
        self._shared = blake2b(digest_size=KEY_BYTES, person=_DOMAIN, key=salt)
        for part in (identity, numerics.encode(), lineage):
            self._shared.update(pack("<I", len(part)) + part)

    def key(
        self, parent: BlockKey | None, tokens: Sequence[TokenId], extra: bytes = b""
    ) -> BlockKey:
        """Key of the complete block that holds `tokens` after the block named `parent`.

        `extra` is whatever else the content depends on. Raises `BugError` if the block is not
        complete, a token id does not fit 32 bits or the parent is not a key. Does not mutate.
        """
        if len(tokens) != self.block_tokens:
            raise BugError(f"a block has {self.block_tokens} tokens, not {len(tokens)}")
        _check_parent(parent)
        return self._named(parent, _packed(tokens), extra)

    def extend(self, keys: list[BlockKey], tokens: Sequence[TokenId], blocks: int) -> None:
        """Append to `keys` (a chain from position 0) until it names the first `blocks` blocks.

        Raises as `key` does; then nothing is appended.
        """
        first, size = len(keys), self.block_tokens
        if first >= blocks:
            return
        _check_parent(keys[-1] if keys else None)
        wanted = tokens[first * size : blocks * size]
        if len(wanted) != (blocks - first) * size:
            raise BugError(f"{blocks} blocks of {size} are more than {len(tokens)} tokens")
        bytes_ = _TOKEN_BYTES * size
        packed = _packed(wanted)  # at once: most of a key's time
        for begin in range(0, len(packed), bytes_):
            parent = keys[-1] if keys else None
            keys.append(self._named(parent, packed[begin : begin + bytes_], b""))

    def _named(self, parent: BlockKey | None, packed: bytes, extra: bytes) -> BlockKey:
        state = self._shared.copy()
        if parent is None:
            state.update(pack("<II", 0, self.block_tokens) + packed)
        else:
            state.update(_PARENT.pack(KEY_BYTES, parent, self.block_tokens) + packed)
        state.update(pack("<I", len(extra)) + extra)
        return state.digest()


def _check_parent(parent: BlockKey | None) -> None:
    if parent is not None and len(parent) != KEY_BYTES:
        raise BugError(f"a block key has {KEY_BYTES} bytes, not {len(parent)}")


def _packed(tokens: Sequence[TokenId]) -> bytes:
    """Each in 4 bytes, little endian. An array is filled several times as fast as by `pack`."""
    try:
        ids = array("I", tokens)
    except (OverflowError, TypeError) as problem:
        raise BugError(f"token ids must be integers of 32 bits: {problem}") from problem
    if byteorder == "big":
        ids.byteswap()
    return ids.tobytes()
