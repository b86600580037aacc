"""Waiting for a moment, to a fraction of a millisecond."""

import asyncio
import time

from antiphon.types import Seconds

_SPIN_S: Seconds = 0.001
"""Timers of event loops are no better than this. The rest is waited for with open eyes."""


async def wait_until(at: Seconds) -> None:
    """Return at this point of the monotonic clock, never before it; others run at least once."""
    await asyncio.sleep(max(0.0, at - time.monotonic() - _SPIN_S))
    while time.monotonic() < at:
        await asyncio.sleep(0)
