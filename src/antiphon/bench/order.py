"""An order to measure a server: one run, or a search of several, and what is kept of it."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from antiphon.core.goodput import ScaleRules, SearchRules, after_warmup
from antiphon.errors import PeerError, UsageError
from antiphon.report import SavedSearch, check_folder, take_folder
from antiphon.runs import LoadPlan, Measured
from antiphon.types import CallRecord, Seconds
from antiphon.workload import Ask, number_text, plural

from .probe import probe
from .search_runner import SearchRunner, Stopped
from .sender import Sender, stopped_by_signals
from .server import LoadLimits, Server
from .watcher import Watcher

_TRIAL_S = 60.0
"""The trial call may take no longer, whatever the others may."""
_PATIENCE_S = 2.0
"""A trial call that takes longer is mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do. `aim`: a search by these rules, or None for one run of `plan`.

    In a search `plan.warmup_s` is that of each of its runs. `folder`: where it is kept (None:
    nowhere). `command` is what to type to do it again.
    """

    server: Server
    limits: LoadLimits
    count_tokens: Callable[[str], int] | None
    plan: LoadPlan
    aim: SearchRules | ScaleRules | None
    folder: Path | None = None
    overwrite: bool = False
    command: str = ""


class Audience(Protocol):
    """Who is told what came of it."""

    def tell_run(self, measured: Measured) -> None:
        """A run is over."""
        ...

    def tell_search(self, search: SavedSearch) -> None:
        """A search is over."""
        ...


class Ending(StrEnum):
    """How an order ended."""

    MEASURED = "measured"
    INTERRUPTED = "interrupted"
    """By Ctrl-C; what had come by then was told."""
    TERMINATED = "terminated"
    """The same, by SIGTERM."""


async def carry_out(order: Order, audience: Audience, watcher: Watcher) -> Ending:
    """Do it, and tell `audience` at the end; `watcher` hears how it goes.

    Raises `UsageError` if nothing would be sent, or the folder can't be taken; `PeerError` if the
    server is not there, does not speak the API, or fails every call after the warm-up, or if there
    is none after it (that is told before).
    """
    trial = _first_ask(order.plan)
    if order.folder is not None:
        check_folder(order.folder, overwrite=order.overwrite)
    for note in order.plan.notes:
        watcher.log(note)
    watcher.say(f"asking {order.server.url} for one answer")
    async with _telling(watcher, "Trying one call…", after_s=_PATIENCE_S):
        timeout_s = min(order.limits.timeout_s, _TRIAL_S)
        probed = await probe(order.server, ask=trial, timeout_s=timeout_s)
    sender = Sender(
        server=probed.server,
        limits=order.limits,
        count_tokens=order.count_tokens,
        watcher=watcher,
        stop=asyncio.Event(),
        command=order.command,
    )
    plan = replace(order.plan, notes=(*order.plan.notes, *probed.notes))
    async with stopped_by_signals(sender.stop, watcher) as came:
        if order.aim is None:
            ending = await _one_run(replace(order, plan=plan), sender, audience)
        else:
            runner = SearchRunner(plan, order.aim, sender, order.folder)
            ending = await _search(order, runner, audience)
    by_sigterm = ending is Ending.INTERRUPTED and signal.SIGTERM in came
    return Ending.TERMINATED if by_sigterm else ending


@contextlib.asynccontextmanager
async def _telling(watcher: Watcher, line: str, *, after_s: Seconds) -> AsyncIterator[None]:
    """Say so once, if what is done meanwhile takes longer than that."""
    timer = asyncio.get_running_loop().call_later(after_s, watcher.log, line)
    try:
        yield
    finally:
        timer.cancel()


def _first_ask(plan: LoadPlan) -> Ask:
    for timed in plan.sessions():
        return timed.session.turns[0].ask
    raise UsageError(
        f"no request is due within {number_text(plan.duration_s)} s: make the load longer, or its "
        "rate higher"
    )


async def _one_run(order: Order, sender: Sender, audience: Audience) -> Ending:
    measured = await sender.measure(order.plan, order.folder, overwrite=order.overwrite)
    audience.tell_run(measured)
    if not measured.whole:
        return Ending.INTERRUPTED
    judged = after_warmup(measured.records, measured.run.warmup_s)
    if not judged:
        raise PeerError(
            f"no call was due after the warm-up of {number_text(measured.run.warmup_s)} s, so "
            "nothing can be judged: send more, or count them all (--warmup 0%)"
        )
    if all(record.error is not None for record in judged):
        raise PeerError(_nothing_served(judged))
    return Ending.MEASURED


def _nothing_served(records: Sequence[CallRecord]) -> str:
    """The commonest error, with what was said of it first."""
    kinds = Counter(record.error for record in records)
    kind = max(kinds, key=lambda one: (kinds[one], str(one)))
    said = next(record.message for record in records if record.error is kind)
    every = plural(len(records), "request")
    return f"all {every} failed, {kinds[kind]} of them as {kind}: {said or kind}"


async def _search(order: Order, runner: SearchRunner, audience: Audience) -> Ending:
    """What was found is told, however the search ends."""
    if order.folder is not None:
        take_folder(order.folder, overwrite=order.overwrite)
    try:
        await runner.run()
    except Stopped:
        return Ending.INTERRUPTED
    finally:
        if runner.runs:
            audience.tell_search(runner.found())
    return Ending.MEASURED
