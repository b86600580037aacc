"""Whether a plan's faults can hit anybody at all: said before the load, not at its end."""

from collections.abc import Sequence

from antiphon.core.faults import (
    ACTION_NAMES,
    GATEWAY,
    STORE,
    AnyWorker,
    Resume,
    ScheduledFault,
    Stall,
    target_text,
)
from antiphon.errors import UsageError
from antiphon.types import Role

from .lives import Life
from .victim import can_spare


def check_feasible(
    faults: Sequence[ScheduledFault],
    workers: Sequence[tuple[str, Role]],
    *,
    has_store: bool = True,
) -> None:
    """Raises `UsageError` that names the first fault which finds nobody in a cluster of these
    workers even when all are there and nothing else has happened."""
    everybody = [_there(name, role) for name, role in workers]
    for fault in faults:
        if why := _problem(fault, everybody, faults, has_store):
            raise UsageError(f"fault {fault.entry} ({ACTION_NAMES[type(fault.action)]}): {why}")


def _problem(
    fault: ScheduledFault, workers: Sequence[Life], faults: Sequence[ScheduledFault], store: bool
) -> str:
    """Why it can't be; empty: it can."""
    names = [worker.name for worker in workers]
    candidates = _meant(fault, workers)
    match fault.target:
        case AnyWorker() if not candidates:
            return f'target: the cluster has no worker "{target_text(fault.target)}"'
        case AnyWorker() if not isinstance(fault.action, Resume):
            if not any(can_spare(one, workers) for one in candidates):
                return (
                    f'target: "{target_text(fault.target)}": no worker can be spared: each is the '
                    f"last of the cluster that computes prompts, or that decodes. Start more "
                    f"workers, or name the one that is to be hit"
                )
        case AnyWorker():
            pass
        case name if name == STORE and not store:
            return "target: the cluster has no store"
        case name if name not in (*names, GATEWAY, STORE):
            return f'target: there is no worker "{name}": there are {", ".join(names)}'
        case _:
            pass
    if isinstance(fault.action, Resume) and not any(
        isinstance(other.action, Stall) and _overlap(fault, other, workers) for other in faults
    ):
        return f'target: no fault of the plan stops "{target_text(fault.target)}"'
    return ""


def _meant(fault: ScheduledFault, workers: Sequence[Life]) -> Sequence[Life]:
    """The workers that its target may mean."""
    match fault.target:
        case AnyWorker(role):
            return [one for one in workers if role is None or one.role == role.value]
        case name:
            return [one for one in workers if one.name == name]


def _overlap(one: ScheduledFault, other: ScheduledFault, workers: Sequence[Life]) -> bool:
    """Both may hit the same."""
    meant = {worker.name for worker in _meant(other, workers)}
    return one.target == other.target or any(
        worker.name in meant for worker in _meant(one, workers)
    )


def _there(name: str, role: Role) -> Life:
    return Life(name=name, role=role.value, pid=1, life="1", there=True)
