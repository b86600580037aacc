"""What a router is put together from."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.types import Seconds

from .prefix_beliefs import PrefixBeliefs
from .prefix_index import PrefixIndex
from .scorers import Scorer, scorer_of
from .worker_belief import WorkerBelief


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The kind of each part. Tests put in faulty ones, and demand that a law finds them."""

    scorer: Callable[[str, int], Scorer] = scorer_of
    belief: type[WorkerBelief] = WorkerBelief
    index: Callable[[], PrefixIndex] = PrefixIndex
    prefixes: type[PrefixBeliefs] = PrefixBeliefs


STANDARD_PARTS = Parts()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """What a router knows of its workers' configuration, and how long it waits for any.

    `step_tokens`: `scheduler.max_batched_tokens`. `max_sequences`: `scheduler.max_num_seqs`; None:
    only memory limits. `prefix_cache`: `kv.prefix_cache`. A request is refused when nobody has been
    there for `no_worker_grace_s`: before that it is held, since a worker may be about to start
    again. Of more workers than `most_predicted` some are looked at for each request (`ShortList`).
    """

    step_tokens: int = 512
    max_sequences: int | None = None
    prefix_cache: bool = True
    no_worker_grace_s: Seconds = 600.0
    most_predicted: int = 64
