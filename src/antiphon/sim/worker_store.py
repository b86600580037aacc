"""What the driver of a virtual worker needs of whoever puts and fetches for it."""

from collections.abc import Sequence
from typing import Protocol

from antiphon.types import Fetch, KvEvent, Seconds

from .coming_fetches import ComingFetches
from .kv_teller import KvTeller
from .worker_host import WorkerHost


class WorkerStore(Protocol):
    """One life of a worker, beside a store. Its length: fetches under way."""

    coming: ComingFetches

    def __len__(self) -> int: ...

    def listen(self, event: KvEvent, /) -> None:
        """A block got its name in the worker's memory, or lost it."""
        ...

    def tell_by(self, teller: KvTeller, /) -> None:
        """What nobody but this worker reaches is told as what lies beside it."""
        ...

    def put(self) -> None:
        """What was named just now may be kept, too."""
        ...

    def fetch(self) -> None:
        """Carry out what the scheduler has room for."""
        ...


def end_fetch(life: WorkerHost, fetch: Fetch, good: Sequence[bool], took_s: Seconds) -> None:
    """Nothing writes to its pages any more: its scheduler goes on."""
    problem = "" if all(good) else "lost"
    events = life.scheduler.fetched(
        fetch.request, fetch.attempt, tuple(good), life.now, problem, took_s
    )
    for event in events:
        life.note(event)
    life.say(events)
    life.wake()
