"""Which family a dense model becomes when its MLPs are cut into experts, and whether it can."""

from collections.abc import Iterator
from dataclasses import replace

from antiphon.checkpoint import Activation, Experts, FrequencyFactors, ModelSpec
from antiphon.errors import UsageError

MOST_EXPERTS = 256


def mixture_spec(spec: ModelSpec, count: int, active: int) -> ModelSpec:
    """`spec` with `count` experts in each layer, `active` of them for each row.

    With norms of heads it is a Qwen3-MoE, else a Mixtral: see
    docs/decisions/0022-moefied-models.md. Raises `UsageError`: a number that is impossible, or a
    quirk that neither family has.
    """
    if spec.experts is not None:
        raise UsageError(f"the model is a mixture of {spec.experts.count} experts already")
    if not 2 <= count <= MOST_EXPERTS:
        raise UsageError(f"--experts {count}: must be 2 to {MOST_EXPERTS}")
    if not 1 <= active <= count:
        raise UsageError(f"--top-k {active}: must be 1 to {count}, the number of experts")
    if spec.intermediate % count:
        possible = [n for n in range(2, MOST_EXPERTS + 1) if spec.intermediate % n == 0]
        raise UsageError(
            f"--experts {count}: must divide the MLP's {spec.intermediate} neurons, such as "
            f"{', '.join(map(str, possible[:8])) or 'none'}"
        )
    quirk = next(_quirks(spec), None)
    if quirk is not None:
        raise UsageError(
            f"a {spec.architecture} model with {quirk} can't be written as a mixture: "
            f"neither Mixtral nor Qwen3-MoE has that"
        )
    width = spec.intermediate // count
    return replace(
        spec,
        architecture="qwen3_moe" if spec.qk_norm else "mixtral",
        intermediate=spec.intermediate if spec.qk_norm else width,
        experts=Experts(count=count, active=active, intermediate=width),
    )


def _quirks(spec: ModelSpec) -> Iterator[str]:
    """What the family that `spec` becomes can't say."""
    if spec.mlp_bias:
        yield "biases in its MLPs"
    if spec.post_norms or spec.window_rope_theta is not None or spec.embedding_scale != 1:
        yield "norms, windows or embeddings of Gemma's kind"
    if spec.activation is not Activation.SILU:
        yield f"the activation {spec.activation}"
    if spec.attention_scale is not None or spec.rotary_dim is not None:
        yield "its own scale of attention, or RoPE on a part of a head"
    if isinstance(spec.rope_scaling, FrequencyFactors):
        yield "RoPE factors from a GGUF file (take its Hugging Face folder)"
    if spec.qkv_bias != (spec.out_bias and spec.qk_norm) or (spec.out_bias and not spec.qk_norm):
        yield "biases in its attention"
    if spec.windows and (spec.qk_norm or len(set(spec.windows)) > 1):
        yield "sliding windows in some layers"
