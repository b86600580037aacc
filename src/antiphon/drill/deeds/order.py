"""What an operator orders: a worker drained and put back, a process restarted."""

import time

from antiphon.core.faults import GATEWAY, STORE, Drain
from antiphon.drill.process_fault import is_dead, terminate

from .scene import BACK_S, Hit, Scene, Seen


async def do_drain(scene: Scene, hit: Hit, action: Drain) -> Seen | None:
    """It gets nothing new, and has nothing left; later it takes requests again."""
    name, role = hit.victim.name, hit.victim.role
    try:
        await scene.order(name, "drain")
        drained = time.monotonic() - hit.at
        life = (await scene.lives()).get(name)
        if life is None or life.there:
            raise hit.no_effect("it still takes requests")
        await scene.pause(hit.at + action.for_s - time.monotonic())
    finally:
        await scene.order(name, "role", role=role)
    back = await scene.until(name, lambda life: life.there, BACK_S)
    return Seen(evidence=f"it was drained after {drained:.2f} s", back_at=back)


async def do_restart(scene: Scene, hit: Hit) -> Seen | None:
    """In order: a worker is drained first, a gateway is told to end."""
    name = hit.victim.name
    if name == GATEWAY:
        if not terminate(hit.process):
            return None
    else:
        await scene.order(name, "restart")
    await scene.effect(hit, lambda: is_dead(hit.process))
    back = await scene.until(
        name, lambda life: life.there and life.life not in (None, hit.victim.life), BACK_S
    )
    ended = time.monotonic() if back is None else back
    return Seen(
        evidence="the process is another one",
        detected_at=None if name in (GATEWAY, STORE) else hit.at,
        back_at=back,
        breaks_until=ended if name == GATEWAY else None,
    )
