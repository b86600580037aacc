"""Text and token ids: tokenizer, chat templates, incremental detokenising, stop strings."""

from .chat_template import ChatTemplate
from .text_stream import TextDelta, TextStream
from .tokenizer import Tokenizer

__all__ = ["ChatTemplate", "TextDelta", "TextStream", "Tokenizer"]
