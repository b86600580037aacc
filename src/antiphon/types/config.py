"""Configuration: one frozen dataclass per part, built once by `core.config.build`.

Each field's `Key` is the one place that states its meaning and what is allowed: `build` enforces
it, `antiphon config show` prints it, docs/reference/config.md is tested against it.
"""

from dataclasses import dataclass, field
from typing import Annotated

from .config_key import Key
from .network_config import NetworkConfig
from .planner_config import PlannerConfig
from .store_pool_config import StorePoolConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and how it is presented."""

    name: Annotated[str, Key("Known name, folder, .gguf file or hub name.")] = "smollm2-135m"
    served_name: Annotated[
        str | None, Key("Name in the API; without it: the model's own name.")
    ] = None
    quantize: Annotated[
        str,
        Key(
            "What weights are rounded to: int8 (fast, on a processor), or none; without it: int8, "
            "on CUDA or with a dtype none.",
            choices=("int8", "none"),
        ),
    ] = "int8"
    dtype: Annotated[
        str | None,
        Key(
            "What is computed in where nothing is rounded: fp32, the reference, or, by torch, bf16 "
            "or fp16; without it: fp32, on CUDA bf16.",
            choices=("fp32", "bf16", "fp16"),
        ),
    ] = None
    max_model_len: Annotated[
        int | None,
        Key("Longest prompt plus output in tokens; without it: the model's context.", 2, 2**24),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig:
    """KV memory of a worker."""

    memory_bytes: Annotated[int, Key("Memory for keys and values.", 2**20, 2**46, size=True)] = (
        2 * 1024**3
    )
    page_tokens: Annotated[
        int, Key("Tokens a page; 1 is Token Attention. Divides block_tokens.", 1, 64)
    ] = 16
    dtype: Annotated[
        str,
        Key(
            "What keys and values are kept as; auto: fp32 with fp32 arithmetic, else bf16.",
            choices=("auto", "fp32", "bf16"),
        ),
    ] = "auto"
    block_tokens: Annotated[
        int, Key("Tokens a block, the unit of content addressing.", 1, 4096)
    ] = 64
    prefix_cache: Annotated[bool, Key("Reuse the KV of equal prompt beginnings.")] = True
    events: Annotated[
        str | None,
        Key(
            "Publish the first worker's blocks in vLLM's KV event format there, such as "
            "tcp://127.0.0.1:5557; worker number n uses the port n later. Without it: nowhere."
        ),
    ] = None
    events_replay: Annotated[
        str | None,
        Key("Where followers ask for what they missed; ports as with kv.events. None: nowhere."),
    ] = None
    events_format: Annotated[
        str,
        Key(
            "How events are written: array, as vLLM up to 0.23 did, or map, as since 0.24.",
            choices=("array", "map"),
        ),
    ] = "array"
    events_exposed: Annotated[
        bool,
        Key("Let kv.events be reached from other machines: whoever can sees all prompts' tokens."),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Continuous batching and admission."""

    admission: Annotated[
        str,
        Key(
            "How long a sequence is taken to grow when memory is promised. past-future: as recent "
            "answers did; conservative: to its max_tokens; aggressive: not at all.",
            choices=("past-future", "conservative", "aggressive"),
        ),
    ] = "past-future"
    max_num_seqs: Annotated[int, Key("Most sequences that run at once.", 1, 65536)] = 64
    max_batched_tokens: Annotated[
        int, Key("Token budget of a step: decodes first, the rest is prefill.", 1, 2**20)
    ] = 512
    max_queue: Annotated[
        int, Key("Most requests that wait for a place; beyond it: 429.", 0, 2**20)
    ] = 1024
    output_quantile: Annotated[
        float,
        Key(
            "Predicted output length: this quantile of recent lengths beyond what is generated.",
            0.0,
            0.999,
        ),
    ] = 0.9
    output_history: Annotated[
        int, Key("How many finished output lengths are remembered.", 1, 10**6)
    ] = 1000
    reserve_fraction: Annotated[
        float, Key("Share of the pages that admission leaves free.", 0.0, 0.5)
    ] = 0.03
    prefill_first: Annotated[
        bool, Key("Decodes wait while prompts are computed, instead of sharing steps with them.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Where the forward pass runs."""

    device: Annotated[
        str,
        Key(
            "Device: cpu, cuda (workers take CUDA's devices in turn) or cuda:N. Needs a build of "
            "torch for it."
        ),
    ] = "cpu"
    cores: Annotated[
        tuple[int, ...], Key("CPU cores to use; empty: all that the process may use.", 0, 65535)
    ] = ()
    cache_dir: Annotated[
        str | None, Key("Folder of converted weights; without it: the user's cache folder.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """The gateway's HTTP side."""

    host: Annotated[str, Key("Address to listen on; loopback unless there are API keys.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Key("TCP port; 0: any free one.", 0, 65535)] = 8000
    api_key_file: Annotated[
        str | None, Key("File of API keys, one a line; needed for any host but loopback.")
    ] = None
    admin_token_file: Annotated[
        str | None,
        Key("File of the token that opens the admin routes of this address; without it: closed."),
    ] = None
    max_body_bytes: Annotated[
        int, Key("Longest request body; beyond it: 413.", 1024, 2**30, size=True)
    ] = 4 * 1024**2
    max_streams_per_key: Annotated[
        int, Key("Most calls of one API key that are answered at once; beyond it: 429.", 1, 2**20)
    ] = 256
    max_connections: Annotated[int, Key("Most open connections; beyond it: 503.", 1, 2**20)] = 4096
    request_timeout_s: Annotated[
        float, Key("A request that takes longer ends with 504.", 0.001, 86400.0)
    ] = 600.0
    keep_alive_s: Annotated[
        float, Key("Silence on a stream after which a comment keeps it open.", 0.001, 3600.0)
    ] = 15.0
    drain_timeout_s: Annotated[
        float, Key("After SIGTERM: how long running requests may take.", 0.0, 86400.0)
    ] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Which workers there are, and when one counts as lost."""

    prefill: Annotated[int, Key("Workers that compute prompts.", 0, 256)] = 0
    decode: Annotated[int, Key("Workers that generate from computed prompts.", 0, 256)] = 0
    mixed: Annotated[
        int | None,
        Key("Workers that do both; without it: 1, or 0 beside prefill and decode.", 0, 256),
    ] = None
    heartbeat_s: Annotated[
        float, Key("Gateway and workers say that often that they live.", 0.01, 60.0)
    ] = 0.25
    lost_after_s: Annotated[
        float, Key("Silence after which a worker counts as lost.", 0.05, 600.0)
    ] = 2.0
    lease_ttl_s: Annotated[
        float, Key("How long offered KV is kept after the last renewal.", 0.1, 3600.0)
    ] = 10.0
    start_timeout_s: Annotated[
        float, Key("A worker that has not joined by then is started anew.", 0.1, 86400.0)
    ] = 600.0
    hung_after_s: Annotated[
        float,
        Key(
            "A worker, store or gateway that lives, but is silent for so long, is started anew.",
            0.1,
            86400.0,
        ),
    ] = 60.0
    restart_backoff_s: Annotated[
        float, Key("Wait before a restart; doubles with each early death.", 0.01, 3600.0)
    ] = 0.5
    socket_dir: Annotated[
        str | None, Key("Folder of the cluster's sockets; without it: a private one.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Which workers serve a request. The targets hold for requests that bring none."""

    policy: Annotated[
        str,
        Key(
            "slo: by predicted latency; the others are there to compare, prefix-gated as SGLang "
            "and overlap-cost as Dynamo do it.",
            choices=(
                "slo",
                "random",
                "round-robin",
                "least-loaded",
                "prefix-gated",
                "overlap-cost",
            ),
        ),
    ] = "slo"
    ttft_s: Annotated[float, Key("Target: time to first token.", 0.001, 3600.0)] = 2.0
    tpot_s: Annotated[float, Key("Target: time per output token after it.", 0.0001, 60.0)] = 0.1
    hold_s: Annotated[
        float, Key("A request that nobody can take is looked at again after that.", 0.001, 60.0)
    ] = 0.1
    max_held: Annotated[int, Key("Most requests that wait for a worker.", 0, 2**20)] = 4096
    queue_s: Annotated[
        float,
        Key(
            "Prompts for so many seconds are sent ahead to each worker; when all have more, "
            "requests wait at the gateway, in fair order.",
            0.0,
            3600.0,
        ),
    ] = 1.0
    quantum_tokens: Annotated[
        int,
        Key("Tokens of prompt and output that tenants of a class get in turn.", 1, 2**30),
    ] = 512
    admission: Annotated[
        str,
        Key(
            "all: whoever comes is served; early-reject: who would miss a target by prediction is "
            "refused at once; load-reject: the same by present load, there to compare.",
            choices=("all", "early-reject", "load-reject"),
        ),
    ] = "all"
    shed_from: Annotated[
        int,
        Key("Early rejection refuses requests of this priority number and above.", 0, 2**31),
    ] = 0
    profile: Annotated[
        str | None, Key("File of `antiphon profile` to predict with; without it: shipped times.")
    ] = None
    conditional_split: Annotated[
        bool,
        Key(
            "Decode workers compute a prompt themselves where it is short or the prefill pool is "
            "busy; policy slo only."
        ),
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The KV store: blocks that outlive requests, workers and, on disk, itself."""

    enabled: Annotated[bool, Key("Use a store; unless one is named, run it (--store on, off).")] = (
        True
    )
    socket: Annotated[
        str | None, Key("Socket of an `antiphon store` that runs; without it: one of its own.")
    ] = None
    memory_bytes: Annotated[
        int, Key("Host tier: shared memory that workers copy from.", 2**20, 2**46, size=True)
    ] = 2**30
    disk_bytes: Annotated[
        int, Key("Disk tier: most bytes in store.dir; 0: none.", 0, 2**50, size=True)
    ] = 0
    dir: Annotated[
        str | None, Key("Folder of the disk tier; without it: in the user's cache folder.")
    ] = None
    fsync: Annotated[
        str,
        Key(
            "When the disk tier is flushed: never (the system decides), at each segment's end, or "
            "after each write.",
            choices=("never", "segment", "write"),
        ),
    ] = "segment"
    remote: Annotated[str | None, Key("Remote tier, redis://host:port/db; without it: none.")] = (
        None
    )
    remote_password_file: Annotated[
        str | None,
        Key("File of the remote's password; before it, on a line of its own, the user's name."),
    ] = None
    at_rest_key_file: Annotated[
        str | None,
        Key("File of the key that seals blocks on disk and in the remote; without it: plain."),
    ] = None
    policy: Annotated[
        str,
        Key(
            "How the host tier chooses what to evict.",
            choices=("hit-density", "lru", "s3-fifo", "cost"),
        ),
    ] = "hit-density"
    tenant_share: Annotated[
        float, Key("Most of the host tier that one tenant's blocks may take.", 0.01, 1.0)
    ] = 1.0
    lease_ttl_s: Annotated[
        float,
        Key(
            "How long blocks stay for a reader that went silent; at least 1.5 times "
            "`fetch_timeout_s`.",
            0.1,
            3600.0,
        ),
    ] = 5.0
    fetch_timeout_s: Annotated[
        float, Key("A fetch that takes longer is given up: the prompt is computed.", 0.001, 60.0)
    ] = 2.0
    layer_groups: Annotated[
        int,
        Key(
            "A fetch that takes long comes in up to so many groups of layers, so that computing "
            "may begin before its end; 1: at once.",
            1,
            256,
        ),
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is written down."""

    decisions: Annotated[
        str | None, Key("File that records every decision, for replay; without it: none.")
    ] = None
    requests: Annotated[
        str | None, Key("File that gets one line of JSON a request; without it: none.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything, in one tree."""

    model: ModelConfig = field(default_factory=ModelConfig)
    kv: KvConfig = field(default_factory=KvConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    store_pool: StorePoolConfig = field(default_factory=StorePoolConfig)
    log: LogConfig = field(default_factory=LogConfig)
