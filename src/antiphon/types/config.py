"""Configuration: one frozen dataclass per part, built once by `core.config.build`.

The comment of each field is what `antiphon config show` prints beside it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and how it is presented."""

    name: str = "smollm2-135m"
    """Known name, folder, .gguf file or hub name."""
    served_name: str | None = None
    """Name in the API; None: the model's own name."""
    dtype: str = "fp32"
    max_model_len: int | None = None
    """Longest prompt plus output in tokens; None: the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig:
    """KV memory of a worker."""

    memory_bytes: int = 2 * 1024**3
    page_tokens: int = 16
    """Tokens a page; 1 is Token Attention. Divides block_tokens."""
    block_tokens: int = 64
    """Tokens a block, the unit of content addressing."""
    prefix_cache: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Continuous batching and admission."""

    max_num_seqs: int = 64
    """Most sequences that run at once."""
    max_batched_tokens: int = 512
    """Token budget of a step: decodes first, the rest is prefill."""
    max_queue: int = 1024
    """Most requests that wait; beyond it: 429."""
    output_quantile: float = 0.9
    """Predicted output length: this quantile of recent lengths beyond what is generated."""
    output_history: int = 1000
    """How many finished lengths are remembered."""
    reserve_fraction: float = 0.03
    """Share of the pages that admission leaves free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Where the forward pass runs."""

    cores: tuple[int, ...] = ()
    """CPU cores to use; empty: all that the process may use."""
    cache_dir: str | None = None
    """Converted weights; None: the user's cache folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """The gateway's HTTP side."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key_file: str | None = None
    """One key a line; needed for any host but loopback."""
    max_body_bytes: int = 4 * 1024**2
    request_timeout_s: float = 600.0
    keep_alive_s: float = 15.0
    """Silence on a stream after which a comment keeps it open."""
    drain_timeout_s: float = 120.0
    """After SIGTERM: how long running requests may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything, in one tree."""

    model: ModelConfig = field(default_factory=ModelConfig)
    kv: KvConfig = field(default_factory=KvConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
