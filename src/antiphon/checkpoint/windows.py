"""Sliding windows in model files: how many positions a row sees, and in which layers."""

from collections.abc import Sequence
from dataclasses import replace

from .facts import Facts
from .model_spec import ModelSpec

_KINDS = {"sliding_attention": True, "full_attention": False}


def config_window(facts: Facts, spec: ModelSpec) -> ModelSpec:
    """`spec` with config.json's `sliding_window` in every layer, where it hides anything."""
    window = facts.integer("sliding_window", 0)
    if facts.get("sliding_window") is not None and window < 1:
        raise facts.wrong("sliding_window", "null or at least 1")
    return _everywhere(spec, window)


def gguf_window(facts: Facts, spec: ModelSpec) -> ModelSpec:
    """`spec` with a GGUF file's window in every layer, where it hides anything."""
    return _everywhere(spec, gguf_window_number(facts))


def gguf_window_number(facts: Facts) -> int:
    """The size of a GGUF file's window; 0 for none."""
    window = facts.integer("attention.sliding_window", 0)
    if window < 0:
        raise facts.wrong("attention.sliding_window", "at least 0")
    return window


def layer_windows(facts: Facts, spec: ModelSpec, sliding: Sequence[bool]) -> tuple[int, ...]:
    """The window of each layer: config.json's `sliding_window` where `layer_types` says so.

    Without `layer_types`, where `sliding` says so. All 0 if there is no window.
    """
    window = facts.integer("sliding_window", 0)
    if facts.get("sliding_window") is not None and window < 1:
        raise facts.wrong("sliding_window", "null or at least 1")
    kinds = facts.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != spec.layers:
            raise facts.wrong("layer_types", f"a list of {spec.layers} kinds, one for each layer")
        unknown = next((k for k in kinds if not isinstance(k, str) or k not in _KINDS), None)
        if unknown is not None:
            raise facts.wrong("layer_types", f"kinds that are supported: {', '.join(_KINDS)}")
        sliding = [_KINDS[kind] for kind in kinds]
    return tuple(window if slides else 0 for slides in sliding) if window and any(sliding) else ()


def _everywhere(spec: ModelSpec, window: int) -> ModelSpec:
    """A window as long as the context hides nothing. A wrong number of layers is found later."""
    if not 0 < window < spec.context_len or not 0 < spec.layers <= 2**16:
        return spec
    return replace(spec, windows=(window,) * spec.layers)
