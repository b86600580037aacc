"""How a child's module is run: by name, and without searches for cycles until it is loaded."""

import os
import time
from pathlib import Path

import pytest

from antiphon.core.config import as_mapping, build
from antiphon.live.supervisor.child_process import ChildProcess, command_of
from antiphon.live.supervisor.messages import Launch, Say


async def started(module: str, sockets: Path, written: list[str]) -> ChildProcess:
    """A child that runs the module; what it writes comes to the list."""
    return await ChildProcess.start(
        command_of(module, "mixed-0"),
        Launch(name="mixed-0", config=as_mapping(build({})), sockets=str(sockets)),
        written.append,
        time.monotonic,
    )


async def test_searches_for_cycles_begin_when_all_is_loaded_and_leave_that_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(Path(__file__).parent), os.environ["PYTHONPATH"]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    written: list[str] = []
    child = await started("says_how_it_runs", tmp_path, written)
    said = [message async for message in child.messages()]
    assert await child.ended() == 0, written
    while_loading, afterwards, made_later, loaded_before = False, True, True, False
    expected = (while_loading, afterwards, made_later, loaded_before, ["mixed-0"])
    assert said == [Say(" ".join(map(str, expected)))]
    assert not written


async def test_a_module_that_does_not_exist_says_so(tmp_path: Path) -> None:
    written: list[str] = []
    child = await started("antiphon.no_such_module", tmp_path, written)
    assert [message async for message in child.messages()] == []
    assert await child.ended() == 1
    assert "antiphon.no_such_module" in written[-1]
