"""Engine and KV memory of a configuration: this program's kernels on the processor, or torch on a
device."""

from dataclasses import dataclass

from antiphon.checkpoint import Checkpoint
from antiphon.core.arithmetic import dtype_of, on_torch_device
from antiphon.engine import (
    DeviceKv,
    KvLayout,
    KvMemory,
    PagedKv,
    TorchEngine,
    check_available,
    check_room,
    device_numerics_id,
    device_weight_bytes,
    kv_dtype_of,
    layout_of,
    load_llama,
    load_on_device,
    numerics_id,
    open_device,
    runs_long,
)
from antiphon.engine.device.cuda_copies import PinnedMover
from antiphon.engine.device.device_kv import PlainMover
from antiphon.store.transfer import OwnedRegion
from antiphon.types import Config, KvShape

from .cache_folder import cache_folder
from .staged_region import StagedRegion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineParts:
    """`region`: what others read of the memory, if they are to. `layer_groups`: whether KV may come
    layer by layer."""

    engine: TorchEngine
    memory: PagedKv
    region: OwnedRegion | None
    numerics: str
    layer_groups: bool


def load_parts(
    checkpoint: Checkpoint, config: Config, max_model_len: int, number: int, *, shares_kv: bool
) -> EngineParts:
    """What worker `number` of this host computes with. Raises `UsageError`: no such device, or too
    little memory. Memory comes first: if there is too little, nobody waits for weights."""
    dtype, on_torch = dtype_of(config.model.quantize, config.model.dtype), on_torch_device(config)
    layout = layout_of(
        checkpoint.spec,
        config.kv.page_tokens,
        kv_dtype_of(config.kv.dtype, dtype),
        windows_apart=True,
    )
    pages = config.kv.memory_bytes // layout.page_bytes
    if on_torch:
        return _on_device(checkpoint, config, max_model_len, number, layout, pages, shares_kv)
    check_available(layout, pages)
    region = OwnedRegion(_shape(config, layout, pages), commit=False) if shares_kv else None
    memory = KvMemory(layout, pages, region)
    model = load_llama(
        checkpoint,
        dtype=dtype,
        cache_dir=cache_folder(config.engine),
        context_len=max_model_len,
    )
    return EngineParts(
        engine=TorchEngine(model, memory),
        memory=memory,
        region=region,
        numerics=numerics_id(
            dtype, layout.dtype, long_rope=runs_long(checkpoint.spec, max_model_len)
        ),
        layer_groups=True,
    )


def _on_device(
    checkpoint: Checkpoint,
    config: Config,
    max_model_len: int,
    number: int,
    layout: KvLayout,
    pages: int,
    shares_kv: bool,
) -> EngineParts:
    device = open_device(config.engine.device, number)
    cuda = device.type == "cuda"
    dtype = dtype_of(config.model.quantize, config.model.dtype)
    if shares_kv or not cuda:
        copies = shares_kv + (not cuda)
        check_available(layout, pages * copies)
    check_room(
        device, weights=device_weight_bytes(checkpoint, dtype), kv=(pages + 1) * layout.page_bytes
    )
    region = StagedRegion(_shape(config, layout, pages), commit=False) if shares_kv else None
    mover = PinnedMover if cuda else PlainMover
    memory = DeviceKv(layout, pages, device, region, mover)
    if region is not None:
        region.attach(memory)
    model = load_on_device(checkpoint, device=device, dtype=dtype, context_len=max_model_len)
    return EngineParts(
        engine=TorchEngine(model, memory),
        memory=memory,
        region=region,
        numerics=device_numerics_id(
            device,
            dtype,
            layout.dtype,
            model.shapes,
            long_rope=runs_long(checkpoint.spec, max_model_len),
        ),
        layer_groups=False,
    )


def _shape(config: Config, layout: KvLayout, pages: int) -> KvShape:
    return KvShape(
        layout=layout.name,
        page_tokens=layout.page_tokens,
        block_tokens=config.kv.block_tokens,
        page_bytes=layout.page_bytes,
        pages=pages,
        entry_pages=layout.entry_pages,
    )
