"""How requests come to workers, and what happens when one can't go on where it is.

Every attempt after the first is paid for by something outside: a worker's death, a refusal, lost
KV, a drain. Deaths of workers that had begun with a request, and faults, are counted until there is
progress, and refusals are spread out in time. Lost KV needs no count: it was offered with a new
token, and is lost once. Nor does the death of a worker in whose queue it waited: that can't be what
it died of, and each costs a worker. Deadlines end the rest, so that nothing is tried without bound.
"""

from collections.abc import Iterable

from antiphon.types import (
    Command,
    Drained,
    FinishReason,
    GrantAnswered,
    Health,
    HealthChanged,
    Hold,
    Offer,
    Rejected,
    RejectReason,
    RequestId,
    Seconds,
    WorkerId,
)

from .attempt import Granting, Prefilling, Serving, Waiting
from .dispatcher import AllRefused, Dispatcher
from .held_requests import HeldRequests
from .open_request import OpenRequest
from .open_requests import OpenRequests

MAX_FRUITLESS = 3
"""That many attempts in a row that a worker had begun and died with, or broke off, without a new
token."""
_HOLDS_A_PASS = 16
"""After that many who can't be placed nobody further behind is asked for."""
_LEAST_WAIT_S = 0.01
_LONGEST_WAIT_S = 2.0


class Attempts:
    """Moves open requests over the fleet. All methods mutate and return commands, in order.

    When every worker had no room for a request that has begun, it waits `retry_s` at first, then
    twice as long each time.
    """

    def __init__(self, requests: OpenRequests, dispatcher: Dispatcher, retry_s: Seconds) -> None:
        self._requests = requests
        self._dispatcher = dispatcher
        self._retry_s = retry_s

    # ── held requests ────────────────────────────────────────────────────────────────────────

    def seek(self, entry: OpenRequest, now: Seconds) -> list[Command]:
        """Find a worker for a request that none has, now if it is its turn, else in its turn."""
        queue = self._requests.queue(entry)
        queue.put(entry.request, entry.arrival, entry.arrived_at)
        if queue.is_next(entry.id, now):
            return self._ask(queue, (entry.id,), now)
        return self._shed(queue, entry, queue.ahead(entry.id), now) or []

    def ask_all(self, now: Seconds) -> list[Command]:
        """Find workers for those who wait, in their order; who has an offer holds memory: first."""
        commands: list[Command] = []
        for queue in (self._requests.for_decode, self._requests.for_route):
            if len(queue):
                commands += self._ask(queue, queue.ready(now), now)
                queue.asked(now)
        return commands

    def _ask(self, queue: HeldRequests, ids: Iterable[RequestId], now: Seconds) -> list[Command]:
        commands: list[Command] = []
        holds = 0
        for id in ids:
            entry = self._requests.get(id)
            if entry is None:
                continue
            if (shed := self._shed(queue, entry, (0, 0), now)) is not None:
                commands += shed
                continue
            match self._dispatcher.place(entry, now):
                case Hold(ask_again_at=at):
                    entry.refused_by.clear()
                    queue.hold(id, max(now + _LEAST_WAIT_S, at))
                    holds += 1
                case AllRefused(refusal):
                    queue.remove(id)
                    commands += self._all_refused(entry, refusal, now)
                case Rejected() as rejected:
                    queue.remove(id)
                    commands += self._unplaceable(entry, rejected, now)
                case placed:
                    queue.take(id)
                    commands += placed
            if holds == _HOLDS_A_PASS:
                break
        return commands

    def _shed(
        self, queue: HeldRequests, entry: OpenRequest, ahead: tuple[int, int], now: Seconds
    ) -> list[Command] | None:
        """Refuse one that waits here behind `ahead`, if its targets can't be met; None: it stays.

        Nobody is refused of whom something was delivered.
        """
        vain = self._dispatcher.in_vain(entry, ahead, now) if entry.untouched else None
        if vain is None:
            return None
        queue.remove(entry.id)
        return self._requests.refuse(entry, vain, now)

    def _all_refused(self, entry: OpenRequest, refusal: Rejected, now: Seconds) -> list[Command]:
        """A request that has begun waits; a new one is better off if its sender knows at once."""
        if entry.untouched:
            return self._requests.refuse(entry, refusal, now)
        wait_s = min(self._retry_s * 2.0 ** min(entry.refusals, 16), _LONGEST_WAIT_S)
        entry.refusals += 1
        entry.refused_by.clear()
        queue = self._requests.queue(entry)
        queue.put(entry.request, entry.arrival, entry.arrived_at, now + wait_s)
        return []

    def _unplaceable(self, entry: OpenRequest, rejected: Rejected, now: Seconds) -> list[Command]:
        """Nobody can use its offer: begin anew without it. Nobody can serve it: it is over."""
        if entry.offer is None:
            return self._requests.refuse(entry, rejected, now)
        return [*self._give_up_offer(entry), *self._again(entry, now, fruitless=False)]

    # ── what workers answer ──────────────────────────────────────────────────────────────────

    def rejected(self, entry: OpenRequest, fact: Rejected, now: Seconds) -> list[Command]:
        """A worker does not take the request: another one may have room.

        If a part of it is nothing for who would pass it on, or go on with it, one does it all.
        """
        match entry.attempt.place:
            case Serving(worker, part):
                pass
            case Prefilling(worker):
                part = True
            case Waiting() | Granting():
                return []
        unfit = fact.reason in (RejectReason.TOO_LONG, RejectReason.INVALID)
        if unfit and part and not entry.whole:
            entry.whole = True
            return [*self._give_up_offer(entry), *self._again(entry, now, fruitless=False)]
        if fact.reason not in (RejectReason.QUEUE_FULL, RejectReason.DRAINING):
            return self._requests.refuse(entry, fact, now)
        entry.refused_by.append(worker)
        entry.refusal = fact
        self._dispatcher.refused(worker, now)
        return self._again(entry, now, fruitless=False)

    def failed(self, entry: OpenRequest, now: Seconds) -> list[Command]:
        """The worker gives the attempt up, by its own fault: another may do better.

        If it was to pass the request on, that may be what it can't do: then one does it all.
        """
        entry.whole |= isinstance(entry.attempt.place, Prefilling)
        if (worker := entry.attempt.worker) is not None:
            self._dispatcher.refused(worker, now)
        return self._again(entry, now, fruitless=True)

    def broken(self, entry: OpenRequest, now: Seconds) -> list[Command]:
        """Tokens are missing: begin anew after the last that was delivered."""
        stop = self._dispatcher.stop(entry)
        return [*stop, *self._give_up_offer(entry), *self._again(entry, now, fruitless=True)]

    def offered(self, entry: OpenRequest, offer: Offer, now: Seconds) -> list[Command]:
        """The prompt is computed: find somebody who goes on."""
        if problem := self._dispatcher.misfit(entry, offer):
            released = self._dispatcher.release(offer)
            return [*released, *self._requests.abort(entry, FinishReason.ERROR, problem, now)]
        self._dispatcher.take_up(entry, offer, now)
        return self.seek(entry, now)

    def granted(self, entry: OpenRequest, fact: GrantAnswered, now: Seconds) -> list[Command]:
        """The owner keeps its pages for the taker; or they are gone, and all begins anew."""
        place, offer = entry.attempt.place, entry.offer
        if offer is None or not isinstance(place, Granting):
            return []
        if fact.refused is None:
            return [self._dispatcher.adopt(entry, offer, place.taker, now)]
        return [*self._give_up_offer(entry), *self._again(entry, now, fruitless=False)]

    # ── workers that go ──────────────────────────────────────────────────────────────────────

    def lose(self, worker: WorkerId, now: Seconds) -> list[Command]:
        """A worker is gone, and with it all that it had not given away."""
        draining = worker in self._dispatcher.workers.drains()
        if not self._dispatcher.observe(HealthChanged(worker, Health.LOST), now):
            return []
        commands = self._vacate(worker, now)
        return [*commands, Drained(worker)] if draining else commands

    def vacate_overdue(self, now: Seconds) -> list[Command]:
        """Move what is left on workers that were to be empty by now."""
        commands: list[Command] = []
        for worker in self._dispatcher.workers.overdue(now):
            commands += self._vacate(worker, now)
        return commands

    def drained(self) -> list[Command]:
        """Say which of the workers that are being emptied are empty."""
        commands: list[Command] = []
        for worker in self._dispatcher.workers.drains():
            if not any(_is_on(entry, worker) for entry in self._requests):
                self._dispatcher.workers.drained(worker)
                commands.append(Drained(worker))
        return commands

    def _vacate(self, worker: WorkerId, now: Seconds) -> list[Command]:
        commands: list[Command] = []
        for entry in self._requests:
            if _is_on(entry, worker):
                commands += self._leave(entry, worker, now)
        return commands

    def _leave(self, entry: OpenRequest, worker: WorkerId, now: Seconds) -> list[Command]:
        """Nothing of the request stays on this worker, which may be dead."""
        commands: list[Command] = []
        place = entry.attempt.place
        again = died = False
        if entry.offer is not None and entry.offer.owner == worker:
            commands += self._give_up_offer(entry)
            again = not isinstance(place, Serving)  # who has adopted it computes what is missing
        match place:
            case Prefilling(holder) | Serving(holder, _) if holder == worker:
                commands += self._dispatcher.stop(entry)
                again = True
                died = entry.attempt.begun and worker not in self._dispatcher.workers
            case Granting(taker) if taker == worker:  # it was never given the request
                again = True
            case _:
                pass
        return [*commands, *self._again(entry, now, fruitless=died)] if again else commands

    def _again(self, entry: OpenRequest, now: Seconds, *, fruitless: bool) -> list[Command]:
        """The next attempt, with what was delivered; unless it is over, or there is no hope."""
        ends = [entry.end(sequence, reason, "") for sequence, reason in entry.overrun()]
        if not entry.open_sequences():
            return [*ends, *self._requests.settle_if_over(entry, now)]
        entry.fruitless += fruitless and not entry.attempt.first_token
        if entry.fruitless >= MAX_FRUITLESS:
            message = f"{MAX_FRUITLESS} attempts in a row broke off before a token came"
            return [*ends, *self._requests.end(entry, FinishReason.ERROR, message, now)]
        self._dispatcher.forget(entry.id, now, again=True)
        entry.try_again(now)
        return [*ends, *self.seek(entry, now)]

    def _give_up_offer(self, entry: OpenRequest) -> list[Command]:
        """No effect on a request without an offer. It may wait in the other queue afterwards."""
        self._requests.queue(entry).remove(entry.id)
        return self._dispatcher.give_up_offer(entry)


def _is_on(entry: OpenRequest, worker: WorkerId) -> bool:
    """Does this worker have the request, or its offer, or is it to have it?"""
    if entry.offer is not None and entry.offer.owner == worker:
        return True
    match entry.attempt.place:
        case Prefilling(holder) | Serving(holder, _) | Granting(holder):
            return holder == worker
        case Waiting():
            return False
