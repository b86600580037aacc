"""What a fault needs to happen and to be seen."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from antiphon.core.faults import ACTION_NAMES, GATEWAY, ScheduledFault
from antiphon.drill.http_proxy import HttpProxy
from antiphon.drill.lives import Life, lives_in
from antiphon.drill.process_fault import Process
from antiphon.drill.target import Target
from antiphon.errors import PeerError, UsageError
from antiphon.types import Seconds
from antiphon.workload import Ask

POLL_S: Seconds = 0.02
EFFECT_S: Seconds = 5.0
BACK_S: Seconds = 60.0
ORDER_S: Seconds = 30.0
"""How long what runs on a worker may take that is drained, before it is moved elsewhere."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault and whom it hits. `at`: when, on the machine's monotonic clock."""

    fault: ScheduledFault
    victim: Life
    process: Process
    at: Seconds

    @property
    def kind(self) -> str:
        """What operators call it."""
        return ACTION_NAMES[type(self.fault.action)]

    def no_effect(self, why: str = "") -> PeerError:
        """To be raised when it did not happen."""
        told = f" ({why})" if why else ""
        return PeerError(f"{self.kind} of {self.victim.name} had no effect{told}: no drill at all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A fault that happened. `evidence`: what was seen of it, at the thing itself.

    `detected_at`: when the gateway had given a worker up; None: it did not. `back_at`: when all was
    as before; None: not in time. `breaks_until`: a client's stream that was open between the fault
    and then may have been broken by it, as nobody could go on with it; None: it breaks none.
    """

    evidence: str
    detected_at: Seconds | None = None
    back_at: Seconds | None = None
    breaks_until: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A process that stands still until `goes_on` is set; `endless`: at the latest when the load is
    over, else when its time is."""

    endless: bool
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Scene:
    """The cluster under load, as all faults share it. Mutable.

    `under_fault`: names of those whom a fault has hit that is not over. `standing`: those of them
    that are stopped. `over` is set when the load is over. `send`: has a chat answered beside the
    load. `proxy`: between the clients and the gateway, if there is one. `effect_s`: a fault that
    shows no effect for that long had none.
    """

    target: Target
    say: Callable[[str], None]
    over: asyncio.Event
    send: Callable[[Ask], Awaitable[object]]
    proxy: HttpProxy | None = None
    effect_s: Seconds = EFFECT_S
    under_fault: set[str] = field(default_factory=set[str])
    standing: dict[str, Standing] = field(default_factory=dict[str, Standing])

    async def lives(self) -> Mapping[str, Life]:
        """Everybody, now; nobody while a fault keeps the gateway from answering.

        Raises `PeerError` if it does not answer though nothing was done to it.
        """
        try:
            return lives_in(await self.target.status())
        except PeerError:
            if GATEWAY in self.under_fault:
                return {}
            raise

    async def order(self, name: str, deed: str, **more: str) -> None:
        """See `Target.order`. One that a fault of the gateway breaks off is given again.

        Raises `PeerError` if it failed though nothing was done to the gateway, or can't be done.
        """
        while True:
            try:
                return await self.target.order(name, deed, ORDER_S, **more)
            except UsageError as error:
                raise PeerError(f"{deed} of {name} can't be ordered: {error}") from None
            except PeerError:
                if GATEWAY not in self.under_fault:
                    raise
                await asyncio.sleep(POLL_S)

    async def until(
        self, name: str, true: Callable[[Life], bool], timeout_s: Seconds
    ) -> Seconds | None:
        """When that one was first seen so, asked at least once. None: not in time."""
        ends_at = time.monotonic() + timeout_s
        while True:
            life = (await self.lives()).get(name)
            now = time.monotonic()
            if life is not None and true(life):
                return now
            if now >= ends_at:
                return None
            await asyncio.sleep(min(POLL_S, ends_at - now))

    async def effect(self, hit: Hit, seen: Callable[[], bool], why: str = "") -> None:
        """Wait until the fault is seen at the thing itself. Raises `PeerError` if it is not."""
        ends_at = time.monotonic() + self.effect_s
        while not seen():
            if time.monotonic() > ends_at:
                raise hit.no_effect(why)
            await asyncio.sleep(POLL_S)

    async def pause(self, seconds: Seconds) -> None:
        """Let time pass; less if `seconds` is negative."""
        await asyncio.sleep(max(seconds, 0.0))
