"""`antiphon store`: which store it is that runs."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.live import store_process
from antiphon.live.network.authority import add_host, open_authority
from antiphon.types import Config

FILE = """
[store_pool]
level = "entropy-2"
profile = "of-the-file.kvprofile"

[hosts.box1]
gateway = true
addresses = ["10.0.0.1"]
decode = 1
store_port = 7420

[hosts.box2]
addresses = ["10.0.0.2"]
prefill = 1
store_port = 7421
"""


@pytest.mark.parametrize("keys_in_file", [False, True], ids=["--keys", "network.keys"])
def test_of_a_file_about_several_hosts_it_is_the_one_of_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_in_file: bool
) -> None:
    authority, _ = open_authority(tmp_path / "keys")
    for host in ("box1", "box2"):
        add_host(tmp_path / "keys", authority, host, gateway=host == "box1", days=3)
    got: list[Config] = []

    def run(config: Config, path: Path, **_: Any) -> None:
        got.append(config)

    monkeypatch.setattr(store_process, "run_store", run)
    file, own = tmp_path / "cluster.toml", tmp_path / "keys" / "box2"
    file.write_text(f'[network]\nkeys = "{own}"\n{FILE}' if keys_in_file else FILE)
    (tmp_path / "s").mkdir(mode=0o700)
    command = ["store", "--config", str(file), "--socket-dir", str(tmp_path / "s")]
    command += [] if keys_in_file else ["--pool-level", "adaptive", "--kv-profile", "given"]
    result = CliRunner().invoke(app, [*command, *([] if keys_in_file else ["--keys", str(own)])])
    assert result.exit_code == 0, result.output
    [config] = got
    assert config.store_pool.listen == "10.0.0.2:7421"
    assert config.store_pool.peers == ("box1@10.0.0.1:7420",)
    assert config.network.addresses == ("10.0.0.2",)
    level, profile = config.store_pool.level, config.store_pool.profile
    of_the_file = ("entropy-2", "of-the-file.kvprofile")
    assert (level, profile) == (of_the_file if keys_in_file else ("adaptive", "given"))


def test_a_level_without_its_profile_is_refused_with_the_remedy(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["store", "--socket-dir", str(tmp_path), "--pool-level", "entropy-1"]
    )
    assert result.exit_code == 2
    assert "--kv-profile" in result.output
    assert "`antiphon kv profile MODEL -o FILE` makes one" in result.output


def test_a_profile_that_is_none_is_refused_by_its_option(tmp_path: Path) -> None:
    place = ["--pool-name", "a", "--pool-listen", "127.0.0.1:7421", "--pool-level", "adaptive"]
    result = CliRunner().invoke(
        app,
        ["store", "--socket-dir", str(tmp_path / "s"), *place, "--kv-profile", str(tmp_path)],
    )
    assert result.exit_code == 2
    assert f"store_pool.profile (--kv-profile) = {tmp_path}: is a folder" in result.output
