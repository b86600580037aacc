"""The text side of a model: what turns messages into tokens and back, and the facts beside it.

Loads no torch, so that a gateway has it without a worker's weight.
"""

from dataclasses import dataclass

from antiphon.checkpoint import Checkpoint, open_checkpoint, resolve
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import Config

from .model_name import model_name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedText:
    """A model's tokenizer and chat template. `name` is the model's own, `identity` its digest."""

    name: str
    identity: bytes
    tokenizer: Tokenizer
    template: ChatTemplate


def load_text(config: Config) -> LoadedText:
    """Load the text side of the model of `config`.

    Raises `UsageError`: no such model, or a file that can't be used.
    """
    checkpoint = open_checkpoint(resolve(config.model.name))
    return text_of(checkpoint, config)


def text_of(checkpoint: Checkpoint, config: Config) -> LoadedText:
    """The text side of an open checkpoint."""
    tokenizer = Tokenizer.load(checkpoint.tokenizer)
    return LoadedText(
        name=model_name(checkpoint, config),
        identity=checkpoint.identity,
        tokenizer=tokenizer,
        template=ChatTemplate(
            checkpoint.tokenizer.chat_template, tokenizer.bos_token, tokenizer.eos_token
        ),
    )
