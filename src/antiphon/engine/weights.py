"""A checkpoint's tensors as torch tensors, ready for the forward pass."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from antiphon.checkpoint import Checkpoint, StorageType, TensorEntry
from antiphon.errors import ModelFileError, UsageError

from .dequantize import dequantize
from .weight_cache import CachedTensor, WeightCache

_DTYPES = {"fp32": torch.float32}
_LOG = logging.getLogger(__name__)


def load_weights(
    checkpoint: Checkpoint, *, dtype: str = "fp32", cache_dir: Path | None
) -> dict[str, torch.Tensor]:
    """All tensors of the checkpoint by Hugging Face name, contiguous, of `dtype`, finite.

    Rows of q and k are in Hugging Face's order (rotary halves side by side). With tied embeddings
    there is no `lm_head.weight`. Tensors may be memory-mapped: they must not be written to.

    Converted weights are kept in `cache_dir/weights` (see `WeightCache`), so that the next start
    only maps them; None, or a folder that can't be used (one warning is logged), converts in
    memory. Raises `UsageError` for an unknown dtype, `ModelFileError` for a value that is NaN or
    infinite. The shapes were checked when the checkpoint was opened.
    """
    if dtype not in _DTYPES:
        raise UsageError(f"dtype {dtype!r} is not supported; supported: {', '.join(_DTYPES)}")
    entries = checkpoint.tensors.values()
    if cache_dir is not None and any(map(_needs_conversion, entries)):
        cache = WeightCache(cache_dir / "weights")
        name = f"{checkpoint.identity.hex()}-{dtype}"
        tensors = _through_cache(cache, name, [_cached(entry) for entry in entries])
        if tensors is not None:
            return tensors
    return {entry.name: _convert(entry) for entry in entries}


def _through_cache(
    cache: WeightCache, name: str, wanted: list[CachedTensor]
) -> dict[str, torch.Tensor] | None:
    """From the cache, filled first if need be; None if the disk doesn't let us."""
    tensors = cache.load(name, wanted)
    if tensors is not None:
        return tensors
    try:
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
    return values


def deinterleave(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of q and k: in each head, even rows first, then odd ones.

    `rows`: (heads · head_dim, …), returned as new memory of the same shape.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)
