"""How a gateway reaches a worker, in this process or another."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    Offer,
    Rejected,
    Request,
    RequestId,
    Role,
    Stage,
    Unknown,
    WorkerInfo,
    WorkerView,
)


class WorkerLink(Protocol):
    """One worker, seen from its one gateway. All calls come from one event loop.

    Promises:

    * Calls take effect in the order in which they begin to run, so an abort that follows its add
      never overtakes it.
    * Each sequence of an admitted request ends once: by its `SequenceEnded`, in the answer to an
      `abort`, by the `Offer` that passes it on, or by the `AttemptFailed` that gives up all that
      has not ended. Events before it may still be on their way when the answer is there.
    * Events of a request come in order and none is lost while `events` goes on. If it stops, by
      itself or by an exception, the worker is gone, and with it whatever it had not ended.
    * A call that can't be answered any more (the worker went away, or was too slow) raises
      `PeerError`. Calls that begin when the worker is gone are answered as if it had nothing.
    """

    @property
    def info(self) -> WorkerInfo:
        """Who the worker is; for the life of the link only its role changes."""
        ...

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        """Hand over a request. A worker that drains, is unhealthy or gone answers `Rejected`.

        `fetch`: see `Dispatch`.
        """
        ...

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        """Hand over a request that goes on with what another worker offers."""
        ...

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """End one sequence, or the whole request and its offer, within one step.

        `Unknown` if nothing of this attempt runs here: aborts race with endings.
        """
        ...

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """Let this life of another worker take what is offered here, and nobody else any more."""
        ...

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        """Keep these offers for their time to live, from now. Those that are gone stay gone."""
        ...

    async def release(self, lease: LeaseId) -> None:
        """Nobody will take this offer. No effect if it is gone."""
        ...

    async def set_role(self, role: Role) -> None:
        """From now on the worker is meant for other phases; `info` says so when this returns."""
        ...

    def events(self) -> AsyncIterator[Sequence[Event]]:
        """What happens, in batches: a step's events, or those of a few steps if the reader is slow.

        One reader. A worker does not run ahead of its reader without bound: it waits.
        """
        ...

    def view(self) -> WorkerView:
        """The newest counts that are known; does not wait."""
        ...
