"""Pulls whose pages come together, over links that are shared in turn."""

from collections.abc import Sequence
from typing import TypeAlias

from antiphon.core.costs import TransferTime
from antiphon.core.faults import Boundary, Node
from antiphon.types import Seconds

from ..page_taker import Copying, PageTaker
from ..worker_host import WorkerHost

Way: TypeAlias = tuple[str, Node]
"""A link of a worker: its kind ("in", "out"), and whose it is."""


class Links:
    """One link in and one out for each worker; each carries one thing after another: pulls, and
    what comes from a store.

    `exposed`: the time of a pull that nothing hides. Layers that go while the prompt is still being
    computed are not in it (Splitwise §4.3).
    """

    def __init__(self, exposed: TransferTime, bytes_per_page: int) -> None:
        self._exposed = exposed
        self._bytes_per_page = bytes_per_page
        self._free_at: dict[Way, Seconds] = {}
        self._most = 64

    def __len__(self) -> int:
        """Ways that something is kept of: those that are busy, and some that were."""
        return len(self._free_at)

    def take(self, owner: Node, taker: Node, pages: int, now: Seconds, slow: float) -> Seconds:
        """When a pull that is asked for now is over. Mutates: both links are busy until then."""
        took_s = slow * self._exposed.seconds(pages * self._bytes_per_page)
        return self.carry((("out", owner), ("in", taker)), took_s, now)

    def free_at(self, way: Way, now: Seconds) -> Seconds:
        """When it could begin to carry something more. Does not mutate."""
        return max(now, self._free_at.get(way, 0.0))

    def carry(self, ways: Sequence[Way], took_s: Seconds, now: Seconds) -> Seconds:
        """When something is over that needs all of `ways` for so long. Mutates, as `take`."""
        begins_at = max(self.free_at(way, now) for way in ways)
        ends_at = begins_at + took_s
        self._free_at |= dict.fromkeys(ways, ends_at)
        if len(self._free_at) > self._most:
            self._forget_free(now)
        return ends_at

    def _forget_free(self, now: Seconds) -> None:
        """What is free is as what never carried anything: workers that ended leave nothing."""
        self._free_at = {way: at for way, at in self._free_at.items() if at > now}
        self._most = 2 * len(self._free_at) + 64


class BulkTaker(PageTaker):
    """As `PageTaker`, but a pull is one event."""

    def __init__(self, life: WorkerHost, links: Links) -> None:
        super().__init__(life)
        self._shared_links = links

    def next_page(self, copying: Copying) -> None:
        """See `PageTaker`: all pages at once."""
        life, loop, pages = self._life, self._life.network.loop, copying.pull.targets
        if copying.unwanted or not pages:
            self.end_copy(copying)
            return
        ends_at = self._shared_links.take(
            copying.pull.offer.owner,
            life.process.name,
            len(pages),
            loop.now,
            life.process.slow_factor,
        )
        life.process.call_at(life.now + ends_at - loop.now, lambda: self._all_here(copying))

    def _all_here(self, copying: Copying) -> None:
        life = self._life
        damage = life.crossed(Boundary.READ, copying.pull.offer.owner, life.process.name)
        if not life.process.alive:
            return  # it died in the midst of this
        if not copying.unwanted:
            copying.good = [damage is None] * len(copying.pull.targets)
        self.end_copy(copying)
