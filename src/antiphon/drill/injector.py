"""Faults at their times, beside each other, each shown to have happened."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.draws import Draws
from antiphon.errors import PeerError
from antiphon.live.admin.status import WorkerStatus
from antiphon.types import Health, Seconds

from .plan import DrillPlan, FaultKind
from .process_fault import Process, is_dead, is_stopped, kill, process_of, resume, stop
from .report import Injected
from .target import Target
from .victim import choose_victim

_POLL_S = 0.02
_EFFECT_S = 5.0
"""A signal that has had no effect after that time had none."""
_BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class _Hit:
    """A signal that was sent. `at`: on the machine's monotonic clock."""

    process: Process
    victim: WorkerStatus
    at: Seconds


class Injector:
    """Carries out a plan's faults on a target until it is told to stop."""

    def __init__(self, target: Target, plan: DrillPlan, say: Callable[[str], None]) -> None:
        self.injected: list[Injected] = []
        """Faults that were seen through, in the order in which they were over."""
        self.began_at = time.monotonic()
        self._target = target
        self._plan = plan
        self._say = say
        self._under_fault: set[str] = set()

    async def run(self, until: asyncio.Event) -> None:
        """Hit workers until `until` is set; return when each fault is seen through to its end.

        If it is cancelled or fails, whoever is stopped goes on. Raises an `ExceptionGroup` with
        `PeerError` in it if a fault had no effect.
        """
        draws = Draws(self._plan.seed)
        async with asyncio.TaskGroup() as faults:
            for number, wait_s in enumerate(self._plan.waits()):
                try:
                    await asyncio.wait_for(until.wait(), wait_s)
                    return
                except TimeoutError:
                    pass
                workers = (await self._target.status()).workers
                # The gateway may take for joined who was hit a moment ago.
                sound = [worker for worker in workers if worker.id not in self._under_fault]
                victim = choose_victim(sound, draws, number)
                process = None if victim is None else process_of(victim.pid or 0)
                if victim is not None and process is not None:
                    self._under_fault.add(victim.id)
                    faults.create_task(self._fault(process, victim))

    async def _fault(self, process: Process, victim: WorkerStatus) -> None:
        """One fault from its signal until the victim has joined again."""
        hit = _Hit(process, victim, time.monotonic())
        try:
            if self._plan.kind is FaultKind.KILL:
                await self._kill(hit)
            else:
                await self._stop(hit)
        finally:
            self._under_fault.discard(victim.id)

    async def _kill(self, hit: _Hit) -> None:
        if not kill(hit.process):
            return
        await self._see_effect(hit, is_dead)
        detected = await self._until(hit, _is_given_up, _BACK_S)
        self._note(hit, detected, await self._until(hit, _is_back, _BACK_S))

    async def _stop(self, hit: _Hit) -> None:
        """Stopped for `stop_for_s`, whether or not the gateway notices meanwhile."""
        if not stop(hit.process):
            return
        goes_on_at = hit.at + self._plan.stop_for_s
        try:
            await self._see_effect(hit, is_stopped)
            detected = await self._until(hit, _is_given_up, goes_on_at - time.monotonic())
            await asyncio.sleep(goes_on_at - time.monotonic())
        finally:
            resume(hit.process)
        back = await self._until(hit, _is_joined, _BACK_S)
        if detected is None:
            # Given up in the moment in which it went on: it shows by its new life.
            detected = await self._until(hit, _is_back, 0.0)
        self._note(hit, detected, back)

    def _note(self, hit: _Hit, detected: Seconds | None, back: Seconds | None) -> None:
        self.injected.append(
            Injected(
                kind=self._plan.kind,
                worker=hit.victim.id,
                role=hit.victim.role,
                pid=hit.process.pid,
                at_s=hit.at - self.began_at,
                detected_s=None if detected is None else detected - hit.at,
                back_s=None if back is None else back - hit.at,
            )
        )

    async def _see_effect(self, hit: _Hit, seen: Callable[[Process], bool]) -> None:
        """The fault is at the process itself. Raises `PeerError` if it is not."""
        self._say(f"{self._plan.kind} {hit.victim.id} (pid {hit.process.pid})")
        ends_at = time.monotonic() + _EFFECT_S
        while not seen(hit.process):
            if time.monotonic() > ends_at:
                raise PeerError(
                    f"{self._plan.kind} of {hit.victim.id} had no effect: no drill at all"
                )
            await asyncio.sleep(_POLL_S)

    async def _until(
        self, hit: _Hit, true: Callable[[WorkerStatus, str | None], bool], timeout_s: Seconds
    ) -> Seconds | None:
        """When the victim's status first was so, asked at least once. None: not in time.

        `true` gets the newest status, and the incarnation that was hit.
        """
        ends_at = time.monotonic() + timeout_s
        while True:
            workers = (await self._target.status()).workers
            newest = next((worker for worker in workers if worker.id == hit.victim.id), None)
            now = time.monotonic()
            if newest is not None and true(newest, hit.victim.incarnation):
                return now
            if now >= ends_at:
                return None
            await asyncio.sleep(min(_POLL_S, ends_at - now))


def _is_given_up(now: WorkerStatus, hit: str | None) -> bool:
    return now.health == Health.LOST or now.incarnation != hit


def _is_joined(now: WorkerStatus, hit: str | None) -> bool:
    del hit
    return now.health == Health.JOINED


def _is_back(now: WorkerStatus, hit: str | None) -> bool:
    return now.health == Health.JOINED and now.incarnation not in (None, hit)
