"""A whole drill in one call, from a program without an event loop."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from .drill import run_drill
from .local_target import attached, started
from .plan import DrillPlan
from .report import DrillReport

_READY_S = 30.0


def drill_cluster(
    plan: DrillPlan, arguments: Sequence[str], say: Callable[[str], None]
) -> DrillReport:
    """Put a cluster of its own (`antiphon serve ARGUMENTS`) through `plan`. Raises `PeerError`."""

    async def run() -> DrillReport:
        _obey_sigterm()
        say("Starting a cluster")
        async with started(arguments) as target:
            return await run_drill(target, plan, say=say)

    return asyncio.run(run())


def drill_server(
    plan: DrillPlan, url: str, say: Callable[[str], None], api_key: str | None = None
) -> DrillReport:
    """Put this user's server at `url` on this machine through `plan`.

    Raises `UsageError` if there is none, `PeerError` if it is not in order.
    """

    async def run() -> DrillReport:
        _obey_sigterm()
        target = attached(url, api_key=api_key)
        await target.ready(_READY_S)
        return await run_drill(target, plan, say=say, api_key=api_key)

    return asyncio.run(run())


def _obey_sigterm() -> None:
    """SIGTERM ends a drill as Ctrl-C does: whoever is stopped goes on, and nothing is left."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
