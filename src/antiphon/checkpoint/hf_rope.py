"""RoPE in config.json: its base, its scaling, and how much of a head turns."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

from antiphon.errors import ModelFileError

from .facts import Facts
from .rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeScaling,
    YarnScaling,
)

_KINDS = ("default", "linear", "llama3", "yarn", "longrope")
_BY_LAYER_KIND = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRope:
    """What config.json says of rotary embedding. `share`: the part of a head that turns."""

    theta: float
    scaling: RopeScaling | None
    share: float


def rope_of(facts: Facts, family: str) -> ConfigRope:
    """The rotary embedding of config.json; of layers that see everything, if kinds differ.

    Raises `ModelFileError` for a type of scaling that isn't supported.
    """
    rope = _parameters(facts)
    return ConfigRope(
        theta=rope.number("rope_theta", facts.number("rope_theta", 10000.0)),
        scaling=_scaling(facts, rope, family),
        share=rope.number("partial_rotary_factor", facts.number("partial_rotary_factor", 1.0)),
    )


def _parameters(facts: Facts) -> Facts:
    """transformers ≥ 5 writes `rope_parameters`, earlier ones `rope_scaling`; both may be null.

    Who adds one beside the other means it: two that differ are refused, none is passed over.
    """
    new, old = (facts.get(key) for key in ("rope_parameters", "rope_scaling"))
    if isinstance(new, dict) and isinstance(old, dict) and _kind_of(new) != _kind_of(old):
        problem = "'rope_scaling' says something else than 'rope_parameters': keep the one you mean"
        raise ModelFileError(facts.path, f"{problem}, as 'rope_parameters'")
    for key in ("rope_parameters", "rope_scaling"):
        if facts.get(key) is not None:
            found = facts.inner(key)
            if any(found.get(kind) is not None for kind in _BY_LAYER_KIND):
                return found.inner("full_attention")
            return found
    return Facts(facts.path, {})


def _kind_of(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says of scaling, under the names of today: the base stands elsewhere in old files."""
    kind = said.get("rope_type", said.get("type", "default"))
    rest = {key: value for key, value in said.items() if key not in ("type", "rope_theta")}
    return rest | {"rope_type": kind}


def _scaling(facts: Facts, rope: Facts, family: str) -> RopeScaling | None:
    kind = rope.string("rope_type", rope.string("type", "default"))
    if family == "phi3" and kind in ("su", "yarn"):  # names of LongRoPE in Phi-3's first files
        kind = "longrope"
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(factor=rope.number("factor"))
        case "llama3":
            return Llama3Scaling(
                factor=rope.number("factor"),
                low_freq_factor=rope.number("low_freq_factor"),
                high_freq_factor=rope.number("high_freq_factor"),
                original_context_len=_original(facts, rope),
            )
        case "yarn":
            return _yarn(facts, rope)
        case "longrope":
            return _longrope(facts, rope)
    supported = ", ".join(_KINDS)
    problem = f"RoPE scaling {kind!r} is not supported; supported: {supported}"
    raise ModelFileError(facts.path, problem)


def _original(facts: Facts, rope: Facts) -> int:
    key = "original_max_position_embeddings"
    return rope.integer(key, facts.integer(key, facts.integer("max_position_embeddings")))


def _stretch(facts: Facts, rope: Facts) -> tuple[float, int]:
    """By what the context is longer than the original one; and that."""
    original = _original(facts, rope)
    if original < 2:
        raise rope.wrong("original_max_position_embeddings", "at least 2")
    return rope.number("factor", facts.integer("max_position_embeddings") / original), original


def _yarn(facts: Facts, rope: Facts) -> YarnScaling:
    """Attention factor: what is given, or as in the paper (eq. 22), or DeepSeek's two `mscale`."""
    factor, original = _stretch(facts, rope)
    mscale, over_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    sharper = yarn_attention_factor(factor)
    if mscale and over_all:
        sharper = yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, over_all)
    return YarnScaling(
        factor=factor,
        original_context_len=original,
        attention_factor=rope.number("attention_factor", sharper),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.boolean("truncate", True),
    )


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """What rotated queries and keys are multiplied by, so that scores grow with the context."""
    return 0.1 * mscale * log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(facts: Facts, rope: Facts) -> LongRopeScaling:
    factor, original = _stretch(facts, rope)
    return LongRopeScaling(
        short=rope.numbers("short_factor"),
        long=rope.numbers("long_factor"),
        original_context_len=original,
        attention_factor=rope.number(
            "attention_factor", longrope_attention_factor(factor, original)
        ),
    )


def longrope_attention_factor(factor: float, original: int) -> float:
    """√(1 + ln factor / ln original) (Ding et al. 2024, §3.3), 1 where nothing is stretched."""
    return sqrt(1 + log(factor) / log(original)) if factor > 1 else 1.0
