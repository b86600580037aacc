"""Faults at their times, beside each other, each shown to have happened."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from antiphon.core.faults import (
    ACTION_NAMES,
    AnyWorker,
    At,
    Resume,
    ScheduledFault,
    When,
    target_text,
)
from antiphon.types import Seconds
from antiphon.workload import Ask

from .deeds import Hit, Scene, Seen, carry_out
from .events import EventCounts
from .here import is_here
from .http_proxy import HttpProxy
from .process_fault import process_of
from .report import Injected, NotInjected
from .target import Target
from .victim import choose_victim

_POLL_S = 0.02


class Injector:
    """Carries out `faults` on a target until the load is over. Choices are drawn from `seed`.

    `events` says when one that sets a fault off has come; `send` has a chat answered beside the
    load; `proxy` is between the clients and the gateway, if something is to befall that link.
    """

    def __init__(
        self,
        target: Target,
        faults: Sequence[ScheduledFault],
        seed: int,
        say: Callable[[str], None],
        *,
        events: EventCounts,
        send: Callable[[Ask], Awaitable[object]],
        proxy: HttpProxy | None = None,
    ) -> None:
        self.injected: list[Injected] = []
        """Faults that were seen through, in the order in which they were over."""
        self.not_injected: list[NotInjected] = []
        """Faults that were due and could not be done, in no particular order."""
        self.began_at = time.monotonic()
        self._events = events
        self._faults = faults
        self._seed = seed
        self._scene = Scene(target=target, say=say, over=asyncio.Event(), send=send, proxy=proxy)
        self._choosing = asyncio.Lock()

    async def run(self, until: asyncio.Event) -> None:
        """Carry faults out until `until` is set; return when each is seen through to its end.

        If it is cancelled or fails, whoever is stopped goes on. Raises an `ExceptionGroup` with
        `PeerError` in it if a fault had no effect.
        """
        self.began_at = time.monotonic()
        timed = [fault for fault in self._faults if isinstance(fault.trigger, At)]
        others = [
            (fault, fault.trigger) for fault in self._faults if isinstance(fault.trigger, When)
        ]
        events = frozenset(when.boundary for _, when in others)
        watching = asyncio.create_task(self._events.watch(events))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._end(until))
                for fault, when in others:
                    tasks.create_task(self._after_event(fault, when))
                await self._at_their_times(timed, tasks)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _end(self, until: asyncio.Event) -> None:
        """The load is over: nothing new is done, and whoever stands still without end goes on."""
        await until.wait()
        self._scene.over.set()
        for standing in self._scene.standing.values():
            if standing.endless:
                standing.goes_on.set()

    async def _at_their_times(
        self, faults: Sequence[ScheduledFault], tasks: asyncio.TaskGroup
    ) -> None:
        """Begin each at its time, until the load is over. They are in order of time."""
        for fault in faults:
            assert isinstance(fault.trigger, At)
            wait_s = self.began_at + fault.trigger.seconds - time.monotonic()
            try:
                await asyncio.wait_for(self._scene.over.wait(), max(wait_s, 0.0))
                return
            except TimeoutError:
                tasks.create_task(self._see_through(fault))

    async def _after_event(self, fault: ScheduledFault, when: When) -> None:
        """See it through if its event comes before the load is over."""
        reached = asyncio.create_task(self._events.reached(when))
        over = asyncio.create_task(self._scene.over.wait())
        try:
            await asyncio.wait((reached, over), return_when=asyncio.FIRST_COMPLETED)
            came = reached.done()
        finally:
            for task in (reached, over):
                task.cancel()
            await asyncio.gather(reached, over, return_exceptions=True)
        if came:
            await self._see_through(fault)
        else:
            self._miss(fault, "its event did not come before the load was over")

    async def _see_through(self, fault: ScheduledFault) -> None:
        """One fault until all is as before."""
        hit = await self._taken(fault)
        if hit is None:
            return
        try:
            self._scene.say(f"{hit.kind} {hit.victim.name} (pid {hit.process.pid})")
            seen = await carry_out(self._scene, hit, self._seed)
        finally:
            if not isinstance(fault.action, Resume):
                self._scene.under_fault.discard(hit.victim.name)
        if seen is None:
            self._miss(fault, f"{hit.victim.name} was gone, or had nothing to be hit")
        else:
            self._note(hit, seen)

    async def _taken(self, fault: ScheduledFault) -> Hit | None:
        """Whom it hits, under fault from now on. Somebody is waited for until the load is over, but
        for one of many faults on whoever can be spared."""
        while not self._scene.over.is_set():
            async with self._choosing:
                hit = await self._chosen(fault)
                if hit is not None:
                    self._scene.under_fault.add(hit.victim.name)
                    return hit
            if isinstance(fault.target, AnyWorker) and not fault.once:
                self._miss(fault, "nobody could be spared")
                return None
            await asyncio.sleep(_POLL_S)
        anybody = isinstance(fault.target, AnyWorker)
        why = (
            "nobody on this machine could be spared"
            if anybody
            else "it was not there, or under another fault, or is on another machine,"
        )
        self._miss(fault, f"{why} until the load was over")
        return None

    async def _chosen(self, fault: ScheduledFault) -> Hit | None:
        lives = await self._scene.lives()
        under_fault = set(self._scene.under_fault)
        if not isinstance(fault.action, Resume):
            under_fault |= {name for name, life in lives.items() if not is_here(life, lives)}
        victim = choose_victim(fault, lives, frozenset(under_fault), self._seed)
        process = None if victim is None else process_of(victim.pid or 0)
        if victim is None or process is None:
            return None
        return Hit(fault, victim, process, time.monotonic())

    def _miss(self, fault: ScheduledFault, why: str) -> None:
        self.not_injected.append(
            NotInjected(
                kind=ACTION_NAMES[type(fault.action)],
                target=target_text(fault.target),
                entry=fault.entry,
                why=why,
                fatal=fault.once,
            )
        )

    def _note(self, hit: Hit, seen: Seen) -> None:
        def since(moment: Seconds | None) -> Seconds | None:
            return None if moment is None else moment - hit.at

        self.injected.append(
            Injected(
                kind=hit.kind,
                target=hit.victim.name,
                role=hit.victim.role,
                pid=hit.process.pid,
                at_s=hit.at - self.began_at,
                gone_s=since(seen.gone_at),
                detected_s=since(seen.detected_at),
                back_s=since(seen.back_at),
                breaks_for_s=since(seen.breaks_until),
                evidence=seen.evidence,
            )
        )
