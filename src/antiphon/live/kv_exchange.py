"""Both ways of a worker's KV: what it has computed is offered, what others offer is pulled.

Prefilled ──► Sealing ──► Offer              `Exchange.pages`
Pull ──► PageCopier ──► PullEnded            `Exchange.path`
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from antiphon.core.handover import LeaseBook, PullEnded
from antiphon.types import Event, Prefilled, Pull, RequestId, Seconds, WorkerInfo

from .page_copier import PageCopier
from .pull_path import Exchange
from .sealing import Sealing


class KvExchange:
    """What is under way, by attempt. `on_made` gets offers, or ends of what could not be offered;
    `on_pulled` each pull's end; `on_broken` what broke a law. All on the event loop.
    """

    def __init__(
        self,
        exchange: Exchange,
        leases: LeaseBook,
        info: Callable[[], WorkerInfo],
        *,
        clock: Callable[[], Seconds],
        on_made: Callable[[Sequence[Event]], None],
        on_pulled: Callable[[PullEnded], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"seal-{info().id}")
        self._sealing = Sealing(
            exchange.pages, leases, info, self._threads, on_made=on_made, on_broken=on_broken
        )
        self._copier = PageCopier(
            exchange.path,
            lease_ttl_s=leases.ttl_s,
            clock=clock,
            on_end=on_pulled,
            on_broken=on_broken,
        )

    def __len__(self) -> int:
        """How much is under way."""
        return len(self._sealing) + len(self._copier)

    def offer(self, prefilled: Prefilled) -> None:
        """Seal and offer what is computed."""
        self._sealing.begin(prefilled)

    def pull(self, pulls: Iterable[Pull]) -> None:
        """Begin these."""
        for pull in pulls:
            self._copier.begin(pull)

    def stop_pull(self, id: RequestId, attempt: int) -> None:
        """Nobody waits for its pages any more."""
        self._copier.cancel(id, attempt)

    def abort_offer(
        self, id: RequestId, attempt: int, sequence: int | None
    ) -> tuple[int, ...] | None:
        """See `Sealing.abort`."""
        return self._sealing.abort(id, attempt, sequence)

    def abort_offers(self) -> Iterable[Prefilled]:
        """See `Sealing.abort_all`."""
        return self._sealing.abort_all()

    async def close(self) -> None:
        """Wait until nothing is under way."""
        await self._sealing.close()
        await self._copier.close()
        self._threads.shutdown()
