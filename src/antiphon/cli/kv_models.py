"""The models that `antiphon kv cost` knows by name: those of the performance models."""

from antiphon.core.kv_cost import KvModel, first_guess_tokens_per_s, grouped, latent
from antiphon.perf.hardware import MODELS, ModelShape


def kv_model(shape: ModelShape) -> KvModel:
    """What that model keeps of each token."""
    tokens_per_s = first_guess_tokens_per_s(shape.parameters)
    if shape.latent is not None:
        return latent(
            shape.name,
            layers=shape.layers,
            rank=shape.latent.rank,
            rope_dim=shape.latent.rope_dim,
            source=shape.source,
            tokens_per_s=tokens_per_s,
        )
    return grouped(
        shape.name,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        source=shape.source,
        tokens_per_s=tokens_per_s,
    )


KV_MODELS = tuple(map(kv_model, MODELS))
