"""What `core/codec_choice.py` says of the fetches that `streaming.py` measures: no processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from antiphon.core.codec_choice import FetchLevel, FetchState, choose_level, fetch_s
from antiphon.live.kv_trial import speed_of
from antiphon.store.codec import RAW, KvProfile, Level, decode, encode
from antiphon.types import Seconds

CHUNK_TOKENS = 512
"""As much as a store asks a peer for at once."""
_AT_ONCE = 1e12
"""Tokens a second of what needs no codec."""


@dataclass(frozen=True)
class PrefillTime:
    """Seconds of computing the first n tokens of a prompt: a·n + b·n², through two measurements."""

    per_token_s: float
    per_pair_s: float

    @classmethod
    def through(cls, few: tuple[int, Seconds], many: tuple[int, Seconds]) -> "PrefillTime":
        (n, t), (m, u) = few, many
        per_pair_s = max(0.0, (u / m - t / n) / (m - n))
        return cls(t / n - per_pair_s * n, per_pair_s)

    def until(self, tokens: int) -> Seconds:
        return self.per_token_s * tokens + self.per_pair_s * tokens**2


def fetch_level(
    level: Level, rank: int, blocks: Sequence[np.ndarray], profile: KvProfile | None
) -> FetchLevel:
    """Its bytes and rates on these blocks [pages, layers, 2, heads, page_tokens, width]: whichever
    of encoding and decoding is slower, since both sides work at the same time, a core each."""
    tokens = blocks[0].shape[0] * blocks[0].shape[4]

    def encoded(block: np.ndarray, number: int) -> bytes:
        start = number * tokens
        data = encode(block, level, start=start, profile=profile) or encode(block, RAW)
        assert data is not None
        return data

    def decoded(data: bytes, block: np.ndarray) -> None:
        assert decode(data, block, profile=profile) is None

    size = sum(len(encoded(block, at)) for at, block in enumerate(blocks)) / len(blocks)
    per_s = _AT_ONCE
    if level != RAW:
        speed = speed_of(encoded, decoded, blocks)
        per_s = min(speed.encode_per_s, speed.decode_per_s) * tokens / blocks[0].size
    return FetchLevel(name=level.name, rank=rank, bytes_per_token=size / tokens, tokens_per_s=per_s)


def predicted_s(
    choice: str,
    levels: Sequence[FetchLevel],
    *,
    prefix: int,
    prompt: int,
    prefill: PrefillTime,
    bytes_per_s: float,
    slo_s: Seconds = 0.0,
) -> Seconds:
    """Time to the first token of `prompt` tokens of which `prefix` may be fetched.

    `choice`: a level's name, "recompute", or "adaptive" within `slo_s` (0: as soon as can be).
    """
    rest_s = prefill.until(prompt) - prefill.until(prefix)
    ends = [*range(CHUNK_TOKENS, prefix, CHUNK_TOKENS), prefix]
    starts = [0, *ends[:-1]]
    state = FetchState(
        tokens=tuple(end - start for start, end in zip(starts, ends, strict=True)),
        compute_s=prefill.until(prefix),
        bytes_per_s=bytes_per_s,
        left_s=slo_s - rest_s,
    )
    if choice == "recompute":
        return prefill.until(prompt)
    if choice == "adaptive":
        return choose_level(state, levels).seconds + rest_s
    return fetch_s(state, next(one for one in levels if one.name == choice)) + rest_s
