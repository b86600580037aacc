"""What a router knows of its workers' configuration."""

from dataclasses import dataclass

from antiphon.types import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """What a router knows of its workers' configuration, and how long it waits for any.

    `step_tokens`: `scheduler.max_batched_tokens`. `max_sequences`: `scheduler.max_num_seqs`; None:
    only memory limits. `prefix_cache`: `kv.prefix_cache`. `usable_share`: of a worker's pages,
    those that `scheduler.reserve_fraction` does not keep free. A request is refused when nobody has
    been there for `no_worker_grace_s`: before that it is held, since a worker may be about to start
    again. Of more workers than `most_predicted` some are looked at for each request (`ShortList`).
    """

    step_tokens: int = 512
    max_sequences: int | None = None
    prefix_cache: bool = True
    usable_share: float = 1.0
    no_worker_grace_s: Seconds = 600.0
    most_predicted: int = 64
