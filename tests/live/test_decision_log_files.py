"""Each process of a server, and each of its lives, has a decision log of its own."""

import stat
from pathlib import Path

import pytest

from antiphon.errors import ConfigError
from antiphon.live.decision_log import log_path, opened_log


@pytest.mark.parametrize(
    ("named", "worker", "life", "path"),
    [
        ("logs/run.jsonl", None, 1, "logs/run.jsonl"),
        ("logs/run.jsonl", "mixed-0", 1, "logs/run.mixed-0.jsonl"),
        ("logs/run.jsonl", "mixed-0", 3, "logs/run.mixed-0.3.jsonl"),
        ("run", None, 2, "run.2"),
        ("run", "decode-1", 1, "run.decode-1"),
        ("/dev/null", None, 1, "/dev/null"),
    ],
)
def test_names(named: str, worker: str | None, life: int, path: str) -> None:
    assert log_path(named, worker, life) == Path(path)


def test_it_is_private_and_empty(tmp_path: Path) -> None:
    named = tmp_path / "run.jsonl"
    worker = tmp_path / "run.w.jsonl"
    worker.write_text("older")
    worker.chmod(0o644)
    with opened_log(str(named), "w") as log:
        assert log is not None
    assert worker.read_bytes() == b""
    assert stat.S_IMODE(worker.stat().st_mode) == 0o600
    assert not named.exists()
    with opened_log(None, "w") as log:
        assert log is None


def test_what_can_not_be_written_is_named(tmp_path: Path) -> None:
    named = tmp_path / "no" / "run.jsonl"
    with (
        pytest.raises(ConfigError, match=r'run\.w\.jsonl": can\'t be written'),
        opened_log(str(named), "w"),
    ):
        pass
