"""What others may know of a worker and of the model that it serves."""

from dataclasses import dataclass

from .ids import Incarnation, TokenId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The facts of a loaded model that decisions and the gateway need."""

    name: str
    identity: bytes
    """BLAKE2b-256 over weights, config, tokenizer and RoPE: equal digests mean equal KV."""
    numerics: str
    """Device kind, instruction set, dtype, quantisation and kernel revision."""
    vocab_size: int
    context_len: int
    eos_token_ids: tuple[TokenId, ...]
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """Who a worker is: fixed for one life of its process."""

    id: WorkerId
    incarnation: Incarnation
    model: ModelInfo
    max_model_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """Counts at one moment. Pages: `free + held + cached == total`, always.

    `peak_pages` is the predicted peak of what runs now. The `_total` counters only grow.
    """

    running: int
    waiting: int
    free_pages: int
    held_pages: int
    cached_pages: int
    total_pages: int
    peak_pages: int
    prefix_queried_tokens_total: int
    prefix_hit_tokens_total: int
    preemptions_total: int
    steps_total: int
    computed_tokens_total: int
