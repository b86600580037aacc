"""Servers are found while they live, and not a moment longer."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.live.local_servers import LocalServer, registered, running_servers, runtime_folder


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "antiphon"


def test_a_server_is_found_while_it_is_registered(runtime: Path) -> None:
    assert running_servers() == ()
    with registered(None) as entry:
        assert running_servers() == ()
        entry.publish("http://127.0.0.1:1")
        sockets = entry.sockets
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        server = LocalServer(pid=os.getpid(), url="http://127.0.0.1:1", sockets=str(sockets))
        assert running_servers() == (server,)
        with registered(None) as other:
            other.publish("http://127.0.0.1:2")
            assert len(running_servers()) == 2
    assert running_servers() == ()
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("published", [True, False])
def test_a_killed_server_is_not_found_and_what_it_left_goes(runtime: Path, published: bool) -> None:
    """Also one that was killed while it started."""
    script = (
        "import os, signal\n"
        "from antiphon.live.local_servers import registered\n"
        "with registered(None) as entry:\n"
        f"    if {published}: entry.publish('http://x')\n"
        "    (entry.sockets / 'gateway.sock').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=60)
    [left] = runtime.iterdir()
    assert (left / "gateway.sock").exists()
    with registered(None) as entry:
        assert list(runtime.iterdir()) == [entry.sockets]
    assert running_servers() == ()
    assert list(runtime.iterdir()) == []


def test_one_that_starts_is_not_found_and_nothing_of_it_is_cleared_away(runtime: Path) -> None:
    with registered(None) as entry:
        assert running_servers() == ()
        assert entry.sockets.is_dir()
        entry.publish("http://x")
        assert len(running_servers()) == 1


def test_what_was_cleared_away_before_it_was_locked_is_made_anew(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may look as soon as the folder is there."""
    made: list[Path] = []
    mkdir = Path.mkdir

    def and_looked_at(folder: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        mkdir(folder, mode, exist_ok=exist_ok)
        if folder != runtime:
            made.append(folder)
            if len(made) == 1:
                assert running_servers(runtime) == ()

    monkeypatch.setattr(Path, "mkdir", and_looked_at)
    with registered(None) as entry:
        assert not made[0].exists()
        assert entry.sockets == made[1]
        assert entry.sockets.is_dir()


def test_a_folder_that_cannot_be_made_is_named(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_folder()

    def full(folder: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        if folder != runtime:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(UsageError, match=r"socket folder .*: No space left"), registered(None):
        pass
    assert list(runtime.iterdir()) == []


def test_what_is_none_of_ours_stays(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    (runtime / "notes").mkdir()
    (runtime / "1-00000000").touch()
    with registered(None):
        pass
    assert sorted(path.name for path in runtime.iterdir()) == ["1-00000000", "notes"]


def test_an_entry_that_cannot_be_read_is_named(runtime: Path) -> None:
    with registered(None) as entry:
        (entry.sockets / "server.json").write_text("{")
        with pytest.raises(UsageError, match=r"server\.json: can't be read .*: remove it"):
            running_servers()


def test_a_configured_folder_of_sockets_stays(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with registered(str(folder)) as entry:
        entry.publish("http://x")
        assert running_servers()[0].sockets == str(folder)
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_can_enter_is_refused(runtime: Path) -> None:
    runtime.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="chmod 700"):
        runtime_folder()


def test_without_a_runtime_folder_of_the_session_there_is_one_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert runtime_folder() == tmp_path / f"antiphon-{os.getuid()}"
