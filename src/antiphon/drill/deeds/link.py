"""Faults of a link: the clients' connections to the gateway, and a worker's stream to it."""

import time
from contextlib import ExitStack

from antiphon.bench import wait_until_ready
from antiphon.core.faults import Lag
from antiphon.drill.control_stream import control_streams, shut
from antiphon.drill.http_proxy import HttpProxy
from antiphon.errors import PeerError
from antiphon.live.socket_folder import gateway_socket
from antiphon.types import Seconds

from .scene import BACK_S, Hit, Scene, Seen

_SETTLED_S: Seconds = 1.0
"""Within that time every client of a connection that was cut has noticed."""


async def do_cut_clients(scene: Scene, hit: Hit) -> Seen | None:
    """Reset all connections between clients and the gateway, as soon as something is under way."""
    proxy = _proxy(scene)
    await scene.effect(hit, lambda: proxy.busy, why="no answer was under way")
    cut = proxy.cut()
    return Seen(
        evidence=f"{cut} connections of clients were reset",
        back_at=time.monotonic(),
        breaks_until=time.monotonic() + _SETTLED_S,
    )


async def do_cut_worker(scene: Scene, hit: Hit) -> Seen | None:
    """Shut the worker's stream to its gateway down: both find it broken, and it joins anew."""
    with ExitStack() as held:
        streams = control_streams(hit.process, gateway_socket(scene.target.sockets))
        for stream in streams:
            held.enter_context(stream)
        if not sum(shut(stream) for stream in streams):
            return None
        given_up = await scene.until(
            hit.victim.name, lambda life: life.lost or life.life != hit.victim.life, scene.effect_s
        )
    if given_up is None:
        raise hit.no_effect("the worker is with its gateway as before")
    back = await scene.until(hit.victim.name, lambda life: life.there, BACK_S)
    return Seen(evidence="its stream to the gateway was shut", detected_at=given_up, back_at=back)


async def do_delay_clients(scene: Scene, hit: Hit, action: Lag) -> Seen | None:
    """All bytes between clients and gateway are late for a while; a call of our own shows it."""
    proxy = _proxy(scene)
    proxy.lag_s += action.by_s
    try:
        asked_at = time.monotonic()
        await wait_until_ready(proxy.url, timeout_s=BACK_S + 2 * action.by_s)
        took_s = time.monotonic() - asked_at
        if took_s < 2 * action.by_s:
            raise hit.no_effect(f"a call took {took_s:.3f} s")
        await scene.pause(hit.at + action.for_s - time.monotonic())
    except TimeoutError:
        raise hit.no_effect("the gateway did not answer at all") from None
    finally:
        proxy.lag_s -= action.by_s
    return Seen(evidence=f"a call took {took_s:.3f} s meanwhile", back_at=time.monotonic())


def _proxy(scene: Scene) -> HttpProxy:
    if scene.proxy is None:
        raise PeerError("there is no proxy between the clients and the gateway")
    return scene.proxy
