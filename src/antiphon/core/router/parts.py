"""What a router is put together from."""

from collections.abc import Callable
from dataclasses import dataclass

from .early_rejection import EarlyRejection
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
    rejection: type[EarlyRejection] = EarlyRejection


STANDARD_PARTS = Parts()
