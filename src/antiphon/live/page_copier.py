"""The pulls of a worker, carried out: `core.handover.Puller` decides, this does.

Scheduler.pulls ──► Puller ──Take, Copy, …──► PullPath ──► Puller ──PullEnded──► on_end
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antiphon.core.handover import (
    Acknowledge,
    Copy,
    Owner,
    PullCommand,
    PullEnded,
    Puller,
    RenewTaken,
    StopCopy,
    Take,
)
from antiphon.errors import PeerError
from antiphon.types import LeaseId, Pull, RequestId, Seconds

from .pull_path import Copied, PullPath

TAKE_TIMEOUT_S = 2.0
"""How long an owner may take to let this worker have what it was granted."""
LEASE_MARGIN = 0.1
"""By this share of its time to live a taker gives up a lease earlier than its owner does."""

_log = logging.getLogger(__name__)


class PageCopier:
    """Runs pulls side by side. `on_end` is called once for each, on the event loop.

    Whatever an owner does, or does not do, ends its own pulls alone. `on_broken` is called if a law
    was broken while a pull was carried out: nothing can be trusted then.
    """

    def __init__(
        self,
        path: PullPath,
        *,
        lease_ttl_s: Seconds,
        clock: Callable[[], Seconds],
        on_end: Callable[[PullEnded], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._path = path
        self._puller = Puller(answer_s=TAKE_TIMEOUT_S, margin_s=LEASE_MARGIN * lease_ttl_s)
        self._clock = clock
        self._on_end = on_end
        self._on_broken = on_broken
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Pulls that have not ended."""
        return len(self._puller)

    def begin(self, pull: Pull) -> None:
        """Take, copy, acknowledge."""
        self._obey(self._puller.begin(pull, self._clock()))

    def cancel(self, request: RequestId, attempt: int) -> None:
        """The request has ended: no need to go on. The pull ends all the same."""
        self._obey(self._puller.cancel(request, attempt, self._clock()))

    async def close(self) -> None:
        """Wait until nothing is copied, taken or said any more: each of it ends in time."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._timer is not None:
            self._timer.cancel()

    def _obey(self, commands: Sequence[PullCommand]) -> None:
        for command in commands:
            match command:
                case Take():
                    self._spawn(self._take(command))
                case Copy(pull):
                    self._spawn(self._copy(pull))
                case RenewTaken(owner, leases):
                    self._spawn(self._renew(owner, leases))
                case Acknowledge():
                    self._spawn(self._acknowledge(command))
                case StopCopy():
                    self._path.stop(command.request, command.attempt)
                case PullEnded():
                    self._on_end(command)
        self._wind_up()

    def _wind_up(self) -> None:
        """Set the clock for what is due next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._puller.next_deadline()
        if deadline is not None:
            delay_s = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._obey(self._puller.due(self._clock()))

    async def _take(self, take: Take) -> None:
        try:
            answer = await self._path.take(take.owner, take.lease, take.attempt)
        except PeerError as error:
            self._lost(take.owner, error)
        else:
            self._obey(self._puller.taken(take.request, take.attempt, answer, self._clock()))

    async def _copy(self, pull: Pull) -> None:
        try:
            copied = await self._path.copy(pull)
        except PeerError as error:
            copied = Copied((False,) * len(pull.pages), str(error))
        now = self._clock()
        self._obey(
            self._puller.copied(pull.request, pull.attempt, copied.good, copied.problem, now)
        )

    async def _renew(self, owner: Owner, leases: Sequence[LeaseId]) -> None:
        try:
            answers = await self._path.renew(owner, leases)
        except PeerError as error:
            self._lost(owner, error)
        else:
            self._obey(self._puller.renewed(answers, self._clock()))

    async def _acknowledge(self, command: Acknowledge) -> None:
        """If it gets lost the lease runs out by itself."""
        try:
            await self._path.acknowledge(command.owner, command.lease, command.attempt)
        except PeerError as error:
            _log.debug("lease %s is not acknowledged: %s", command.lease, error)

    def _lost(self, owner: Owner, error: PeerError) -> None:
        _log.debug("owner %s can't be asked: %s", owner.worker, error)
        self._obey(self._puller.lost(owner.incarnation, self._clock()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="pull")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)
