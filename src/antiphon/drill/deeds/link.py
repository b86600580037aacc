"""Faults of a link: clients' connections to the gateway, a worker's stream to it, and to others."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from antiphon.bench import wait_until_ready
from antiphon.core.faults import GATEWAY, Cut, CutKv, Garble, GarbleKv, Lag
from antiphon.drill.control_stream import control_streams, garble, is_over, shut, tcp_streams
from antiphon.drill.http_proxy import HttpProxy
from antiphon.drill.process_fault import Process, process_of
from antiphon.errors import PeerError
from antiphon.live.socket_folder import gateway_socket
from antiphon.types import Seconds

from .scene import BACK_S, POLL_S, Hit, Scene, Seen

_SETTLED_S: Seconds = 1.0
"""Within that time every client of a connection that was cut has noticed."""


async def harm_link(
    scene: Scene, hit: Hit, action: Cut | Garble | CutKv | GarbleKv | Lag
) -> Seen | None:
    """See the fault of a link through. None: there was nothing to be hit. Raises `PeerError` if it
    had no effect."""
    match action:
        case Cut() if hit.victim.name == GATEWAY:
            return await do_cut_clients(scene, hit)
        case Cut():
            return await do_cut_worker(scene, hit)
        case Garble():
            return await do_garble_worker(scene, hit)
        case CutKv():
            return await do_cut_kv(scene, hit)
        case GarbleKv():
            return await do_garble_kv(scene, hit)
        case Lag():
            return await do_delay_clients(scene, hit, action)


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
    evidence = "its stream to the gateway was shut"
    return await _break_worker(scene, hit, lambda stream: int(shut(stream)), evidence)


async def do_garble_worker(scene: Scene, hit: Hit) -> Seen | None:
    """Write garbage into the worker's stream to its gateway, which ends it; it joins anew."""
    evidence = "garbage came on its stream to the gateway"
    return await _break_worker(scene, hit, garble, evidence)


async def _break_worker(
    scene: Scene, hit: Hit, harm: Callable[[socket.socket], int], evidence: str
) -> Seen | None:
    """`harm` tells how much it could do to a stream."""
    with ExitStack() as held:
        streams = control_streams(hit.process, gateway_socket(scene.target.sockets))
        streams += tcp_streams(hit.process, await _processes(scene, only=GATEWAY))
        for stream in streams:
            held.enter_context(stream)
        if not sum(map(harm, streams)):
            return None
        given_up = await scene.given_up(hit, scene.effect_s)
    if given_up is None:
        raise hit.no_effect("the worker is with its gateway as before")
    back = await scene.back(hit)
    return Seen(evidence=evidence, detected_at=given_up, back_at=back)


async def do_cut_kv(scene: Scene, hit: Hit) -> Seen | None:
    """Shut the worker's TCP streams with workers and stores of other hosts down, as soon as it has
    some. None: it had none until the load was over."""
    return await _break_kv(scene, hit, lambda stream: int(shut(stream)), "shut")


async def do_garble_kv(scene: Scene, hit: Hit) -> Seen | None:
    """Write garbage into them: whoever reads it ends the stream."""
    return await _break_kv(scene, hit, garble, "garbled")


async def _break_kv(
    scene: Scene, hit: Hit, harm: Callable[[socket.socket], int], what: str
) -> Seen | None:
    while not scene.over.is_set():
        with ExitStack() as held:
            streams = tcp_streams(hit.process, await _processes(scene, but=hit.victim.name))
            for stream in streams:
                held.enter_context(stream)
            if harmed := [stream for stream in streams if harm(stream)]:
                why = "its streams with other hosts are as before"
                await scene.effect(hit, partial(_some_are_over, harmed), why)
                return Seen(
                    evidence=f"{len(harmed)} streams with other hosts were {what}",
                    detected_at=await scene.given_up(hit, 0.0),
                    back_at=await scene.back(hit),
                )
        await scene.pause(POLL_S)
    return None


def _some_are_over(streams: Sequence[socket.socket]) -> bool:
    return any(map(is_over, streams))


async def _processes(
    scene: Scene, *, only: str | None = None, but: str | None = None
) -> Sequence[Process]:
    """Those of the cluster that this machine has: of one name, or of all others but the gateway."""
    lives = await scene.lives()
    names = [only] if only is not None else [one for one in lives if one not in (but, GATEWAY)]
    pids = [life.pid for name in names if (life := lives.get(name)) is not None]
    return [process for pid in pids if (process := process_of(pid or 0)) is not None]


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
