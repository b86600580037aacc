"""Models by their dimensions: what a step-time model needs to know of one, without its weights.

All numbers are those of the config.json at `source`. Norms, biases and positions are left out: they
are less than a percent of the parameters.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from antiphon.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts: `routed` of which each token goes to `active`, and `shared` for all.

    `dense_layers`: so many of the first layers have a plain FFN of `dense_ffn` instead.
    """

    routed: int
    active: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentKv:
    """Multi-head latent attention (DeepSeek-V2 §2.1): one vector of `rank` for all heads."""

    rank: int
    rope_dim: int
    query_rank: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer. `ffn`: width of a plain FFN; `gated`: three matrices, not two.

    `tied`: embeddings and output head are the same weights. `context`: longest, in tokens.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    gated: bool = True
    tied: bool = False
    experts: Experts | None = None
    latent: LatentKv | None = None
    source: str = ""

    @property
    def kv_values_per_token(self) -> int:
        """Numbers kept of a token in one layer."""
        if self.latent is not None:
            return self.latent.rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        latent = self.latent
        if latent is None:
            return self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        query = latent.query_rank * (self.hidden + self.heads * (self.head_dim + latent.rope_dim))
        down = self.hidden * (latent.rank + latent.rope_dim)
        up = latent.rank * self.heads * (self.head_dim + latent.value_dim)
        return query + down + up + self.heads * latent.value_dim * self.hidden

    def ffn_parameters(self, width: int) -> int:
        """Of one FFN of that width."""
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def head_parameters(self) -> int:
        """Of the output head."""
        return self.hidden * self.vocab

    @property
    def sparse_layers(self) -> int:
        """Layers with experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    @property
    def dense_parameters(self) -> int:
        """What each token is multiplied with in all layers: everything but routed experts."""
        total = self.layers * self.attention_parameters
        experts = self.experts
        if experts is None:
            return total + self.layers * self.ffn_parameters(self.ffn)
        total += experts.dense_layers * self.ffn_parameters(experts.dense_ffn)
        each = experts.shared * self.ffn_parameters(experts.ffn) + self.hidden * experts.routed
        return total + self.sparse_layers * each

    @property
    def parameters(self) -> int:
        """All weights, embeddings included."""
        return self._with_experts(0 if self.experts is None else self.experts.routed)

    @property
    def active_parameters(self) -> int:
        """The weights that a token meets, embeddings included."""
        return self._with_experts(0 if self.experts is None else self.experts.active)

    def _with_experts(self, routed: int) -> int:
        total = self.dense_parameters + self.head_parameters * (1 if self.tied else 2)
        if self.experts is not None:
            total += self.sparse_layers * routed * self.ffn_parameters(self.experts.ffn)
        return total


def _grouped(
    name: str, size: tuple[int, int, int, int, int], vocab: int, context: int, **more: Any
) -> ModelShape:
    """`size`: layers, hidden, heads, KV heads, FFN; heads of 128 unless said otherwise."""
    layers, hidden, heads, kv_heads, ffn = size
    rest: dict[str, Any] = {"head_dim": 128} | more
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        context=context,
        **rest,
    )


def _opt(name: str, source: str, layers: int, hidden: int, heads: int) -> ModelShape:
    return _grouped(
        name,
        (layers, hidden, heads, heads, 4 * hidden),
        50272,
        2048,
        head_dim=hidden // heads,
        gated=False,
        tied=True,
        source=source,
    )


def _deepseek(name: str, source: str) -> ModelShape:
    return _grouped(
        name,
        (61, 7168, 128, 128, 2048),
        129280,
        163840,
        experts=Experts(routed=256, active=8, ffn=2048, shared=1, dense_layers=3, dense_ffn=18432),
        latent=LatentKv(rank=512, rope_dim=64, query_rank=1536, value_dim=128),
        source=source,
    )


MODELS = (
    _opt("opt-13b", "hf.co/facebook/opt-13b", 40, 5120, 40),
    _opt("opt-66b", "hf.co/facebook/opt-66b", 64, 9216, 72),
    _opt("opt-175b", "arXiv:2205.01068, table 1", 96, 12288, 96),
    _grouped(
        "llama-3-8b",
        (32, 4096, 32, 8, 14336),
        128256,
        131072,
        source="hf.co/meta-llama/Llama-3.1-8B",
    ),
    _grouped(
        "llama-3-70b",
        (80, 8192, 64, 8, 28672),
        128256,
        131072,
        source="hf.co/meta-llama/Llama-3.1-70B",
    ),
    _grouped(
        "qwen3-0.6b",
        (28, 1024, 16, 8, 3072),
        151936,
        40960,
        tied=True,
        source="hf.co/Qwen/Qwen3-0.6B",
    ),
    _grouped("qwen3-8b", (36, 4096, 32, 8, 12288), 151936, 40960, source="hf.co/Qwen/Qwen3-8B"),
    _grouped("qwen3-32b", (64, 5120, 64, 8, 25600), 151936, 40960, source="hf.co/Qwen/Qwen3-32B"),
    _grouped(
        "qwen3-30b-a3b",
        (48, 2048, 32, 4, 768),
        151936,
        40960,
        experts=Experts(routed=128, active=8, ffn=768),
        source="hf.co/Qwen/Qwen3-30B-A3B",
    ),
    _grouped(
        "qwen3-235b-a22b",
        (94, 4096, 64, 4, 1536),
        151936,
        40960,
        experts=Experts(routed=128, active=8, ffn=1536),
        source="hf.co/Qwen/Qwen3-235B-A22B",
    ),
    _grouped(
        "mixtral-8x7b",
        (32, 4096, 32, 8, 14336),
        32000,
        32768,
        experts=Experts(routed=8, active=2, ffn=14336),
        source="hf.co/mistralai/Mixtral-8x7B-v0.1",
    ),
    _deepseek("deepseek-v3", "hf.co/deepseek-ai/DeepSeek-V3"),
    _deepseek("deepseek-r1", "hf.co/deepseek-ai/DeepSeek-R1"),
    _grouped(
        "smollm2-135m",
        (30, 576, 9, 3, 1536),
        49152,
        8192,
        head_dim=64,
        tied=True,
        source="hf.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
)
"""By name in scenarios."""


def shape_of(name: str) -> ModelShape:
    """The model of that name. Raises `UsageError` that lists those that are known."""
    known = {model.name: model for model in MODELS}
    if name in known:
        return known[name]
    near = get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {near[0]!r}?" if near else "."
    raise UsageError(f"model {name!r} is not in the catalogue{hint} Known are {', '.join(known)}")
