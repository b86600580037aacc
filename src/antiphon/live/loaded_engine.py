"""A model's engine made ready to run: weights, KV memory, scheduler. What a worker needs.

checkpoint ─► KV memory ─► weights ─► engine, warmed up ─► scheduler
              (a region that other workers may map, if they are to)
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from antiphon.checkpoint import Checkpoint
from antiphon.core.scheduler import Scheduler
from antiphon.engine import (
    KvLayout,
    KvMemory,
    Model,
    TorchEngine,
    check_available,
    first_use,
    kv_dtype_of,
    layout_of,
    load_llama,
    numerics_id,
    runs_long,
)
from antiphon.errors import ConfigError
from antiphon.host import give_back_freed_memory
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    Chunk,
    Config,
    KvShape,
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    SequenceKey,
    StepPlan,
)

from .cache_folder import cache_folder
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
) -> LoadedEngine:
    """Load what runs the model of `config`; `say` gets a line before each long part.

    `shares_kv`: other workers, or a store, are to read this one's KV, and it theirs. Its memory is
    taken from the system beside all this (see `KvCommit`).

    Of several processes that do so for the first time, one converts weights and compiles kernels,
    and the others wait for it. Warns in the log if the KV memory is too small for the longest
    sequence. Raises `UsageError`: a file that can't be used, or too little memory.
    """
    max_model_len = _max_model_len(config, checkpoint)
    say("Loading weights (the first time converts them)")
    memory, region = _memory(config, checkpoint, shares_kv)
    commit = KvCommit(region) if region is not None else None
    engine = TorchEngine(_model(config, checkpoint, max_model_len), memory)
    info = _info(config, checkpoint, memory, max_model_len)
    say("Preparing kernels (the first time compiles them)")
    with first_use(cache_folder(config.engine), info.numerics, checkpoint.identity.hex()):
        warm_up(engine)
    give_back_freed_memory()
    heard = KvListeners()
    scheduler = Scheduler(
        config=config.scheduler,
        kv=config.kv,
        pages=memory.pages,
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
        engine=engine,
        layers=checkpoint.spec.layers,
        region=region,
        heard=heard,
        commit=commit,
    )


def warm_up(engine: TorchEngine) -> None:
    """Run one token through a fresh engine, so that no user's request waits for compilation.

    It writes to page 0, which belongs to nobody yet, and is forgotten again.
    """
    request = Request(
        id=RequestId("warm-up"), prompt=(0,), sampling=SamplingParams(max_tokens=1, seed=0)
    )
    chunk = Chunk(request=request, sequence=0, tokens=(0,), start=0, new_pages=(0,), samples=(0,))
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


def _memory(
    config: Config, checkpoint: Checkpoint, shares_kv: bool
) -> tuple[KvMemory, OwnedRegion | None]:
    """Memory comes first: if there is too little, nobody waits for weights."""
    kv_dtype = kv_dtype_of(config.kv.dtype, config.model.dtype)
    layout = layout_of(checkpoint.spec, config.kv.page_tokens, kv_dtype)
    pages = config.kv.memory_bytes // layout.page_bytes
    check_available(layout, pages)
    region = OwnedRegion(_shape(config, layout, pages), commit=False) if shares_kv else None
    return KvMemory(layout, pages, region), region


def _model(config: Config, checkpoint: Checkpoint, max_model_len: int) -> Model:
    return load_llama(
        checkpoint,
        dtype=config.model.dtype,
        cache_dir=cache_folder(config.engine),
        context_len=max_model_len,
    )


def _shape(config: Config, layout: KvLayout, pages: int) -> KvShape:
    return KvShape(
        layout=layout.name,
        page_tokens=layout.page_tokens,
        block_tokens=config.kv.block_tokens,
        page_bytes=layout.page_bytes,
        pages=pages,
    )


def _info(
    config: Config, checkpoint: Checkpoint, memory: KvMemory, max_model_len: int
) -> ModelInfo:
    spec = checkpoint.spec
    long_rope = runs_long(spec, max_model_len)
    numerics = numerics_id(config.model.dtype, memory.layout.dtype, long_rope=long_rope)
    return ModelInfo(
        name=model_name(checkpoint, config),
        identity=checkpoint.identity,
        numerics=numerics_with_lineage(numerics, config.store_pool, checkpoint.identity),
        vocab_size=spec.vocab_size,
        context_len=spec.context_len,
        eos_token_ids=spec.eos_token_ids,
        kv_bytes_per_token=memory.layout.token_bytes,
    )
