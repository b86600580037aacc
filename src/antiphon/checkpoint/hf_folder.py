"""Hugging Face folders: config.json → `ModelSpec`, and the safetensors files that hold weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from antiphon.errors import ModelFileError

from .facts import Facts, read_json
from .model_spec import LinearScaling, Llama3Scaling, ModelSpec, RopeScaling
from .safetensors_file import read_safetensors
from .tensor_entry import TensorEntry

_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
_MODEL_TYPES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def spec_from_folder(folder: Path) -> ModelSpec:
    """The hyper-parameters in config.json; what this engine would compute wrongly is refused."""
    facts = Facts(folder / "config.json", read_json(folder / "config.json"))
    _refuse_variants(facts)
    heads, hidden = facts.integer("num_attention_heads"), facts.integer("hidden_size")
    generation = _optional(folder / "generation_config.json")
    return ModelSpec(
        architecture="llama",
        layers=facts.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=facts.integer("num_key_value_heads", heads),
        head_dim=facts.integer("head_dim", hidden // heads if heads > 0 else 0),
        intermediate=facts.integer("intermediate_size"),
        vocab_size=facts.integer("vocab_size"),
        context_len=facts.integer("max_position_embeddings"),
        rope_theta=_rope(facts).number("rope_theta", facts.number("rope_theta", 10000.0)),
        rope_scaling=_rope_scaling(facts),
        rms_norm_eps=facts.number("rms_norm_eps", 1e-6),
        tied_embeddings=facts.boolean("tie_word_embeddings", False),
        attention_bias=facts.boolean("attention_bias", False),
        mlp_bias=facts.boolean("mlp_bias", False),
        eos_token_ids=_token_ids(generation, "eos_token_id") or _token_ids(facts, "eos_token_id"),
        bos_token_id=next(iter(_token_ids(facts, "bos_token_id")), None),
    )


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files that hold the weights, in a fixed order."""
    index = folder / _INDEX
    if index.exists():
        return tuple(folder / name for name in sorted(set(_weight_map(index).values())))
    if (folder / _SINGLE).exists():
        return (folder / _SINGLE,)
    found = tuple(sorted(folder.glob("*.safetensors")))
    if len(found) == 1:
        return found
    if found:
        raise ModelFileError(folder, f"several .safetensors files, but no {_INDEX}")
    if any(next(folder.glob(pattern), None) for pattern in _PICKLES):
        raise ModelFileError(folder, f"only pickled weights ({', '.join(_PICKLES)}): {CONVERT}")
    raise ModelFileError(folder, f"no {_SINGLE} or {_INDEX}")


CONVERT = (
    "pickle files can run code when loaded, so they are refused; convert them to safetensors "
    "(transformers: model.save_pretrained(folder))"
)


def entries_from_folder(folder: Path, spec: ModelSpec) -> dict[str, TensorEntry]:
    """All shards' tensors by name, without those that the model derives from others."""
    index = folder / _INDEX
    weight_map = _weight_map(index) if index.exists() else None
    entries: dict[str, TensorEntry] = {}
    for path in weight_files(folder):
        if not path.is_file():
            raise ModelFileError(path, "this shard is missing")
        for name, entry in read_safetensors(path).items():
            if name in entries:
                raise ModelFileError(path, "is in two shards", tensor=name)
            entries[name] = entry
    for name, shard in (weight_map or {}).items():
        if name not in entries or entries[name].path.name != shard:
            raise ModelFileError(folder / shard, f"lacks this tensor of {_INDEX}", tensor=name)
    return {name: entry for name, entry in entries.items() if not _derived(name, spec)}


def _derived(name: str, spec: ModelSpec) -> bool:
    """Saved by some tools but not read: RoPE's frequencies, and a tied output matrix."""
    tied_output = spec.tied_embeddings and name == "lm_head.weight"
    return tied_output or name.endswith(".rotary_emb.inv_freq")


def _weight_map(index: Path) -> Mapping[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(index, "'weight_map' is missing or empty")
    for shard in weight_map.values():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelFileError(index, f"shard {shard!r} is not the name of a file in this folder")
        if not shard.endswith(".safetensors"):
            raise ModelFileError(index, f"shard {shard!r} is not a .safetensors file")
    return weight_map


def _refuse_variants(facts: Facts) -> None:
    names = facts.get("architectures")
    if names is None:
        model_type = facts.string("model_type")
        names = [_MODEL_TYPES.get(model_type, model_type)]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in _ARCHITECTURES:
        problem = f"architecture {names!r} is not supported; supported: {', '.join(_ARCHITECTURES)}"
        raise ModelFileError(facts.path, problem)
    if facts.string("hidden_act", "silu") != "silu":
        raise facts.wrong("hidden_act", "'silu'")
    if facts.get("quantization_config") is not None:
        raise ModelFileError(facts.path, "weights quantised by 'quantization_config' are not read")
    window = facts.get("sliding_window")
    if window is not None and facts.integer("sliding_window") < facts.integer(
        "max_position_embeddings"
    ):
        raise facts.wrong("sliding_window", "null: sliding-window attention is not supported yet")


def _rope(facts: Facts) -> Facts:
    """transformers ≥ 5 writes `rope_parameters`, earlier ones `rope_scaling`; both may be null."""
    for key in ("rope_parameters", "rope_scaling"):
        value = facts.get(key)
        if value is not None:
            if not isinstance(value, dict):
                raise facts.wrong(key, "an object")
            return Facts(facts.path, value)
    return Facts(facts.path, {})


def _rope_scaling(facts: Facts) -> RopeScaling | None:
    rope = _rope(facts)
    kind = rope.string("rope_type", rope.string("type", "default"))
    if rope.number("partial_rotary_factor", facts.number("partial_rotary_factor", 1.0)) != 1.0:
        raise rope.wrong("partial_rotary_factor", "1: partial RoPE is not supported")
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(factor=rope.number("factor"))
        case "llama3":
            context = facts.integer("max_position_embeddings")
            return Llama3Scaling(
                factor=rope.number("factor"),
                low_freq_factor=rope.number("low_freq_factor"),
                high_freq_factor=rope.number("high_freq_factor"),
                original_context_len=rope.integer("original_max_position_embeddings", context),
            )
    raise ModelFileError(facts.path, f"RoPE scaling {kind!r} is not supported")


def _token_ids(facts: Facts, key: str) -> tuple[int, ...]:
    value: Any = facts.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in values):
        raise facts.wrong(key, "a token id or a list of token ids")
    return tuple(dict.fromkeys(values))


def _optional(path: Path) -> Facts:
    return Facts(path, read_json(path) if path.exists() else {})
