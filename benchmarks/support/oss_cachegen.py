"""The KV codec that LMCache and the CacheGen repository ship, as far as sizes and errors go.

Not the paper's: no anchors, no deltas, no profile. Keys and values are [tokens, channels] of a
layer, in chunks of 256 tokens. Each token is scaled by its largest channel and rounded to so many
bins; each channel's bins are arithmetic-coded with a table of their own, which travels with the
chunk. (As read in the CacheGen repository at 6bed34c and LMCache's `naive_serde/cachegen_*`.)

Payloads are counted at their entropy under those tables: no coder does better.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK_TOKENS = 256
_TABLE_BITS = 16
_LENGTH_BITS = 32
_SCALE_BITS = 16


@dataclass(frozen=True)
class Bins:
    """So many bins for layers below each border, for keys and for values."""

    name: str
    keys: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, int], ...]

    def of(self, side: int, layer: int) -> int:
        borders = self.values if side else self.keys
        return next(bins for border, bins in borders if layer < border)


_ALL = 10**6
OSS_LEVELS = (
    Bins("OSS level 1", ((10, 16), (20, 16), (_ALL, 12)), ((2, 16), (_ALL, 12))),
    Bins("OSS default", ((10, 32), (_ALL, 16)), ((2, 32), (_ALL, 16))),
    Bins("OSS level 3", ((_ALL, 32),), ((_ALL, 32),)),
)


def oss_codec(blocks: Sequence[np.ndarray], bins: Bins) -> float:
    """Round the numbers of float32 `blocks` [1, layers, 2, heads, tokens, width] in place.

    Returns the bytes of payload, tables, lengths and scales.
    """
    joined = np.concatenate([block[0] for block in blocks], axis=3)
    layers, _, heads, tokens, width = joined.shape
    bits = 0.0
    for layer in range(layers):
        for side in range(2):
            flat = joined[layer, side].transpose(1, 0, 2).reshape(tokens, heads * width)
            for first in range(0, tokens, CHUNK_TOKENS):
                chunk = flat[first : first + CHUNK_TOKENS]
                chunk[...], taken = _chunk(chunk, bins.of(side, layer))
                bits += taken
            joined[layer, side] = flat.reshape(tokens, heads, width).transpose(1, 0, 2)
    size = blocks[0].shape[4]
    for number, block in enumerate(blocks):
        block[0] = joined[:, :, :, number * size : (number + 1) * size]
    return bits / 8


def _chunk(rows: np.ndarray, bins: int) -> tuple[np.ndarray, float]:
    tokens, channels = rows.shape
    most = bins // 2 - 1
    scales = np.maximum(np.abs(rows).max(1, keepdims=True), 1e-30)
    codes = np.rint(rows * most / scales).astype(np.int64)
    place = (codes + most) + np.arange(channels) * bins
    counts = np.bincount(place.ravel(), minlength=channels * bins).reshape(channels, bins)
    used = counts[counts > 0]
    shares = np.broadcast_to(counts.sum(1, keepdims=True), counts.shape)[counts > 0]
    payload = float((used * np.log2(shares / used)).sum())
    beside = channels * ((bins + 1) * _TABLE_BITS + _LENGTH_BITS) + tokens * _SCALE_BITS
    return (codes * scales / most).astype(np.float32), payload + beside


def plain_codec(blocks: Sequence[np.ndarray], bits: int) -> float:
    """Plain int8 or int4: a head's token scaled by its largest channel, with a 16-bit scale."""
    top = 2 ** (bits - 1) - 1
    taken = 0
    for block in blocks:
        scales = np.maximum(np.abs(block).max(-1, keepdims=True), 1e-30)
        taken += block.size * bits // 8 + scales.size * 2
        block[...] = np.rint(block * top / scales) * scales / top
    return taken
