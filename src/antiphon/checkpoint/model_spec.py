"""What a model is: the hyper-parameters that its forward pass needs, checked against each other."""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, sqrt

from .experts import Experts, find_expert_flaw
from .rope_scaling import RopeScaling, find_scaling_flaw


class Activation(StrEnum):
    """What an MLP does to its gate."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"
    """GELU by its tanh approximation (Hendrycks & Gimpel 2016)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Hyper-parameters of a decoder-only model, in the terms of its Hugging Face config.

    `architecture` is the family's name. Without the fields that have defaults it is a Llama; each
    of them is a quirk of one family or several:

    `qkv_bias`, `out_bias`, `mlp_bias`: q, k and v projections have biases; so has o; so have gate,
    up and down. `qk_norm`: each head of queries and keys is normalised before it turns.
    `post_norms`: what attention and MLP give is normalised before it is added. `embedding_scale`
    multiplies the embedding's rows, not the head's. `attention_scale` multiplies scores (None:
    1/√head_dim). `rotary_dim`: so many elements of a head turn (None: all). `windows`: for each
    layer how many positions a row sees, its own and those before it, 0 for all; empty: all in
    every layer. `window_rope_theta`: layers with a window turn by this base, unscaled (None: as
    the others).
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    context_len: int
    rope_theta: float
    rope_scaling: RopeScaling | None
    rms_norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    activation: Activation = Activation.SILU
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    rotary_dim: int | None = None
    windows: tuple[int, ...] = ()
    window_rope_theta: float | None = None
    experts: Experts | None = None
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def score_scale(self) -> float:
        """What attention scores are multiplied by."""
        return 1.0 / sqrt(self.head_dim) if self.attention_scale is None else self.attention_scale

    @property
    def turning(self) -> int:
        """Elements of a head that rotary embedding turns; the others stay."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def window(self, layer: int) -> int:
        """How many positions a row sees in `layer`, its own included; 0: all."""
        return self.windows[layer] if self.windows else 0


_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab_size")
_LARGEST_COUNT = 2**31


def find_flaw(spec: ModelSpec) -> str | None:
    """Say what makes `spec` impossible, or None when it can be built. Does not mutate."""
    for name in (*_COUNTS, "context_len"):
        value = getattr(spec, name)
        if not 0 < value < _LARGEST_COUNT:
            return f"{name} is {value}, but must be at least 1 and below {_LARGEST_COUNT}"
    for name in (
        "rope_theta",
        "rms_norm_eps",
        "embedding_scale",
        "attention_scale",
        "window_rope_theta",
    ):
        value = getattr(spec, name)
        if value is not None and not (isfinite(value) and value > 0):
            return f"{name} is {value}, but must be a positive, finite number"
    if spec.heads % spec.kv_heads:
        return f"{spec.heads} attention heads can't share {spec.kv_heads} key-value heads evenly"
    if spec.head_dim % 2:
        return f"head_dim is {spec.head_dim}, but rotary embedding needs an even number"
    if not 0 < spec.turning <= spec.head_dim or spec.turning % 2:
        return (
            f"rotary embedding turns {spec.turning} elements of a head: not an even number of "
            f"at most {spec.head_dim}"
        )
    for token in (*spec.eos_token_ids, *([] if spec.bos_token_id is None else [spec.bos_token_id])):
        if not 0 <= token < spec.vocab_size:
            return f"special token id {token} is outside the vocabulary of {spec.vocab_size}"
    return (
        _window_flaw(spec)
        or find_scaling_flaw(spec.rope_scaling, spec.turning)
        or find_expert_flaw(spec.experts)
    )


def _window_flaw(spec: ModelSpec) -> str | None:
    if spec.windows and len(spec.windows) != spec.layers:
        return f"{len(spec.windows)} attention windows for {spec.layers} layers"
    wrong = next((window for window in spec.windows if not 0 <= window < _LARGEST_COUNT), None)
    return None if wrong is None else f"attention window {wrong} is not a number of positions"
