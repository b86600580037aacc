"""A plant whose planner is scripted."""

from collections.abc import AsyncIterator

import pytest
from live_plant import LivePlant, Scripted, config


@pytest.fixture
async def plant() -> AsyncIterator[LivePlant]:
    """One prefill and one decode worker, at most four, and a planner that is scripted."""
    made = LivePlant(config(), Scripted())
    yield made
    await made.close()
