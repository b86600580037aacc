"""Blocks of KV as few bytes, and back: `encode` and `decode`."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.store.record import Codec

from . import integers, lossless
from .blob import MOST_POSITION, PROFILE_ID_BYTES, Blob, DecodeProblem, read_blob
from .block_shape import BlockShape
from .entropy_coder import EntropyCoder, coder_of
from .level import Level
from .profile import KvProfile

Block: TypeAlias = npt.NDArray
"""[pages, layers, 2, heads, page_tokens, width]: see `BlockShape`."""

_BITS = {Codec.INT8: 8, Codec.INT4: 4}


def encode(
    block: Block, level: Level, *, start: int = 0, profile: KvProfile | None = None
) -> bytes | None:
    """The block as bytes that say themselves what they are, a multiple of 64 of them.

    `start`: the position of its first token. None: a lossy level, and a number that is not finite
    or too large for it, or KV in directions that the level drops; keep it raw. Does not mutate.
    Raises `BugError` for an array that is no block, a position below 0, or an entropy-coded level
    without a profile that has it and fits.
    """
    shape = BlockShape.of(block)
    if not 0 <= start < MOST_POSITION:
        raise BugError(f"a block can't begin at position {start}")
    kept = 0
    match level.codec:
        case Codec.RAW:
            payload = block.tobytes()
        case Codec.LOSSLESS:
            payload = lossless.encode(block, shape)
        case Codec.INT8 | Codec.INT4:
            payload = integers.encode(block, shape, _BITS[level.codec])
        case Codec.ENTROPY:
            coder = _coder(level, profile, shape)
            kept = _kept_tokens(coder.profile, shape, start)
            payload = coder.encode(block, shape, start, kept)
    if payload is None:
        return None
    named = profile.id if level.needs_profile and profile is not None else bytes(PROFILE_ID_BYTES)
    return Blob(
        level=level, shape=shape, start=start, payload=payload, profile=named, kept_tokens=kept
    ).encoded()


def decode(
    data: bytes | bytearray | memoryview, into: Block, *, profile: KvProfile | None = None
) -> DecodeProblem | None:
    """Fill `into` with the block that `data` is; None: done.

    Whatever the bytes are, nothing is raised, and nothing but `into` is written; after a problem
    it holds anything. Which level they are of they say themselves: whoever must not get lossy KV
    looks first (`read_blob`). Raises `BugError` if `into` is no block.
    """
    wanted = BlockShape.of(into)
    blob = read_blob(data)
    if isinstance(blob, DecodeProblem):
        return blob
    return decode_blob(blob, wanted, into, profile)


def decode_blob(
    blob: Blob, wanted: BlockShape, into: Block, profile: KvProfile | None
) -> DecodeProblem | None:
    """`decode` of what `read_blob` has read."""
    if blob.shape != wanted:
        return DecodeProblem.SHAPE
    payload = memoryview(blob.payload)
    match blob.level.codec:
        case Codec.RAW:
            good = len(payload) == wanted.raw_bytes
            if good:
                into[...] = np.frombuffer(payload, into.dtype).reshape(into.shape)
        case Codec.LOSSLESS:
            good = lossless.decode(payload, wanted, into)
        case Codec.INT8 | Codec.INT4:
            bits = _BITS[blob.level.codec]
            good = len(payload) == sum(integers.sizes(wanted, bits))
            if good:
                integers.decode(payload, wanted, bits, into)
        case Codec.ENTROPY:
            if profile is None or profile.id != blob.profile:
                return DecodeProblem.PROFILE
            coder = coder_of(profile, blob.level.number)
            if coder is None:
                return DecodeProblem.PROFILE
            if not coder.fits(wanted):
                return DecodeProblem.SHAPE
            good = coder.decode(payload, wanted, blob.start, blob.kept_tokens, into)
    return None if good else DecodeProblem.CONTRADICTION


def _coder(level: Level, profile: KvProfile | None, shape: BlockShape) -> EntropyCoder:
    coder = None if profile is None else coder_of(profile, level.number)
    if coder is None:
        raise BugError(f"{level.name} needs a profile that has it")
    if not coder.fits(shape):
        raise BugError(f"the profile of {coder.profile.model} does not fit a block of {shape}")
    return coder


def _kept_tokens(profile: KvProfile, shape: BlockShape, start: int) -> int:
    return max(0, min(profile.kept_tokens - start, shape.tokens))
