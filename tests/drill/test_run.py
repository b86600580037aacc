import asyncio
import os
import signal

import pytest

from antiphon.drill.report import DrillReport
from antiphon.drill.run import _run  # pyright: ignore[reportPrivateUsage]
from antiphon.errors import PeerError


def test_sigterm_ends_a_drill_and_what_it_must_undo_is_undone() -> None:
    undone: list[bool] = []

    async def drill() -> DrillReport:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            undone.append(True)
        raise AssertionError

    with pytest.raises(PeerError, match="SIGTERM"):
        _run(drill())
    assert undone
