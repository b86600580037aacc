"""The page on the client's numbers names all that it can come to."""

from pathlib import Path

from antiphon.bench import LoadLimits, load_guard
from antiphon.bench.probe import DROPPED
from antiphon.types import CallError

PAGE = (Path(__file__).parents[2] / "docs/reference/load-client.md").read_text()


def test_every_error_has_its_row() -> None:
    rows = {line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")}
    assert rows == {error.value for error in CallError}


def test_every_field_that_may_be_refused_is_named() -> None:
    assert all(f"`{name}`" in PAGE for name in DROPPED)


def test_limits_are_as_stated() -> None:
    limits = LoadLimits()
    assert f"{limits.max_event_bytes // 2**20} MiB an event" in PAGE
    assert f"{limits.max_answer_bytes // 2**20} MiB an answer" in PAGE
    assert f"above {load_guard.LATE_S * 1e3:.0f} ms" in PAGE
    assert f"above {load_guard.BUSY * 100:.0f} %" in PAGE
