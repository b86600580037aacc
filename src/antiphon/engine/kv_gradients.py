"""What a small change of a prompt's KV does to the tokens after it: gradients, in plain torch.

    prompt ──► keys (before RoPE), values ──► the next tokens' probabilities
                        ▲                                   │
                        └─── d log p(a drawn token) ────────┘

The divergence that an error `e` of the KV causes is ½·eᵀF·e to second order, with the Fisher matrix
F = E[g·gᵀ] over gradients g of the log-probability of tokens that the model itself draws (Amari,
1998). One backward pass over many next tokens is one draw of g for all of them together: scores of
different tokens are uncorrelated, so that their sum's second moment is the sum of theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from antiphon.checkpoint import Activation, ModelSpec
from antiphon.errors import UsageError

from .reference import gated_silu, rms_norm, rotate
from .rope import rotation_table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KvSample:
    """A prompt's KV, float32 [layers, 2, kv_heads, tokens, head_dim], keys before RoPE.

    `gradients`, of the same shape: of the log-probability of what is drawn after it.
    """

    values: np.ndarray
    gradients: np.ndarray


class KvGradients:
    """A model's plain forward pass, which torch can differentiate. Slow: to profile with.

    `weights`: float32 under their Hugging Face names (`load_weights`); they stay as they are.
    Raises `UsageError` for families that compute what this pass does not.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, torch.Tensor]) -> None:
        if other := _beyond_llama(spec):
            raise UsageError(
                f"KV can't be profiled for a model with {other} yet, only for those that compute "
                f"as Llama and Qwen2 do; levels without a profile (int8, int4, lossless) need none"
            )
        self.spec = spec
        self._weights = weights
        cosines, sines = rotation_table(spec, spec.context_len)
        self._cosines, self._sines = cosines, sines

    def sample(self, prompt: Sequence[int], following: Sequence[int], seed: int) -> KvSample:
        """KV of `prompt` and gradients through `following`, which comes after it.

        Same arguments, same result. Raises `UsageError` if both exceed the model's context.
        """
        if len(prompt) + len(following) > self.spec.context_len:
            raise UsageError(
                f"{len(prompt)} and {len(following)} tokens exceed the context of "
                f"{self.spec.context_len}"
            )
        with torch.no_grad():
            _, known = self._forward(torch.tensor(prompt, device="cpu"), None)
        leaves = [(key.requires_grad_(), value.requires_grad_()) for key, value in known]
        hidden, _ = self._forward(torch.tensor(following, device="cpu"), leaves)
        scores = self._scores(hidden)
        draw = torch.multinomial(
            scores.detach().exp(), 1, generator=torch.Generator().manual_seed(seed)
        )
        scores.gather(1, draw).sum().backward()
        values = [torch.stack([one.detach() for one in pair]) for pair in leaves]
        slopes = [torch.stack([_slope(one) for one in pair]) for pair in leaves]
        return KvSample(
            values=torch.stack(values).transpose(2, 3).contiguous().numpy(),
            gradients=torch.stack(slopes).transpose(2, 3).contiguous().numpy(),
        )

    def _forward(
        self, tokens: torch.Tensor, before: list[tuple[torch.Tensor, torch.Tensor]] | None
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """After the last layer [tokens, hidden], and each layer's keys (before RoPE) and values."""
        spec, weights = self.spec, self._weights
        hidden = weights["model.embed_tokens.weight"][tokens]
        made = []
        for number in range(spec.layers):
            prefix = f"model.layers.{number}."
            normed = self._normed(hidden, f"{prefix}input_layernorm")
            attended, pair = self._attend(normed, prefix, before[number] if before else None)
            made.append(pair)
            hidden = hidden + self._linear(attended, f"{prefix}self_attn.o_proj")
            normed = self._normed(hidden, f"{prefix}post_attention_layernorm")
            both = (self._linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
            hidden = hidden + self._linear(
                gated_silu(torch.cat(tuple(both), 1)), f"{prefix}mlp.down_proj"
            )
        return hidden, made

    def _scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """Log-probabilities [tokens, vocabulary] of what comes next."""
        head = self._weights.get("lm_head.weight", self._weights["model.embed_tokens.weight"])
        return F.linear(self._normed(hidden, "model.norm"), head).log_softmax(1)

    def _attend(
        self,
        normed: torch.Tensor,
        prefix: str,
        before: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """[rows, heads · head_dim], and this pass's keys and values [rows, kv_heads, head_dim]."""
        spec, rows = self.spec, len(normed)
        query, key, value = (
            self._linear(normed, f"{prefix}self_attn.{name}_proj").view(rows, -1, spec.head_dim)
            for name in "qkv"
        )
        keys, values = key, value
        if before is not None:
            keys, values = torch.cat((before[0], key)), torch.cat((before[1], value))
        start = len(keys) - rows
        turned = rotate(keys, self._cosines[: len(keys)], self._sines[: len(keys)])
        ends = slice(start, len(keys))
        query = rotate(query, self._cosines[ends], self._sines[ends])
        places = torch.arange(len(keys), device=keys.device)
        visible = places <= places[start:, None]
        group = spec.heads // spec.kv_heads
        attended = F.scaled_dot_product_attention(
            query.transpose(0, 1),
            turned.transpose(0, 1).repeat_interleave(group, 0),
            values.transpose(0, 1).repeat_interleave(group, 0),
            attn_mask=visible,
        )
        return attended.transpose(0, 1).reshape(rows, -1), (key.detach(), value.detach())

    def _normed(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(rows, self._weights[f"{name}.weight"], self.spec.rms_norm_eps)

    def _linear(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(rows, self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias"))


def _slope(leaf: torch.Tensor) -> torch.Tensor:
    assert leaf.grad is not None
    return leaf.grad


def _beyond_llama(spec: ModelSpec) -> str:
    """What the model has that Llama has not, in words; empty: nothing."""
    has = {
        "norms of queries and keys": spec.qk_norm,
        "norms after attention": spec.post_norms,
        "attention windows": any(spec.windows),
        "experts": spec.experts is not None,
        "heads that turn in part": spec.turning != spec.head_dim,
        "scaled attention": spec.attention_scale is not None
        or getattr(spec.rope_scaling, "attention_factor", 1.0) != 1.0,
        "scaled embeddings": spec.embedding_scale != 1.0,
        f"{spec.activation.value} activations": spec.activation is not Activation.SILU,
    }
    return ", ".join(name for name, there in has.items() if there)
