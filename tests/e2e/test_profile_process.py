"""`antiphon profile` as a process."""

from pathlib import Path

from e2e_process import run

from antiphon.perf import read_profile


def test_a_tiny_model_is_profiled(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    done = run("profile", str(tiny), "--budget", "4s", "--kv-memory", "16MiB", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert f"Profile: {path}" in done.stdout
    assert "held out" in done.stdout
    assert read_profile(path).engine.model == "tiny"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tiny.json"]
