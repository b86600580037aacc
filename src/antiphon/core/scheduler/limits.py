"""What one worker can ever run, as follows from its configuration."""

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.core.kv import party_pages
from antiphon.errors import ConfigError
from antiphon.types import KvConfig, ModelInfo, SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one worker can ever run."""

    vocab_size: int
    max_model_len: int
    """Most tokens of prompt and output together."""
    page_tokens: int
    block_tokens: int
    total_pages: int
    max_sequences: int
    """Most sequences that run at once."""

    @property
    def memory_tokens(self) -> int:
        """Tokens that the whole KV memory holds."""
        return self.total_pages * self.page_tokens

    @property
    def max_len(self) -> int:
        """Most tokens of a sequence that has the worker for itself."""
        return min(self.max_model_len, self.memory_tokens)

    def pages(self, prompt_tokens: int, beyond: Iterable[int]) -> int:
        """Pages of sequences that have the same prompt, and `beyond` it so many tokens each."""
        return party_pages(
            prompt_tokens, beyond, page_tokens=self.page_tokens, block_tokens=self.block_tokens
        )


def limits_of(
    config: SchedulerConfig, kv: KvConfig, pages: int, model: ModelInfo, max_model_len: int
) -> Limits:
    """The limits that follow from the configuration. Raises `ConfigError` naming a wrong key."""
    if kv.page_tokens < 1 or kv.block_tokens < 1 or kv.block_tokens % kv.page_tokens:
        raise ConfigError(
            f"kv.page_tokens is {kv.page_tokens}, must divide kv.block_tokens {kv.block_tokens}"
        )
    if not 1 < max_model_len <= model.context_len:
        raise ConfigError(
            f"model.max_model_len is {max_model_len}, must be 2 … {model.context_len}"
        )
    if pages * kv.page_tokens < 2:
        raise ConfigError(f"kv.memory_bytes has room for {pages} pages only")
    for name in ("max_num_seqs", "max_batched_tokens", "output_history"):
        if getattr(config, name) < 1:
            raise ConfigError(f"scheduler.{name} is {getattr(config, name)}, must be at least 1")
    for name in ("output_quantile", "reserve_fraction"):
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"scheduler.{name} is {getattr(config, name)}, must be 0 … below 1")
    return Limits(
        vocab_size=model.vocab_size,
        max_model_len=max_model_len,
        page_tokens=kv.page_tokens,
        block_tokens=kv.block_tokens,
        total_pages=pages,
        max_sequences=min(config.max_num_seqs, config.max_batched_tokens),
    )
