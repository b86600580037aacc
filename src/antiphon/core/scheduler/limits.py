"""What one worker can ever run, as follows from its configuration."""

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.core.kv import PageGroups, party_pages
from antiphon.errors import ConfigError
from antiphon.types import KvConfig, ModelInfo, SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one worker can ever run."""

    vocab_size: int
    max_model_len: int
    """Most tokens of prompt and output together."""
    groups: PageGroups
    total_pages: int
    memory_tokens: int
    """The longest sequence that the whole KV memory holds."""
    step_tokens: int
    """Most tokens of a step."""
    max_sequences: int
    """Most sequences that run at once."""

    @property
    def max_len(self) -> int:
        """Most tokens of a sequence that has the worker for itself."""
        return min(self.max_model_len, self.memory_tokens)

    def pages(self, prompt_tokens: int, beyond: Iterable[int]) -> int:
        """Pages of sequences that have the same prompt, and `beyond` it so many tokens each, if
        nothing of it is given back."""
        groups = self.groups
        entries = party_pages(
            prompt_tokens,
            beyond,
            page_tokens=groups.page_tokens,
            block_tokens=groups.block_tokens,
        )
        return entries * groups.entry_pages

    def worst_pages(self, tokens: int) -> int:
        """Pages of a sequence of that length that nothing keeps from giving back what passes."""
        return self.groups.most_pages(tokens, self.step_tokens)


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
    groups = PageGroups(model.kv_groups, page_tokens=kv.page_tokens, block_tokens=kv.block_tokens)
    step_tokens = max(1, config.max_batched_tokens)
    if groups.windows:
        memory_tokens = groups.most_tokens(pages, step_tokens, max_model_len)
    else:
        memory_tokens = pages // groups.entry_pages * kv.page_tokens
    if memory_tokens < 2:
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
        groups=groups,
        total_pages=pages,
        memory_tokens=memory_tokens,
        step_tokens=step_tokens,
        max_sequences=min(config.max_num_seqs, config.max_batched_tokens),
    )
