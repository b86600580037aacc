"""A whole drill in one call, from a program without an event loop."""

import asyncio
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
        say("Starting a cluster")
        async with started(arguments) as target:
            return await run_drill(target, plan, say=say)

    return asyncio.run(run())


def drill_server(plan: DrillPlan, url: str, say: Callable[[str], None]) -> DrillReport:
    """Put this user's server at `url` on this machine through `plan`.

    Raises `UsageError` if there is none, `PeerError` if it is not in order.
    """

    async def run() -> DrillReport:
        target = attached(url)
        await target.ready(_READY_S)
        return await run_drill(target, plan, say=say)

    return asyncio.run(run())
