"""Whom the next fault hits: somebody whose work others can take over."""

from collections.abc import Sequence

from antiphon.core.draws import Draws
from antiphon.live.admin.status import WorkerStatus
from antiphon.types import Health, Role

_PHASES = {
    Role.PREFILL: (Role.PREFILL,),
    Role.DECODE: (Role.DECODE,),
    Role.MIXED: (Role.PREFILL, Role.DECODE),
}


def choose_victim(
    workers: Sequence[WorkerStatus], draws: Draws, number: int
) -> WorkerStatus | None:
    """The worker that fault `number` hits; None: there is nobody who could be spared now.

    Each phase that the victim serves is left with another worker that has joined. The choice
    depends on who is there, so it repeats with the seed only as far as the cluster does.
    """
    joined = sorted(
        (worker for worker in workers if worker.health == Health.JOINED and worker.pid),
        key=lambda worker: worker.id,
    )
    spare = [worker for worker in joined if _can_be_spared(worker, joined)]
    return draws.choice(spare, "victim", number) if spare else None


def _can_be_spared(worker: WorkerStatus, joined: Sequence[WorkerStatus]) -> bool:
    others = [other for other in joined if other.id != worker.id]
    return all(
        any(phase in _PHASES[other.role] for other in others) for phase in _PHASES[worker.role]
    )
