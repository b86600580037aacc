"""What the fleets of tests are made of: a small model, and the counts of an idle worker."""

from antiphon.types import ModelInfo, WorkerView

MODEL = ModelInfo(
    name="tiny",
    identity=b"i" * 32,
    numerics="cpu",
    vocab_size=8,
    context_len=64,
    eos_token_ids=(0,),
    kv_bytes_per_token=8,
)
IDLE = WorkerView(
    running=0,
    waiting=0,
    free_pages=100,
    held_pages=0,
    cached_pages=0,
    total_pages=100,
    peak_pages=0,
    prefix_queried_tokens_total=0,
    prefix_hit_tokens_total=0,
    preemptions_total=0,
    steps_total=0,
    computed_tokens_total=0,
)
