"""A model made ready to run: from its name in the configuration to text, scheduler and engine.

name ─► files ─┬─► text: tokenizer, chat template
               └─► engine: weights, KV memory, scheduler
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.scheduler import Scheduler
from antiphon.engine import TorchEngine
from antiphon.store.transfer import OwnedRegion
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import Config, ModelInfo

from .loaded_engine import load_engine
from .loaded_text import text_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """Both halves of a model, for a driver in one process: see `LoadedEngine`, `LoadedText`."""

    info: ModelInfo
    max_model_len: int
    tokenizer: Tokenizer
    template: ChatTemplate
    scheduler: Scheduler
    engine: TorchEngine
    region: OwnedRegion | None = None


def load_model(
    config: Config, say: Callable[[str], None], *, shares_kv: bool = False
) -> LoadedModel:
    """Load the model of `config`; `say` gets a line before each long part, `shares_kv` is for
    `load_engine`.

    Warns in the log if the KV memory is too small for the longest sequence.
    Raises `UsageError`: no such model, a file that can't be used, or too little memory.
    """
    say(f"Opening {config.model.name}")
    checkpoint = open_checkpoint(resolve(config.model.name))
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(text_of, checkpoint, config)
        loaded = load_engine(checkpoint, config, say, shares_kv=shares_kv)
        text = reading.result()
    return LoadedModel(
        info=loaded.info,
        max_model_len=loaded.max_model_len,
        tokenizer=text.tokenizer,
        template=text.template,
        scheduler=loaded.scheduler,
        engine=loaded.engine,
        region=loaded.region,
    )
