"""Text and token ids: tokenizer, chat templates, incremental detokenising, stop strings."""

from .tokenizer import Tokenizer

__all__ = ["Tokenizer"]
