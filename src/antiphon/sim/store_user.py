"""A virtual worker beside a store: puts what its scheduler names, fetches what it asks for."""

from antiphon.core.draws import Draws
from antiphon.core.faults import STORE, Boundary, Damage, PartialWrite
from antiphon.types import Fetch, KvEvent, RequestId, Seconds

from .cluster_setup import StoreSpec
from .coming_fetches import ComingFetches
from .kv_teller import KvTeller
from .shadow_store import Late, Lost, ShadowStore, StoreSide
from .worker_host import WorkerHost
from .worker_store import end_fetch


class StoreUser:
    """Says when puts and fetches of one life of a worker happen. Implements `WorkerStore`."""

    def __init__(self, life: WorkerHost, side: StoreSide) -> None:
        self.side = side
        self._life = life
        self._fetching = 0
        self.coming = ComingFetches(side, life.process.call_at, self._arriving)

    def __len__(self) -> int:
        """Fetches that have not ended."""
        return self._fetching

    def listen(self, event: KvEvent) -> None:
        """See `WorkerStore`."""
        self.side.listen(event)

    def tell_by(self, teller: KvTeller) -> None:
        """See `WorkerStore`: what this store has is told to nobody."""

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
            self.coming.begin(fetch, self._life.now, took_s, self._fetched)

    def _arriving(
        self, request: RequestId, attempt: int, here: int, groups: int, group_s: Seconds
    ) -> None:
        self._life.scheduler.arriving(request, attempt, here, groups, group_s)
        self._life.wake()

    def _fetched(self, fetch: Fetch, good: tuple[bool, ...]) -> None:
        if not self._life.process.alive:
            return  # it died while it copied
        self._fetching -= 1
        end_fetch(self._life, fetch, good, self.side.fetch_s)


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


def delaying(spec: StoreSpec, seed: int) -> Late:
    """Which fetches' last layers come `late_s` later than usual, drawn like `losing`'s."""
    draws = Draws(seed)

    def late(fetch: Fetch) -> Seconds:
        drawn = draws.fraction("late", fetch.request, fetch.attempt)
        return spec.late_s if drawn < spec.late_share else 0.0

    return late


def store_user(life: WorkerHost, store: ShadowStore, side: type[StoreSide]) -> StoreUser | None:
    """What puts and fetches for this life; None: the cluster has no store."""
    spec, seed = life.setup.store, life.setup.faults.seed
    if spec is None:
        return None
    return StoreUser(
        life,
        side(
            store,
            life.memory,
            lost=losing(spec, seed),
            late=delaying(spec, seed),
            put_s=spec.put_s,
            fetch_s=spec.fetch_s,
            groups=spec.groups,
            crossed=lambda boundary: _befallen(life, boundary),
        ),
    )


def _befallen(life: WorkerHost, boundary: Boundary) -> Damage | None:
    """What happens to a copy into or out of the store. Who dies in the midst of it has not ended
    it."""
    name = life.process.name
    ends = (name, STORE) if boundary is Boundary.PUT else (STORE, name)
    damage = life.crossed(boundary, *ends)
    return damage if life.process.alive else PartialWrite()
