"""Mistral (Jiang et al. 2023): Llama with a sliding window in every layer, or without."""

from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import config_window
from .family import Family


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return config_window(facts, spec)


MISTRAL = Family(
    name="mistral",
    classes=("MistralForCausalLM",),
    model_types=("mistral",),
    gguf=None,  # Mistral's files say `llama`
    config_quirks=_config_quirks,
)
