"""A killed drill's folder goes with the next drill, and a running one's stays."""

import os
import subprocess
import sys
from pathlib import Path

from antiphon.drill.own_folder import own_folder

HOLDS = """
import sys, pathlib
from antiphon.drill.own_folder import own_folder
with own_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "server.log").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "store").mkdir()
        with own_folder(tmp_path) as other:
            assert other != folder
            assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_drill_left_is_removed_by_the_next(tmp_path: Path) -> None:
    stranger, link = tmp_path / "antiphon-drills", tmp_path / "antiphon-drill-link"
    stranger.mkdir()
    link.symlink_to(stranger)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    with own_folder(tmp_path):
        assert (left / "server.log").exists()
    process.kill()
    process.communicate()
    assert left.exists()
    with own_folder(tmp_path):
        assert not left.exists()
    assert stranger.exists()
    assert link.is_symlink()
