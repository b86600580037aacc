"""A whole drill in one call, from a program without an event loop."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence

from antiphon.errors import PeerError

from .drill import run_drill
from .local_target import attached, started
from .plan import DrillPlan
from .report import DrillReport

_READY_S = 30.0
_STORE_DISK = "1GiB"
"""What the store of a drill's own cluster may keep on disk, if the plan is about that."""


def drill_cluster(
    plan: DrillPlan, arguments: Sequence[str], say: Callable[[str], None]
) -> DrillReport:
    """Put a cluster of its own (`antiphon serve ARGUMENTS`) through `plan`. Raises `PeerError`."""

    async def run() -> DrillReport:
        say("Starting a cluster")
        async with started(
            arguments, store_disk=_STORE_DISK if plan.needs_disk else None
        ) as target:
            return await run_drill(target, plan, say=say)

    return _run(run())


def drill_server(
    plan: DrillPlan, url: str, say: Callable[[str], None], api_key: str | None = None
) -> DrillReport:
    """Put this user's server at `url` on this machine through `plan`.

    Raises `UsageError` if there is none, `PeerError` if it is not in order.
    """

    async def run() -> DrillReport:
        target = attached(url, api_key=api_key)
        await target.ready(_READY_S)
        return await run_drill(target, plan, say=say, api_key=api_key)

    return _run(run())


def _run(drill: Coroutine[None, None, DrillReport]) -> DrillReport:
    """SIGTERM ends a drill as Ctrl-C does: whoever is stopped goes on, and nothing is left.

    Raises `PeerError` then.
    """

    async def run() -> DrillReport:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await drill

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise PeerError("the drill was ended by SIGTERM") from None
