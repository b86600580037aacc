"""Blocks whose keys and values are like a model's, and a small profile that is fitted to them."""

from functools import cache

import numpy as np
import numpy.typing as npt

from antiphon.store.codec import (
    INT4,
    INT8,
    LOSSLESS,
    RAW,
    KvProfile,
    Level,
    Moments,
    entropy,
    fit_levels,
    transform_of,
)

LAYERS, HEADS, WIDTH = 3, 2, 16
FREQUENCIES = (10000.0 ** (-np.arange(8) / 8)).astype(np.float32)
LEVELS = (RAW, LOSSLESS, INT8, INT4, entropy(1), entropy(2), entropy(3))
EXACT = (RAW, LOSSLESS)
BITS = (5.0, 3.0, 1.5)


def bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """To nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).astype(np.uint16)


def floats(block: npt.NDArray) -> npt.NDArray[np.float32]:
    """The numbers of a block."""
    if block.dtype == np.uint16:
        return (block.astype(np.uint32) << 16).view(np.float32)
    return block


def rows(tokens: int, seed: int) -> npt.NDArray[np.float32]:
    """[tokens, layers, 2, heads, width], before rotation: channels that go together and have means,
    neighbours that are alike."""
    mixing = np.random.default_rng(7).normal(size=(LAYERS, 2, HEADS, WIDTH, WIDTH))
    mixing *= 2.0 ** -(np.arange(WIDTH)[:, None] ** 0.5)
    means = 3 * np.random.default_rng(8).normal(size=(LAYERS, 2, HEADS, WIDTH))
    noise = np.random.default_rng(seed).normal(size=(tokens, LAYERS, 2, HEADS, WIDTH))
    for token in range(1, tokens):
        noise[token] = 0.6 * noise[token - 1] + 0.8 * noise[token]
    return (np.einsum("tlshi,lshij->tlshj", noise, mixing) + means).astype(np.float32)


def turned(keys: npt.NDArray[np.float32], start: int) -> npt.NDArray[np.float32]:
    """Keys [tokens, …, width] at positions `start` …"""
    angles = np.outer(np.arange(start, start + len(keys)), FREQUENCIES)
    angles = angles.reshape(len(keys), *[1] * (keys.ndim - 2), -1)
    first, second = keys[..., : WIDTH // 2], keys[..., WIDTH // 2 :]
    cosine, sine = np.cos(angles), np.sin(angles)
    both = (first * cosine - second * sine, second * cosine + first * sine)
    return np.concatenate(both, -1).astype(np.float32)


def block_of(
    seed: int, pages: int = 4, page_tokens: int = 16, start: int = 0, *, half: bool = True
) -> npt.NDArray:
    """A block as workers have them: bfloat16, or float32."""
    content = rows(pages * page_tokens, seed)
    content[:, :, 0] = turned(content[:, :, 0], start)
    block = content.reshape(pages, page_tokens, LAYERS, 2, HEADS, WIDTH)
    block = np.ascontiguousarray(block.transpose(0, 2, 3, 4, 1, 5))
    return bf16(block) if half else block


def profile(seed: int = 100) -> KvProfile:
    """Three levels, for blocks of `block_of`; two sections of two layers and of one. Of a seed
    there is one: fitted again, on threads that have less time, its last bits may be others."""
    return _fitted(seed)


@cache
def _fitted(seed: int) -> KvProfile:
    empty = KvProfile(
        identity=b"identity of the model",
        model="made up",
        layers=LAYERS,
        heads=HEADS,
        width=WIDTH,
        section_layers=2,
        frequencies=FREQUENCIES,
        kept_tokens=1,
        rounding=0.6,
        transforms=(),
        levels=(),
    )
    seen, unseen = rows(2000, seed), rows(1000, seed + 1)
    slopes = np.random.default_rng(seed + 2)
    transforms, parts, held = [], list(empty.parts()), []
    for part in parts:
        layers = slice(part.first, part.first + part.layers)
        mine, other = (
            content[:, layers, part.side].reshape(len(content), -1) for content in (seen, unseen)
        )
        sums = Moments.none(mine.shape[1])
        weights = 2.0 ** slopes.normal(size=mine.shape[1])
        sums.add(mine, (slopes.normal(size=mine.shape) * weights).astype(np.float32), 1)
        transforms.append(transform_of(sums))
        held.append([other])
    levels = fit_levels(BITS, transforms, parts, held, empty.rounding)
    return KvProfile(
        **{name: getattr(empty, name) for name in _SAME},
        transforms=tuple(transforms),
        levels=levels,
    )


_SAME = (
    *("identity", "model", "layers", "heads", "width", "section_layers"),
    *("frequencies", "kept_tokens", "rounding"),
)


def profile_for(level: Level) -> KvProfile | None:
    """What `encode` and `decode` need."""
    return profile() if level.needs_profile else None
