"""Text and token ids: tokenizer, chat templates, incremental detokenising, stop strings."""

from .chat_template import ChatTemplate
from .sequence_text import ScoredToken, SequenceText
from .text_stream import TextDelta, TextStream
from .tokenizer import Tokenizer

__all__ = ["ChatTemplate", "ScoredToken", "SequenceText", "TextDelta", "TextStream", "Tokenizer"]
