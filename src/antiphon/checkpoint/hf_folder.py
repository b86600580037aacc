"""Hugging Face folders: config.json → `ModelSpec`, and the safetensors files that hold weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon.errors import ModelFileError

from .facts import Facts, read_json
from .families import FAMILIES, Family
from .hf_rope import rope_of
from .model_spec import ModelSpec
from .model_tensors import OUTPUT, check_tensors, layer_shapes
from .safetensors_file import read_safetensors
from .tensor_entry import TensorEntry

_ACTIVATIONS = {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"}
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def family_of_folder(folder: Path) -> Family:
    """The family that config.json names; one that there is none of is refused by its name."""
    return _family(_config(folder))


def spec_from_folder(folder: Path) -> ModelSpec:
    """The hyper-parameters in config.json; what this engine would compute wrongly is refused."""
    outer = _config(folder)
    family = _family(outer)
    if outer.get("quantization_config") is not None:
        raise ModelFileError(outer.path, "weights quantised by 'quantization_config' are not read")
    facts = _text_facts(outer, family).over(family.defaults)
    wanted = _ACTIVATIONS[family.activation_key]
    if facts.string(family.activation_key, wanted) != wanted:
        raise facts.wrong(family.activation_key, repr(wanted))
    generation = _optional(folder / "generation_config.json")
    ends = _token_ids(generation, "eos_token_id") or _token_ids(outer, "eos_token_id")
    plain = _plain_spec(facts, family, ends or _token_ids(facts, "eos_token_id"))
    return family.config_quirks(facts, plain)


def _plain_spec(facts: Facts, family: Family, eos_token_ids: tuple[int, ...]) -> ModelSpec:
    """What is said alike in every family's config.json."""
    heads, hidden = facts.integer("num_attention_heads"), facts.integer("hidden_size")
    head_dim = facts.integer("head_dim", hidden // heads if heads > 0 else 0)
    rope = rope_of(facts, family.name)
    if rope.share != 1 and not (family.partial_rope and 0 < rope.share < 1):
        problem = f"'partial_rotary_factor' is {rope.share}, must be 1 for {family.name}"
        raise ModelFileError(facts.path, problem)
    return ModelSpec(
        architecture=family.name,
        layers=facts.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=facts.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        intermediate=facts.integer("intermediate_size"),
        vocab_size=facts.integer("vocab_size"),
        context_len=facts.integer("max_position_embeddings"),
        rope_theta=rope.theta,
        rope_scaling=rope.scaling,
        rotary_dim=None if rope.share == 1 else int(head_dim * rope.share),
        rms_norm_eps=facts.number("rms_norm_eps", 1e-6),
        tied_embeddings=facts.boolean("tie_word_embeddings", False),
        eos_token_ids=eos_token_ids,
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
    """All shards' tensors by the engine's names: exactly those that `spec` needs, or an error.

    What the model doesn't read (see `_derived`), or what is not the language model's, is left out.
    """
    family = family_of_folder(folder)
    entries: dict[str, TensorEntry] = {}
    for stored, entry in _stored_entries(folder).items():
        name = _engine_name(stored, family)
        if name is None or _derived(name, spec):
            continue
        if name in entries:
            raise ModelFileError(entry.path, f"is there as {entries[name].source_name!r} too",
                                 tensor=stored)  # fmt: skip
        offset = family.norm_offset if name.endswith("norm.weight") else 0.0
        entries[name] = replace(entry, name=name, offset=offset)
    entries = family.split(entries, dict(layer_shapes(spec, 0)))
    check_tensors(folder, spec, entries, family.theirs)
    return entries


def _stored_entries(folder: Path) -> dict[str, TensorEntry]:
    """All shards' tensors by their own names."""
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
    return entries


def _engine_name(stored: str, family: Family) -> str | None:
    """The engine's name of a tensor; None if it is not the language model's."""
    if stored.startswith(family.other_prefixes):
        return None
    for prefix in family.text_prefixes:
        if stored.startswith(prefix):
            inner = stored.removeprefix(prefix)
            stored = inner if inner.startswith(("model.", "lm_head.")) else f"model.{inner}"
            break
    return family.engine_name(stored)


def _derived(name: str, spec: ModelSpec) -> bool:
    """Saved by some tools but not read: RoPE's frequencies, and a tied output matrix."""
    tied_output = spec.tied_embeddings and name == OUTPUT
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


def _config(folder: Path) -> Facts:
    return Facts(folder / "config.json", read_json(folder / "config.json"))


def _family(facts: Facts) -> Family:
    names = facts.get("architectures")
    if names is None:
        model_type = facts.string("model_type")
        found = [family for family in FAMILIES if model_type in family.model_types]
        names = [model_type]
    else:
        known = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
        found = [family for family in FAMILIES if known and names[0] in family.classes]
    if not found:
        supported = ", ".join(name for family in FAMILIES for name in family.classes)
        problem = f"architecture {names!r} is not supported; supported: {supported}"
        raise ModelFileError(facts.path, problem)
    return found[0]


def _text_facts(facts: Facts, family: Family) -> Facts:
    """The language model's keys, where they stand apart from an image model's."""
    if family.text_config is None or facts.get(family.text_config) is None:
        return facts
    return facts.inner(family.text_config)


def _token_ids(facts: Facts, key: str) -> tuple[int, ...]:
    value: Any = facts.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in values):
        raise facts.wrong(key, "a token id or a list of token ids")
    return tuple(dict.fromkeys(values))


def _optional(path: Path) -> Facts:
    return Facts(path, read_json(path) if path.exists() else {})
