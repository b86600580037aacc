"""Antiphon: serve large language models to many users and meet their latency targets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llm import LLM
    from .types import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Load `LLM` and `SamplingParams` only when asked: `import antiphon` stays free of torch."""
    if name == "LLM":
        from .llm import LLM

        return LLM
    if name == "SamplingParams":
        from .types import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
