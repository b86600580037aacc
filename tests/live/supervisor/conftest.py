"""The supervisors of a test, none of which outlives it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from supervision import Supervised, alive


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Starts one with a script for each child that has one; nothing may be left afterwards."""
    running: list[Supervised] = []

    def start(scripts: dict[str, str] | None = None, **tables: dict[str, object]) -> Supervised:
        for name, script in (scripts or {}).items():
            (tmp_path / f"{name}.script").write_text(script)
        running.append(Supervised(tmp_path, **tables))
        return running[-1]

    yield start
    for supervised in running:
        if supervised.process.poll() is None:
            supervised.process.kill()
            supervised.process.wait()
        supervised.until(lambda s=supervised: not any(map(alive, s.pids())))
