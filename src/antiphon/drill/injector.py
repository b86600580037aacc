"""One fault after the other, each shown to have happened."""

import asyncio
import time
from collections.abc import Callable

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


class Injector:
    """Carries out a plan's faults on a target until it is told to stop."""

    def __init__(self, target: Target, plan: DrillPlan, say: Callable[[str], None]) -> None:
        self.injected: list[Injected] = []
        self.hit_at: list[tuple[Seconds, str]] = []
        """When each fault hit whom, on the machine's monotonic clock."""
        self._target = target
        self._plan = plan
        self._say = say
        self._started = time.monotonic()
        self._stopped: Process | None = None

    async def run(self, until: asyncio.Event) -> None:
        """Hit workers until `until` is set; the last fault is seen through to its end."""
        draws = Draws(self._plan.seed)
        for number, wait_s in enumerate(self._plan.waits()):
            try:
                await asyncio.wait_for(until.wait(), wait_s)
                return
            except TimeoutError:
                pass
            victim = choose_victim((await self._target.status()).workers, draws, number)
            if victim is not None:
                await self._hit(victim)

    def release(self) -> None:
        """Let whoever is stopped go on: nothing stays behind."""
        if self._stopped is not None:
            resume(self._stopped)
            self._stopped = None

    async def _hit(self, victim: WorkerStatus) -> None:
        process = process_of(victim.pid or 0)
        if process is None:
            return
        hit_at = time.monotonic()
        if self._plan.kind is FaultKind.KILL:
            sent = kill(process)
        else:
            self._stopped = process
            sent = stop(process)
        if not sent:
            return
        self.hit_at.append((hit_at, victim.id))
        self._say(f"{self._plan.kind} {victim.id} (pid {process.pid})")
        await self._see_effect(process, victim)
        detected = await self._until(lambda now: _is_given_up(now, victim), _BACK_S)
        if self._plan.kind is FaultKind.STOP:
            rest = hit_at + self._plan.stop_for_s - time.monotonic()
            await asyncio.sleep(max(0.0, rest))
            self.release()
        back = await self._until(lambda now: _is_back(now, victim), _BACK_S)
        self.injected.append(
            Injected(
                kind=self._plan.kind,
                worker=victim.id,
                role=victim.role,
                pid=process.pid,
                at_s=hit_at - self._started,
                detected_s=None if detected is None else detected - hit_at,
                back_s=None if back is None else back - hit_at,
            )
        )

    async def _see_effect(self, process: Process, victim: WorkerStatus) -> None:
        """The fault is at the process itself. Raises `PeerError` if it is not."""
        seen = is_dead if self._plan.kind is FaultKind.KILL else is_stopped
        ends_at = time.monotonic() + _EFFECT_S
        while not seen(process):
            if time.monotonic() > ends_at:
                raise PeerError(f"{self._plan.kind} of {victim.id} had no effect: no drill at all")
            await asyncio.sleep(_POLL_S)

    async def _until(
        self, true: Callable[[WorkerStatus], bool], timeout_s: Seconds
    ) -> Seconds | None:
        """When the victim's status first was so; None: not in time. `true` gets the newest."""
        ends_at = time.monotonic() + timeout_s
        while time.monotonic() < ends_at:
            status = await self._target.status()
            if any(true(worker) for worker in status.workers):
                return time.monotonic()
            await asyncio.sleep(_POLL_S)
        return None


def _is_given_up(now: WorkerStatus, victim: WorkerStatus) -> bool:
    if now.id != victim.id:
        return False
    return now.health == Health.LOST or now.incarnation != victim.incarnation


def _is_back(now: WorkerStatus, victim: WorkerStatus) -> bool:
    if now.id != victim.id:
        return False
    another = now.incarnation is not None and now.incarnation != victim.incarnation
    return another and now.health == Health.JOINED
