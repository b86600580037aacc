"""A model's engine made ready to run: weights, KV memory, scheduler. What a worker needs.

checkpoint ─► KV memory ─► weights ─► engine, warmed up ─► scheduler
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.checkpoint import Checkpoint
from antiphon.core.scheduler import Scheduler
from antiphon.engine import (
    KvMemory,
    TorchEngine,
    first_use,
    kv_dtype_of,
    layout_of,
    load_llama,
    numerics_id,
)
from antiphon.errors import ConfigError
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
from .model_name import model_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedEngine:
    """What runs a model; `scheduler` and `engine` are fresh and belong together.

    `info.name` is the model's own name, `max_model_len` what prompt and output may have together:
    the scheduler's own limit, which KV memory may have made shorter than the configuration's.
    """

    info: ModelInfo
    max_model_len: int
    scheduler: Scheduler
    engine: TorchEngine


def load_engine(checkpoint: Checkpoint, config: Config, say: Callable[[str], None]) -> LoadedEngine:
    """Load what runs the model of `config`; `say` gets a line before each long part.

    Of several processes that do so for the first time, one converts weights and compiles kernels,
    and the others wait for it. Warns in the log if the KV memory is too small for the longest
    sequence. Raises `UsageError`: a file that can't be used, or too little memory.
    """
    max_model_len = _max_model_len(config, checkpoint)
    say("Loading weights (the first time converts them)")
    engine, memory = _engine(config, checkpoint, max_model_len)
    info = _info(config, checkpoint, memory)
    say("Preparing kernels (the first time compiles them)")
    with first_use(cache_folder(config.engine), info.numerics, checkpoint.identity.hex()):
        warm_up(engine)
    scheduler = Scheduler(
        config=config.scheduler,
        kv=config.kv,
        pages=memory.pages,
        model=info,
        max_model_len=max_model_len,
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


def _max_model_len(config: Config, checkpoint: Checkpoint) -> int:
    context_len = checkpoint.spec.context_len
    asked = config.model.max_model_len or context_len
    if asked > context_len:
        raise ConfigError(
            f"model.max_model_len = {asked}: the context of {checkpoint.name} is {context_len}"
        )
    return asked


def _engine(
    config: Config, checkpoint: Checkpoint, max_model_len: int
) -> tuple[TorchEngine, KvMemory]:
    """Memory comes first: if there is too little, nobody waits for weights."""
    kv_dtype = kv_dtype_of(config.kv.dtype, config.model.dtype)
    layout = layout_of(checkpoint.spec, config.kv.page_tokens, kv_dtype)
    memory = KvMemory.of_bytes(layout, config.kv.memory_bytes)
    model = load_llama(
        checkpoint,
        dtype=config.model.dtype,
        cache_dir=cache_folder(config.engine),
        context_len=max_model_len,
    )
    return TorchEngine(model, memory), memory


def _info(config: Config, checkpoint: Checkpoint, memory: KvMemory) -> ModelInfo:
    spec = checkpoint.spec
    return ModelInfo(
        name=model_name(checkpoint, config),
        identity=checkpoint.identity,
        numerics=numerics_id(config.model.dtype, memory.layout.dtype),
        vocab_size=spec.vocab_size,
        context_len=spec.context_len,
        eos_token_ids=spec.eos_token_ids,
        kv_bytes_per_token=memory.layout.token_bytes,
    )
