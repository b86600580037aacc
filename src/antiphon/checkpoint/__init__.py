"""Model files: what a checkpoint holds, before any tensor library sees it."""

from .tokenizer_source import GgufTokenizer, TokenizerFiles

__all__ = ["GgufTokenizer", "TokenizerFiles"]
