"""Servers are found while they live, and not a moment longer."""

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


def test_a_killed_server_is_not_found_and_what_it_left_goes(runtime: Path) -> None:
    script = (
        "import os, signal\n"
        "from antiphon.live.local_servers import registered\n"
        "with registered(None) as entry:\n"
        "    entry.publish('http://x')\n"
        "    (entry.sockets / 'gateway.sock').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=60)
    assert len(list(runtime.iterdir())) == 2
    assert running_servers() == ()
    assert list(runtime.iterdir()) == []


def test_a_configured_folder_of_sockets_stays(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with registered(str(folder)) as entry:
        entry.publish("http://x")
        assert running_servers()[0].sockets == str(folder)
    assert folder.is_dir()


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
