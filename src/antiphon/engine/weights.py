"""A checkpoint's tensors, ready for the forward pass: as float32, or quantised and packed."""

import logging
from collections.abc import Callable
from math import prod
from pathlib import Path

import torch

from antiphon.checkpoint import Checkpoint, StorageType, TensorEntry
from antiphon.errors import ModelFileError

from .dequantize import dequantize
from .quantized_weights import REVISION as QUANTIZED_REVISION
from .quantized_weights import QuantizedWeights, assemble, parts
from .weight_cache import CachedTensor, WeightCache

_LOG = logging.getLogger(__name__)


def load_weights(checkpoint: Checkpoint, *, cache_dir: Path | None) -> dict[str, torch.Tensor]:
    """All tensors of the checkpoint by the engine's names: contiguous, float32, finite.

    Rows of q and k are in Hugging Face's order (rotary halves side by side). With tied embeddings
    there is no `lm_head.weight`. Tensors may be memory-mapped: they must not be written to.

    Converted weights are kept in `cache_dir/weights` (see `WeightCache`), so that the next start
    only maps them; None, or a folder that can't be used (one warning is logged), converts in
    memory. Raises `ModelFileError` for a value that is NaN or infinite. The shapes were checked
    when the checkpoint was opened.
    """
    entries = checkpoint.tensors.values()
    if cache_dir is not None and any(map(_needs_conversion, entries)):
        cache = WeightCache(cache_dir / "weights")
        name = f"{checkpoint.identity.hex()}-fp32"
        tensors = _through_cache(cache, name, [_cached(entry) for entry in entries])
        if tensors is not None:
            return tensors
    return {entry.name: _convert(entry) for entry in entries}


def load_quantized(checkpoint: Checkpoint, *, cache_dir: Path | None) -> QuantizedWeights:
    """The checkpoint's weights quantised to int8 and packed; cached, and refused, as above.

    Cached or not, they are the same to the bit.
    """
    spec = checkpoint.spec
    if cache_dir is not None:
        cache = WeightCache(cache_dir / "weights")
        name = f"{checkpoint.identity.hex()}-{QUANTIZED_REVISION}"
        tensors = _through_cache(cache, name, parts(spec, StoredTensors(checkpoint)))
        if tensors is not None:
            return assemble(spec, tensors)
    return QuantizedWeights.take(spec, StoredTensors(checkpoint))


def weight_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """Memory that the checkpoint's weights take in `dtype`, "int8" or "fp32"; reads no tensor."""
    if dtype == "fp32":
        return sum(4 * prod(entry.shape) for entry in checkpoint.tensors.values())
    wanted = parts(checkpoint.spec, StoredTensors(checkpoint))
    return sum(part.size for part in wanted)


class StoredTensors:
    """A checkpoint's tensors, each converted when it is taken: see `load_weights`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._entries = checkpoint.tensors

    def pop(self, key: str, /) -> torch.Tensor:
        """The tensor as float32. Raises `KeyError`, or `ModelFileError` as `load_weights`."""
        return _convert(self._entries[key])


def _through_cache(
    cache: WeightCache, name: str, wanted: list[CachedTensor]
) -> dict[str, torch.Tensor] | None:
    """From the cache, filled first if need be; None if the disk doesn't let us."""
    seen = cache.inode(name)
    tensors = cache.load(name, wanted)
    if tensors is not None:
        return tensors
    try:
        with cache.alone(name, seen) as made_meanwhile:
            if not made_meanwhile:
                cache.store(name, wanted)
    except OSError as error:
        _LOG.warning("converted weights are not cached: %s", error)
        return None
    return cache.load(name, wanted)


def _cached(entry: TensorEntry) -> CachedTensor:
    return CachedTensor(name=entry.name, shape=entry.shape, values=_converter(entry))


def _converter(entry: TensorEntry) -> Callable[[], torch.Tensor]:
    return lambda: _convert(entry)


def _needs_conversion(entry: TensorEntry) -> bool:
    return entry.storage is not StorageType.F32 or entry.interleaved_heads is not None


def _convert(entry: TensorEntry) -> torch.Tensor:
    values = dequantize(torch.from_numpy(entry.raw), entry.storage, entry.shape)
    if not torch.isfinite(values).all():
        problem = "holds values that are NaN or infinite: the file is damaged"
        raise ModelFileError(entry.path, problem, tensor=entry.source_name)
    if entry.interleaved_heads is not None:
        values = deinterleave(values, entry.interleaved_heads)
    return values + entry.offset if entry.offset else values


def deinterleave(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of q and k: in each head, even rows first, then odd ones.

    `rows`: (heads · head_dim, …), returned as new memory of the same shape.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)
