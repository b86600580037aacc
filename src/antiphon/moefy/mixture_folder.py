"""Writes a dense model as a mixture of experts: a Hugging Face folder that others load too.

checkpoint ─► layer by layer: clusters of neurons, router ─► shards ─► index, config, tokenizer
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from antiphon.checkpoint import Checkpoint, ModelSpec, expected_shapes, family_of, hf_config
from antiphon.engine import StoredTensors
from antiphon.errors import UsageError

from .expert_split import split_mlp
from .mixture_spec import mixture_spec
from .tokenizer_folder import write_tokenizer

SHARD_BYTES = 2 * 1024**3
_INDEX = "model.safetensors.index.json"

Named = Iterator[tuple[str, torch.Tensor]]
Advance = Callable[[float], None]
"""Gets the share of the work that is done, 0 to 1."""


def moefy(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    experts: int,
    active: int,
    advance: Advance = lambda share: None,
    shard_bytes: int = SHARD_BYTES,
) -> ModelSpec:
    """Write `checkpoint` to the new `folder` as a mixture, float32; returns what it is.

    Each MLP becomes `experts` experts of which a row takes `active`; if that is all of them, the
    model computes what it did before. In memory are a layer and a shard. The folder appears when it
    is whole, or not at all. Raises `UsageError`: it is there already or can't be written, or the
    model can't become a mixture.
    """
    spec = mixture_spec(checkpoint.spec, experts, active)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder}: is there already: give a new folder")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.absolute().parent, prefix=f".{folder.name}-", ignore_cleanup_errors=True
        ) as made:
            whole = Path(made) / "whole"
            whole.mkdir()
            _write_weights(whole, checkpoint, spec, advance, shard_bytes)
            _write_json(whole / "config.json", hf_config(spec) | {"dtype": "float32"})
            write_tokenizer(whole, checkpoint)
            whole.rename(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{folder}: can't be written: {reason}") from None
    return spec


def _write_weights(
    folder: Path, checkpoint: Checkpoint, spec: ModelSpec, advance: Advance, shard_bytes: int
) -> None:
    """Shards of at least `shard_bytes`, but for the last, and their index."""
    family = family_of(spec)
    total = sum(1 for _ in expected_shapes(spec))
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    size = kept = 0

    def write() -> None:
        name = f"model-{len(set(weight_map.values())) + 1:05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o666 & (folder.stat().st_mode | 0o600))  # the library leaves it 600
        weight_map.update(dict.fromkeys(shard, name))
        shard.clear()

    for number, (name, tensor) in enumerate(_mixture_tensors(checkpoint, spec), 1):
        shard[family.theirs(name)] = tensor.contiguous()
        size += tensor.nbytes
        if size - kept >= shard_bytes:
            write()
            kept = size
        advance(number / total)
    if shard:
        write()
    _write_json(folder / _INDEX, {"metadata": {"total_size": size}, "weight_map": weight_map})


def _mixture_tensors(checkpoint: Checkpoint, spec: ModelSpec) -> Named:
    """The mixture's tensors by the engine's names, float32: all but MLPs are as they were."""
    stored = StoredTensors(checkpoint)
    for name in checkpoint.tensors:
        before, _, part = name.partition(".mlp.")
        if part == "gate_proj.weight":
            yield from _experts(stored, f"{before}.", spec)
        elif part not in ("up_proj.weight", "down_proj.weight"):
            yield name, stored.pop(name)


def _experts(stored: StoredTensors, layer: str, spec: ModelSpec) -> Named:
    """Router and experts of one layer; `layer` is what its tensors' names begin with."""
    assert spec.experts is not None
    gate, up, down = (
        stored.pop(f"{layer}mlp.{part}_proj.weight") for part in ("gate", "up", "down")
    )
    gain = stored.pop(f"{layer}post_attention_layernorm.weight")
    split = split_mlp(gate, gain, spec.experts.count, spec.experts.active)
    yield f"{layer}mlp.gate.weight", split.router
    for number, neurons in enumerate(split.neurons):
        expert = f"{layer}mlp.experts.{number}"
        yield f"{expert}.gate_proj.weight", gate[neurons]
        yield f"{expert}.up_proj.weight", up[neurons]
        yield f"{expert}.down_proj.weight", down[:, neurons] * split.down_scale


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
