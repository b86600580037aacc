"""How a gateway reaches a worker, in this process or another."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    Rejected,
    Request,
    RequestId,
    Unknown,
    WorkerInfo,
    WorkerView,
)


class WorkerLink(Protocol):
    """One worker, seen from its one gateway. All calls come from one event loop.

    Promises:

    * `add` and `abort` take effect in the order in which they begin to run, so an abort that
      follows its add never overtakes it.
    * Each sequence of an admitted request ends once: by its `SequenceEnded`, or in the answer to
      an `abort`. Events before it may still be on their way when the answer is there.
    * Events of a request come in order and none is lost while `events` goes on. If it stops, by
      itself or by an exception, the worker is gone, and with it whatever it had not ended.
    """

    @property
    def info(self) -> WorkerInfo:
        """Who the worker is; the same for the life of the link."""
        ...

    async def add(self, request: Request) -> Admitted | Rejected:
        """Hand over a request. A worker that drains, is unhealthy or gone answers `Rejected`."""
        ...

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """End one sequence, or the whole request, within one step.

        `Unknown` if nothing of this attempt runs here: aborts race with endings.
        """
        ...

    def events(self) -> AsyncIterator[Sequence[Event]]:
        """What happens, in batches: a step's events, or those of a few steps if the reader is slow.

        One reader. A worker does not run ahead of its reader without bound: it waits.
        """
        ...

    def view(self) -> WorkerView:
        """The newest counts that are known; does not wait."""
        ...
