"""Who may be chosen at all: the filter before any score."""

from collections.abc import Sequence

from antiphon.types import Health, Seconds

from .demand import Demand
from .worker_belief import WorkerBelief

_KEPT_WAITING = 2
"""A worker takes that many that can't run yet, so that it never waits for a gateway."""


def is_open(worker: WorkerBelief, now: Seconds) -> bool:
    """It is well, wanted, and has not just refused."""
    closed = worker.closed_until is not None and now < worker.closed_until
    return worker.health is Health.JOINED and not closed


def could_run(worker: WorkerBelief, demand: Demand, drawn: int = 0) -> bool:
    """It can run the request if it has nothing else: its limits allow it, as it counts itself.

    `drawn`: how many tokens each sequence will have got before it comes here, 0 or 1.
    """
    return demand.needs(worker.kind).runs[drawn]


def could_adopt(worker: WorkerBelief, demand: Demand, drawn: int = 0) -> bool:
    """It could run the request and go on with its KV, each sequence with room for one more."""
    return demand.needs(worker.kind).adopts[drawn]


def has_memory(worker: WorkerBelief, demand: Demand, max_sequences: int | None) -> bool:
    """It can start the request beside all that it has."""
    load = worker.load
    if max_sequences is not None and load.sequences + demand.sequences > max_sequences:
        return load.requests == 0
    pages, total = worker.running_pages_of(demand), worker.total_pages
    if pages is None or total is None or load.requests == 0:
        return True
    return load.pages + pages <= total


def has_room(worker: WorkerBelief, demand: Demand, max_sequences: int | None) -> bool:
    """It can start the request, or has so few that wait that it may wait there too."""
    return worker.load.waiting < _KEPT_WAITING or has_memory(worker, demand, max_sequences)


def has_enough(worker: WorkerBelief, queue_s: Seconds) -> bool:
    """It has prompts for longer than that, so whatever more it gets would only wait there."""
    return worker.pace.factor * worker.load.queued_s > queue_s


def may_offer(worker: WorkerBelief, demand: Demand) -> bool:
    """Its prompt is within half of the pool, so that this worker may offer it at all.

    As the worker counts it: each sequence with the token that is drawn last.
    """
    return demand.needs(worker.kind).offers


def can_offer_now(worker: WorkerBelief, demand: Demand) -> bool:
    """With its prompt, what is offered and what will be stays within half of the pool."""
    pages, total = worker.pages_of(demand), worker.total_pages
    if pages is None or total is None:
        return False
    return 2 * (worker.load.handover_pages + pages) <= total


def of_numerics(workers: Sequence[WorkerBelief], numerics: str | None) -> list[WorkerBelief]:
    """Those of this numerics id."""
    return [worker for worker in workers if worker.info.model.numerics == numerics]
