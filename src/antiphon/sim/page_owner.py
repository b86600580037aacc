"""The side of a virtual worker that offers pages and lets others take them."""

from itertools import chain

from antiphon.core.handover import Acknowledge, RenewTaken, Take
from antiphon.types import NO_PAGE, LeaseHeld, LeaseRefused, Offer, PageId, Prefilled

from .cluster_log import LeaseUsed
from .cluster_messages import Answer, Ask, Mapped, boundary_of
from .stream import End
from .worker_host import WorkerHost


class PageOwner:
    """Seals what is offered, and answers those who take it."""

    def __init__(self, life: WorkerHost) -> None:
        self._life = life
        self._takers: list[End] = []
        self._most_takers = 16
        life.network.listen(life.process, self._accept)

    def offer(self, event: Prefilled) -> Offer:
        """Seals the pages; from now on they are what the offer says of them."""
        life = self._life
        info, pages = life.info, _named_once(event)
        assert info.kv is not None
        return Offer(
            request=event.request,
            attempt=event.attempt,
            lease=event.lease,
            ttl_s=life.scheduler.leases.ttl_s,
            owner=info.id,
            incarnation=info.incarnation,
            kv=info.kv,
            numerics=info.model.numerics,
            pages=life.memory.seal(pages),
            sequences=event.sequences,
        )

    def end_all(self) -> None:
        """This incarnation is over: so is what it offered, and whoever reads must ask anew."""
        self._life.scheduler.leases.drop_all()
        takers, self._takers = self._takers, []
        for end in takers:
            end.close()

    def _accept(self, end: End) -> None:
        self._takers.append(end)
        if len(self._takers) > self._most_takers:  # not each time: there may be hundreds
            self._takers = [one for one in self._takers if one.open]
            self._most_takers = 2 * len(self._takers) + 16
        end.heard = lambda message: self._hear(end, message)
        first = Mapped(self._life.incarnation, self._life.memory)
        end.send(first, boundary_of(first))

    def _hear(self, end: End, message: Ask) -> None:
        leases, now = self._life.scheduler.leases, self._life.now
        command, taker = message.command, message.taker
        match command:
            case Take(lease=lease, attempt=attempt):
                answers = (leases.take(lease, taker, attempt, now),)
                self._note_use(answers[0], LeaseUsed(lease, taker, attempt))
            case RenewTaken(leases=wanted):
                answers = tuple(leases.renew(wanted, taker, now))
            case Acknowledge(lease=lease, attempt=attempt):
                answers = (leases.acknowledge(lease, taker, attempt, now),)
                self._note_use(answers[0], LeaseUsed(lease, taker, attempt))
        reply = Answer(command, answers)
        end.send(reply, boundary_of(reply))
        self._life.wake()

    def _note_use(self, answer: LeaseHeld | LeaseRefused, use: LeaseUsed) -> None:
        if isinstance(answer, LeaseHeld):
            self._life.note(use)


def _named_once(event: Prefilled) -> tuple[PageId, ...]:
    """All pages of the tables, in the order in which they come first."""
    named = dict.fromkeys(chain.from_iterable(one.table for one in event.sequences))
    named.pop(NO_PAGE, None)
    return tuple(named)
