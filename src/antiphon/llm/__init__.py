"""The Python API: a model in this process."""

from .llm import LLM
from .output import CompletionOutput, RequestOutput

__all__ = ["LLM", "CompletionOutput", "RequestOutput"]
