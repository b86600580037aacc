"""Puts one load on a server, shows how it goes, and keeps what comes of it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from antiphon import __version__
from antiphon.report import RunWriter, summarise
from antiphon.runs import LoadPlan, LoadTally, Measured, meets
from antiphon.types import CallRecord, LoadRun, Seconds
from antiphon.workload import number_text, plural

from .load import LoadResult, run_load
from .server import LoadLimits, Server
from .watcher import Watcher, shown

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What all runs of a command have in common.

    `stop` ends the run that is under way. `command` is what to type to do it all again.
    """

    server: Server
    limits: LoadLimits
    count_tokens: Callable[[str], int] | None
    watcher: Watcher
    stop: asyncio.Event
    command: str = ""

    async def measure(
        self, plan: LoadPlan, folder: Path | None, *, overwrite: bool = False, label: str = ""
    ) -> Measured:
        """Run `plan`; every call that ends is in `folder` at once. `label` begins what is shown.

        A run that was stopped has the calls that had ended by then. Raises `UsageError` for a
        folder that can't be taken.
        """
        run = self.begun(plan, now_utc())
        writer = None if folder is None else RunWriter(folder, run, overwrite=overwrite)
        try:
            records, result = await self._sent(plan, run, writer, label)
            run = _over(run, result)
            summary = summarise(run, records)
            if writer is not None and not result.is_stopped:
                writer.finish(run, summary)
        finally:
            if writer is not None:
                writer.close()
        return Measured(
            run=run, records=tuple(records), summary=summary, whole=not result.is_stopped
        )

    def begun(self, plan: LoadPlan, started_at: str) -> LoadRun:
        """The run as it is known when it begins."""
        server = self.server
        run = plan.begun(server.url, server.model, version=__version__, command=self.command)
        title = plan.title or f"{server.model or 'a model'} at {server.host}:{server.port}"
        return replace(run, title=title, started_at=started_at)

    async def _sent(
        self, plan: LoadPlan, run: LoadRun, writer: RunWriter | None, label: str
    ) -> tuple[list[CallRecord], LoadResult]:
        """Send it all, and show how it goes meanwhile."""
        tally = LoadTally(meets(run), duration_s=run.duration_s, warmup_s=run.warmup_s)
        records: list[CallRecord] = []

        def observe(record: CallRecord) -> None:
            records.append(record)
            tally.ended(record)
            if writer is not None:
                writer.add(record)

        async with shown(self.watcher, lambda: label + tally.line(time.monotonic())):
            result = await run_load(
                self.server,
                plan.sessions(),
                observe=observe,
                limits=self.limits,
                count_tokens=self.count_tokens,
                stop=self.stop,
                on_send=lambda at_s: tally.sent(at_s, time.monotonic()),
            )
        return records, result


@contextlib.asynccontextmanager
async def stopped_by_signals(
    stop: asyncio.Event, watcher: Watcher
) -> AsyncIterator[list[signal.Signals]]:
    """Ctrl-C and SIGTERM set `stop` meanwhile, and are in the list from then on.

    The second one ends the process as it does elsewhere.
    """
    loop = asyncio.get_running_loop()
    came: list[signal.Signals] = []

    def release() -> None:
        for one in _STOPPING:
            loop.remove_signal_handler(one)

    def interrupt(one: signal.Signals) -> None:
        release()
        came.append(one)
        stop.set()
        again = "Ctrl-C" if one is signal.SIGINT else one.name
        watcher.log(f"Stopping: what has ended is kept. {again} again to drop it.")

    for one in _STOPPING:
        loop.add_signal_handler(one, interrupt, one)
    try:
        yield came
    finally:
        release()


def _over(run: LoadRun, result: LoadResult) -> LoadRun:
    """The run as it is known at its end: an interrupted one was shorter than planned."""
    if not result.is_stopped:
        return ended(run, result)
    lasted_s: Seconds = min(run.duration_s, result.duration_s)
    note = (
        f"Interrupted after {result.duration_s:.1f} of {number_text(run.duration_s)} s: "
        f"left out: {plural(result.unfinished, 'call')} that had not ended or begun."
    )
    return ended(replace(run, duration_s=lasted_s, notes=(*run.notes, note)), result)


def ended(run: LoadRun, result: LoadResult) -> LoadRun:
    """The run as it is known at its end."""
    return replace(
        run,
        lateness_p99_s=result.lateness_p99_s,
        client_busy=result.client_busy,
        notes=(*run.notes, *result.notes),
    )


def now_utc() -> str:
    """For `LoadRun.started_at`."""
    return datetime.now(UTC).isoformat(timespec="seconds")
