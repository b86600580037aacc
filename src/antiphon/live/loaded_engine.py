"""A model's engine made ready to run: weights, KV memory, scheduler. What a worker needs.

checkpoint ─► KV memory ─► weights ─► engine, warmed up ─► scheduler
              (a region that other workers may map, if they are to)
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from antiphon.checkpoint import Checkpoint
from antiphon.core.arithmetic import on_torch_device
from antiphon.core.scheduler import Scheduler
from antiphon.engine import TorchEngine, first_use, open_device
from antiphon.errors import ConfigError
from antiphon.host import give_back_freed_memory
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    Chunk,
    Config,
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    SequenceKey,
    StepPlan,
)

from .cache_folder import cache_folder
from .engine_parts import EngineParts, load_parts
from .kv_commit import KvCommit
from .kv_lineage import numerics_with_lineage
from .kv_listeners import KvListeners
from .model_name import model_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedEngine:
    """What runs a model; `scheduler` and `engine` are fresh and belong together.

    `info.name` is the model's own name, `max_model_len` what prompt and output may have together:
    the scheduler's own limit, which KV memory may have made shorter than the configuration's.
    `region` is where the engine's KV lies; None: in memory of this process alone. `heard` passes
    on what the scheduler's page pool says. `commit` takes the region's memory from the system.
    `layers`: the parts in which a page can come, one after the other.
    """

    info: ModelInfo
    max_model_len: int
    scheduler: Scheduler
    engine: TorchEngine
    layers: int
    region: OwnedRegion | None = None
    heard: KvListeners = field(default_factory=KvListeners)
    commit: KvCommit | None = None


def load_engine(
    checkpoint: Checkpoint,
    config: Config,
    say: Callable[[str], None],
    *,
    shares_kv: bool = False,
    number: int = 0,
) -> LoadedEngine:
    """Load what runs the model of `config`; `say` gets a line before each long part.

    `shares_kv`: other workers, or a store, are to read this one's KV, and it theirs. Its memory is
    taken from the system beside all this (see `KvCommit`). `number`: which of this host's workers
    it is, from 0: they take devices in turn.

    Of several processes that do so for the first time, one converts weights and compiles kernels,
    and the others wait for it. Warns in the log if the KV memory is too small for the longest
    sequence. Raises `UsageError`: a file that can't be used, or too little memory.
    """
    max_model_len = _max_model_len(config, checkpoint)
    if on_torch_device(config):
        device = open_device(config.engine.device, number)
        if device.type == "cpu":
            say("Computing by torch, to see what a GPU would say: int8 serves far faster here")
    say("Loading weights (the first time converts them)")
    parts = load_parts(checkpoint, config, max_model_len, number, shares_kv=shares_kv)
    commit = KvCommit(parts.region) if parts.region is not None else None
    info = _info(config, checkpoint, parts)
    say("Preparing kernels (the first time compiles them)")
    with first_use(cache_folder(config.engine), info.numerics, checkpoint.identity.hex()):
        warm_up(parts.engine, parts.memory.layout.entry_pages)
    give_back_freed_memory()
    heard = KvListeners()
    scheduler = Scheduler(
        config=config.scheduler,
        kv=config.kv,
        pages=parts.memory.pages,
        model=info,
        max_model_len=max_model_len,
        lease_ttl_s=config.cluster.lease_ttl_s,
        listen=heard,
    )
    if scheduler.max_model_len < max_model_len:
        _log.warning(
            "prompt and output may have %d tokens together, not %d: more do not fit into the KV "
            "memory (--kv-memory, or kv.memory_bytes, makes it larger)",
            scheduler.max_model_len,
            max_model_len,
        )
    return LoadedEngine(
        info=info,
        max_model_len=scheduler.max_model_len,
        scheduler=scheduler,
        engine=parts.engine,
        layers=checkpoint.spec.layers if parts.layer_groups else 1,
        region=parts.region,
        heard=heard,
        commit=commit,
    )


def warm_up(engine: TorchEngine, entry_pages: int = 1) -> None:
    """Run one token through a fresh engine, so that no user's request waits for compilation.

    It writes to the first pages, which belong to nobody yet, and is forgotten again.
    """
    request = Request(
        id=RequestId("warm-up"), prompt=(0,), sampling=SamplingParams(max_tokens=1, seed=0)
    )
    pages = tuple(range(entry_pages))
    chunk = Chunk(request=request, sequence=0, tokens=(0,), start=0, new_pages=pages, samples=(0,))
    engine.forward(StepPlan(number=0, chunks=(chunk,)))
    engine.forward(StepPlan(number=0, chunks=(), ended=(SequenceKey(request.id, 0),)))
    engine.forget_counts()


def _max_model_len(config: Config, checkpoint: Checkpoint) -> int:
    context_len = checkpoint.spec.context_len
    asked = config.model.max_model_len or context_len
    if asked > context_len:
        raise ConfigError(
            f"model.max_model_len = {asked}: the context of {checkpoint.name} is {context_len}"
        )
    return asked


def _info(config: Config, checkpoint: Checkpoint, parts: EngineParts) -> ModelInfo:
    spec = checkpoint.spec
    return ModelInfo(
        name=model_name(checkpoint, config),
        identity=checkpoint.identity,
        numerics=numerics_with_lineage(parts.numerics, config.store_pool, checkpoint.identity),
        vocab_size=spec.vocab_size,
        context_len=spec.context_len,
        eos_token_ids=spec.eos_token_ids,
        kv_bytes_per_token=parts.memory.layout.token_bytes,
        kv_groups=parts.memory.layout.groups,
    )
