"""Faults of a process: killed, stopped, let go on, slowed down."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf, isfinite

from antiphon.core.faults import GATEWAY, Slow, Stall
from antiphon.drill.lives import Life
from antiphon.drill.process_fault import (
    cpu_seconds,
    is_dead,
    is_stopped,
    kill,
    resume,
    stop,
)
from antiphon.types import Seconds

from .scene import BACK_S, Hit, Scene, Seen, Standing

_BEAT_S: Seconds = 0.1
"""A slowed process runs and stands still once in that time."""
_LEAST_STILL = 0.8
"""Of the share of time that it was to stand still: with less it was not slowed down."""


async def do_kill(scene: Scene, hit: Hit) -> Seen | None:
    """SIGKILL; the supervisor starts it anew. None: it was gone already."""
    if not kill(hit.process):
        return None
    await scene.effect(hit, lambda: is_dead(hit.process))
    detected = await _given_up(scene, hit, BACK_S)
    back = await scene.until(hit.victim.name, _is_back(hit), BACK_S)
    return Seen(
        evidence="the process is gone",
        detected_at=detected,
        back_at=back,
        breaks_until=_end_of_broken_streams(hit, back),
    )


async def do_stop(scene: Scene, hit: Hit, action: Stall) -> Seen | None:
    """SIGSTOP, and SIGCONT when its time is over, or a resume comes; noticed or not.

    Without an end of its own it lasts until the load is over. None: it was gone already.
    """
    if not stop(hit.process):
        return None
    standing = scene.standing[hit.victim.name] = Standing(endless=not isfinite(action.for_s))
    try:
        await scene.effect(hit, lambda: is_stopped(hit.process))
        detected = await _stands(scene, hit, action.for_s, standing)
        stood_s = time.monotonic() - hit.at
    finally:
        del scene.standing[hit.victim.name]
        resume(hit.process)
    back = await scene.until(hit.victim.name, lambda life: life.there, BACK_S)
    if detected is None:
        # Given up in the moment in which it went on: it shows by its new life.
        detected = await _given_up(scene, hit, 0.0)
    evidence = f"the process stood still for {stood_s:.2f} s"
    return Seen(evidence=evidence, detected_at=detected, back_at=back)


async def _stands(scene: Scene, hit: Hit, for_s: Seconds, standing: Standing) -> Seconds | None:
    """Until it is to go on; when it was given up meanwhile."""
    watching = asyncio.create_task(_given_up(scene, hit, inf))
    try:
        with suppress(TimeoutError):
            left_s = hit.at + for_s - time.monotonic()
            await asyncio.wait_for(standing.goes_on.wait(), left_s if isfinite(left_s) else None)
        return watching.result() if watching.done() else None
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def do_resume(scene: Scene, hit: Hit) -> Seen | None:
    """End a stop early. None: nobody stands still."""
    standing = scene.standing.get(hit.victim.name)
    if standing is None or not is_stopped(hit.process):
        return None
    standing.goes_on.set()
    await scene.effect(hit, lambda: not is_stopped(hit.process))
    back = await scene.until(hit.victim.name, lambda life: life.there, BACK_S)
    return Seen(evidence="the process goes on", back_at=back)


async def do_slow(scene: Scene, hit: Hit, action: Slow) -> Seen | None:
    """Stopped for most of each tenth of a second, so that it gets a share of its time."""
    began, began_cpu_s = time.monotonic(), cpu_seconds(hit.process)
    still_s, beats = 0.0, 0
    if began_cpu_s is None:
        return None
    try:
        while (now := time.monotonic()) - began < action.for_s:
            if not stop(hit.process):
                raise hit.no_effect("the process ended")
            await scene.effect(hit, lambda: is_stopped(hit.process))
            await scene.pause(now + _BEAT_S * (1 - 1 / action.factor) - time.monotonic())
            resume(hit.process)
            still_s, beats = still_s + time.monotonic() - now, beats + 1
            await scene.pause(_BEAT_S / action.factor)
    finally:
        resume(hit.process)
    wall_s, ended_cpu_s = time.monotonic() - began, cpu_seconds(hit.process)
    if still_s < _LEAST_STILL * wall_s * (1 - 1 / action.factor):
        raise hit.no_effect(f"it stood still for {still_s:.2f} of {wall_s:.2f} s")
    back = await scene.until(hit.victim.name, lambda life: life.there, BACK_S)
    used = "" if ended_cpu_s is None else f", and computed for {ended_cpu_s - began_cpu_s:.2f} s"
    return Seen(
        evidence=f"it stood still for {still_s:.2f} of {wall_s:.2f} s, in {beats} pieces{used}",
        detected_at=await _given_up(scene, hit, 0.0),
        back_at=back,
    )


async def _given_up(scene: Scene, hit: Hit, timeout_s: Seconds) -> Seconds | None:
    """When the gateway had given the worker up. Gateway and store are nobody's to give up."""
    if hit.victim.role == hit.victim.name:
        return None
    return await scene.until(
        hit.victim.name, lambda life: life.lost or life.life != hit.victim.life, timeout_s
    )


def _is_back(hit: Hit) -> Callable[[Life], bool]:
    def true(life: Life) -> bool:
        return life.there and life.life not in (None, hit.victim.life)

    return true


def _end_of_broken_streams(hit: Hit, back: Seconds | None) -> Seconds | None:
    """The streams that the gateway itself has to clients end with it."""
    if hit.victim.name != GATEWAY:
        return None
    return time.monotonic() if back is None else back
