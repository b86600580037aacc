"""Which requests can be taken at all, whatever runs now."""

from dataclasses import dataclass

from antiphon.core.kv import MAX_SALT_BYTES
from antiphon.errors import ConfigError
from antiphon.types import (
    KvConfig,
    ModelInfo,
    Rejected,
    RejectReason,
    Request,
    SchedulerConfig,
)


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

    def prompt_pages(self, prompt_tokens: int, n: int) -> int:
        """Pages that n sequences hold right after they forked: each has its own last block."""
        tail = prompt_tokens % self.block_tokens
        return -(-prompt_tokens // self.page_tokens) + (n - 1) * -(-tail // self.page_tokens)


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


def refusal(request: Request, limits: Limits) -> Rejected | None:
    """Why the request can never run here, with the field to change; None: it can."""
    return _invalid(request, limits) or _too_long(request, limits)


def _invalid(request: Request, limits: Limits) -> Rejected | None:
    sampling = request.sampling
    n, resumed = sampling.n, request.resumed
    problems = (
        ("prompt", not request.prompt, "the prompt has no tokens"),
        ("n", n < 1, f"n is {n}, must be at least 1"),
        (
            "n",
            n > limits.max_sequences,
            f"n is {n}, at most {limits.max_sequences} sequences run at once",
        ),
        ("max_tokens", sampling.max_tokens is None, "max_tokens is not resolved"),
        (
            "max_tokens",
            (sampling.max_tokens or 0) < 0,
            f"max_tokens is {sampling.max_tokens}, must not be negative",
        ),
        ("seed", sampling.seed is None, "seed is not resolved"),
        (
            "min_tokens",
            sampling.min_tokens < 0,
            f"min_tokens is {sampling.min_tokens}, must not be negative",
        ),
        (
            "resumed",
            len(resumed) not in (0, n),
            f"resumed has {len(resumed)} parts for n = {n} sequences",
        ),
        (
            "tenant_salt",
            len(request.tenant_salt) > MAX_SALT_BYTES,
            f"tenant_salt has {len(request.tenant_salt)} bytes, at most {MAX_SALT_BYTES} work",
        ),
        ("deadline", request.deadline != request.deadline, "deadline is not a number"),
    )
    for field, wrong, message in problems:
        if wrong:
            return Rejected(
                request=request.id, reason=RejectReason.INVALID, message=message, field=field
            )
    for field, tokens in (("prompt", request.prompt), *(("resumed", part) for part in resumed)):
        if tokens and not (min(tokens) >= 0 and max(tokens) < limits.vocab_size):
            return Rejected(
                request=request.id,
                reason=RejectReason.INVALID,
                message=f"{field} holds a token id outside 0 … {limits.vocab_size - 1}",
                field=field,
            )
    return None


def _too_long(request: Request, limits: Limits) -> Rejected | None:
    length, n = len(request.prompt), request.sampling.n
    pages = limits.prompt_pages(length, n)
    if length + 1 > limits.max_model_len:
        message = (
            f"the prompt has {length} tokens and 1 is generated at least, "
            f"but the model's limit is {limits.max_model_len} tokens"
        )
    elif length + 1 > limits.memory_tokens:
        message = (
            f"the prompt has {length} tokens and 1 is generated at least, "
            f"but the KV memory holds {limits.memory_tokens} tokens"
        )
    elif pages > limits.total_pages:
        message = (
            f"{n} sequences of a prompt of {length} tokens need {pages} pages of KV memory, "
            f"which has {limits.total_pages}"
        )
    else:
        return None
    return Rejected(
        request=request.id, reason=RejectReason.TOO_LONG, message=message, field="prompt"
    )
