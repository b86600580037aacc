"""Models by their dimensions: what a step-time model needs to know of one, without its weights.

All numbers are those of the model's config.json.
"""

from dataclasses import dataclass
from difflib import get_close_matches

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
    """A decoder-only transformer. `ffn`: width of a plain FFN; `gated`: three matrices, not two."""

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
    def dense_layers(self) -> int:
        """Layers with a plain FFN."""
        return self.layers if self.experts is None else self.experts.dense_layers

    @property
    def dense_parameters(self) -> int:
        """What each token is multiplied with in all layers: everything but routed experts."""
        total = self.layers * self.attention_parameters
        experts = self.experts
        if experts is None:
            return total + self.layers * self.ffn_parameters(self.ffn)
        total += experts.dense_layers * self.ffn_parameters(experts.dense_ffn)
        sparse = self.layers - experts.dense_layers
        return total + sparse * (
            experts.shared * self.ffn_parameters(experts.ffn) + self.hidden * experts.routed
        )

    @property
    def parameters(self) -> int:
        """All weights, embeddings included."""
        total = self.dense_parameters + self.head_parameters * (1 if self.tied else 2)
        if self.experts is not None:
            sparse = self.layers - self.experts.dense_layers
            total += sparse * self.experts.routed * self.ffn_parameters(self.experts.ffn)
        return total


def _dense(
    name: str, size: tuple[int, int, int, int, int, int], vocab: int, context: int
) -> ModelShape:
    layers, hidden, heads, kv_heads, head_dim, ffn = size
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        context=context,
    )


def _opt(name: str, layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        vocab=50272,
        context=2048,
        gated=False,
        tied=True,
    )


def _moe(
    name: str,
    size: tuple[int, int, int, int, int],
    experts: Experts,
    vocab: int,
    context: int,
) -> ModelShape:
    layers, hidden, heads, kv_heads, head_dim = size
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=experts.ffn,
        vocab=vocab,
        context=context,
        experts=experts,
    )


def _deepseek(name: str) -> ModelShape:
    return ModelShape(
        name=name,
        layers=61,
        hidden=7168,
        heads=128,
        kv_heads=128,
        head_dim=128,
        ffn=2048,
        vocab=129280,
        context=163840,
        experts=Experts(routed=256, active=8, ffn=2048, shared=1, dense_layers=3, dense_ffn=18432),
        latent=LatentKv(rank=512, rope_dim=64, query_rank=1536, value_dim=128),
    )


MODELS = (
    _opt("opt-13b", 40, 5120, 40),
    _opt("opt-66b", 64, 9216, 72),
    _opt("opt-175b", 96, 12288, 96),
    _dense("llama-3-8b", (32, 4096, 32, 8, 128, 14336), 128256, 131072),
    _dense("llama-3-70b", (80, 8192, 64, 8, 128, 28672), 128256, 131072),
    _dense("qwen3-8b", (36, 4096, 32, 8, 128, 12288), 151936, 40960),
    _dense("qwen3-32b", (64, 5120, 64, 8, 128, 25600), 151936, 40960),
    _moe(
        "qwen3-30b-a3b",
        (48, 2048, 32, 4, 128),
        Experts(routed=128, active=8, ffn=768),
        151936,
        40960,
    ),
    _moe(
        "qwen3-235b-a22b",
        (94, 4096, 64, 4, 128),
        Experts(routed=128, active=8, ffn=1536),
        151936,
        40960,
    ),
    _moe(
        "mixtral-8x7b",
        (32, 4096, 32, 8, 128),
        Experts(routed=8, active=2, ffn=14336),
        32000,
        32768,
    ),
    _deepseek("deepseek-v3"),
    _deepseek("deepseek-r1"),
)
"""By name in scenarios."""


def shape_of(name: str) -> ModelShape:
    """The model of that name. Raises `UsageError` that lists those that are known."""
    known = {model.name: model for model in MODELS}
    if name in known:
        return known[name]
    near = get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"model {name!r} is not in the catalogue{hint} Known are {', '.join(known)}")
