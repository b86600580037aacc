"""A virtual worker beside a store: puts what its scheduler names, fetches what it asks for."""

from antiphon.core.draws import Draws
from antiphon.types import Fetch

from .cluster_setup import StoreSpec
from .shadow_store import Lost, StoreSide
from .worker_host import WorkerHost


class StoreUser:
    """Says when puts and fetches of one life of a worker happen. Its length: fetches under way."""

    def __init__(self, life: WorkerHost, side: StoreSide) -> None:
        self.side = side
        self._life = life
        self._fetching = 0

    def __len__(self) -> int:
        """Fetches that have not ended."""
        return self._fetching

    def put(self) -> None:
        """What was named just now is copied a moment later, if its pages are the same then."""
        at = self._life.now + self.side.put_s
        for block in self.side.seal_fresh():
            self._life.process.call_at(at, lambda block=block: self.side.put(block))

    def fetch(self) -> None:
        """Carry out what the scheduler has room for."""
        took_s = self.side.fetch_s * self._life.process.slow_factor
        for fetch in self._life.scheduler.fetches():
            self._fetching += 1
            self._life.process.call_at(
                self._life.now + took_s, lambda fetch=fetch: self._fetched(fetch)
            )

    def _fetched(self, fetch: Fetch) -> None:
        life, good = self._life, self.side.copy(fetch)
        self._fetching -= 1
        problem = "" if all(good) else "lost"
        events = life.scheduler.fetched(
            fetch.request, fetch.attempt, good, life.now, problem, self.side.fetch_s
        )
        for event in events:
            life.note(event)
        life.say(events)
        life.wake()


def losing(spec: StoreSpec, seed: int) -> Lost:
    """Which blocks a store loses: a share of them, drawn for each fetch of a request."""
    draws = Draws(seed)

    def lost(fetch: Fetch) -> list[int]:
        return [
            number
            for number in range(len(fetch.keys))
            if draws.fraction("lost", fetch.request, fetch.attempt, number) < spec.lost_share
        ]

    return lost
