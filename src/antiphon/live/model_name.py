"""What a model calls itself."""

from pathlib import Path

from antiphon.checkpoint import Checkpoint
from antiphon.types import Config


def model_name(checkpoint: Checkpoint, config: Config) -> str:
    """The known or hub name that it was asked for by; for a path, the name in it."""
    name = config.model.name
    return checkpoint.name if checkpoint.path == Path(name) else name
