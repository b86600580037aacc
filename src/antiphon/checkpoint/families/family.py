"""What a family of models is: how its files differ from Llama's."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.errors import ModelFileError

from ..experts import Experts, Scoring
from ..facts import Facts
from ..model_spec import ModelSpec
from ..tensor_entry import TensorEntry

Quirks = Callable[[Facts, ModelSpec], ModelSpec]
"""From a file's facts and the spec as a Llama would have it to the spec with the family's quirks.

Raises `ModelFileError` for a variant that would be computed wrongly.
"""

LLAMA_GGUF_PARTS: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QK_NORM_GGUF_PARTS: Mapping[str, str] = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}


EXPERT_GGUF_PARTS: Mapping[str, str] = {
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b": "mlp.correction",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_NUMBER = re.compile(r"\.[0-9]+\.")
_GATING = {1: Scoring.SOFTMAX, 2: Scoring.SIGMOID}


def gguf_experts(facts: Facts, spec: ModelSpec) -> Experts | None:
    """The experts that a GGUF file's metadata tells of; None: there are none."""
    count = facts.integer("expert_count", 0)
    if count == 0:
        return None
    gating = facts.integer("expert_gating_func", 1)
    if gating not in _GATING:
        raise facts.wrong("expert_gating_func", "1 (softmax) or 2 (sigmoid)")
    dense = facts.integer("leading_dense_block_count", 0)
    return Experts(
        count=count,
        active=facts.integer("expert_used_count"),
        intermediate=facts.integer("expert_feed_forward_length", spec.intermediate),
        shared=facts.integer("expert_shared_count", 0),
        dense_layers=tuple(range(min(dense, spec.layers, 2**16))),
        scoring=_GATING[gating],
        normalised=facts.boolean("expert_weights_norm", gating == 1),
        scale=facts.number("expert_weights_scale", 1.0),
        corrected=gating == 2,
        groups=facts.integer("expert_group_count", 1),
        active_groups=facts.integer("expert_group_used_count", 1),
    )


def _as_llama(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that share a config class in `transformers` and an architecture in llama.cpp.

    A part is what stands between `model.layers.N.` (GGUF: `blk.N.`) and `.weight` or `.bias`.
    `parts` and `gguf_parts` lead from a family's names to the engine's; parts that `parts` doesn't
    name are Llama's, those that `gguf_parts` doesn't name are refused. `fused` are parts, by the
    engine's names, whose rows are those of several others. `gguf` is None where GGUF files of the
    family say another's name.
    """

    name: str
    classes: tuple[str, ...]
    """`architectures` in config.json."""
    model_types: tuple[str, ...]
    """`model_type` in config.json."""
    gguf: str | None
    """`general.architecture` in GGUF files."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the config class in `transformers` says where config.json says nothing."""
    activation_key: str = "hidden_act"
    partial_rope: bool = False
    """Whether a part of a head may stay as it is under rotary embedding."""
    text_config: str | None = None
    """Where config.json keeps the language model's keys beside others."""
    text_prefixes: tuple[str, ...] = ()
    """What may stand before the names of the language model's tensors."""
    other_prefixes: tuple[str, ...] = ()
    """What the names of tensors begin with that are not the language model's."""
    config_quirks: Quirks = _as_llama
    gguf_quirks: Quirks = _as_llama
    parts: Mapping[str, str] = field(default_factory=dict)
    gguf_parts: Mapping[str, str] = field(default_factory=lambda: LLAMA_GGUF_PARTS)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gguf_interleaves: bool = False
    """Whether GGUF files hold q and k with the two halves of a head row by row in turn."""
    norm_offset: float = 0.0
    """What Hugging Face's stored gains lack: 1 where a norm multiplies by 1 + weight."""

    def engine_name(self, stored: str) -> str:
        """The engine's name of a tensor in Hugging Face folders, less its prefix."""
        return _renamed(stored, self.parts)

    def theirs(self, name: str) -> str:
        """What the family's Hugging Face folders call the tensor that holds `name`."""
        match name.split(".", 3):
            case ["model", "layers", layer, rest]:
                part, _, kind = rest.rpartition(".")
                name = f"model.layers.{layer}.{self.holder(part)}.{kind}"
        return _renamed(name, {ours: theirs for theirs, ours in self.parts.items()})

    def holder(self, part: str) -> str:
        """The part whose tensor holds `part`: a fused one, or itself."""
        return next((outer for outer, inner in self.fused.items() if part in inner), part)

    def split(
        self, entries: Mapping[str, TensorEntry], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, TensorEntry]:
        """`entries` with fused and stacked tensors as several, sharing memory.

        `shapes`: of a layer's tensors, see `layer_shapes`. Raises `ModelFileError` for a fused
        tensor of another height.
        """
        found: dict[str, TensorEntry] = {}
        for name, entry in entries.items():
            before, _, rest = name.partition(".layers.")
            layer, _, part = rest.partition(".")
            stem, _, kind = part.rpartition(".")
            if stem.startswith("mlp.experts.") and len(entry.shape) == 3:
                found |= _unstacked(entry, f"{before}.layers.{layer}.mlp.experts.", stem, kind)
                continue
            inner = [f"{one}.{kind}" for one in self.fused.get(stem, ())]
            heights = [shapes[one][0] for one in inner if one in shapes]
            if not inner or len(heights) != len(inner):
                found[name] = entry
                continue
            if sum(heights) != entry.shape[0]:
                wanted = [sum(heights), *shapes[inner[0]][1:]]
                problem = f"has shape {list(entry.shape)}, but the model's config says {wanted}"
                raise ModelFileError(entry.path, problem, tensor=entry.source_name)
            first = 0
            for one, height in zip(inner, heights, strict=True):
                whole = f"{before}.layers.{layer}.{one}"
                found[whole] = entry.rows(whole, first, height)
                first += height
        return found


def _renamed(name: str, parts: Mapping[str, str]) -> str:
    """`name` of a layer's tensor with its part as `parts` say; a `*` there is any number.

    What `parts` name may be a part, or a part with its kind.
    """
    match name.split(".", 3):
        case ["model", "layers", layer, rest]:
            number = _NUMBER.search(rest)
            pattern = _NUMBER.sub(".*.", rest, count=1)
            part, _, kind = pattern.rpartition(".")
            found = parts.get(pattern) or f"{parts.get(part, part)}.{kind}"
            if number is not None:
                found = found.replace(".*.", number[0])
            return f"model.layers.{layer}.{found}"
    return name


def _unstacked(entry: TensorEntry, prefix: str, stem: str, kind: str) -> dict[str, TensorEntry]:
    """One tensor for each expert of a stack [experts, rows, columns], sharing its bytes."""
    part = stem.removeprefix("mlp.experts.")
    found = {}
    for number in range(entry.shape[0]):
        name = f"{prefix}{number}.{part}.{kind}"
        found[name] = replace(entry.rows(name, number, 1), shape=entry.shape[1:])
    return found
