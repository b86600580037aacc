"""What the options about the KV store mean for the configuration, and how it is shown."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.cli.status import as_table
from antiphon.live import serve as serve_module
from antiphon.types import Config, StoreConfig


def served(monkeypatch: pytest.MonkeyPatch, *options: str) -> StoreConfig:
    """The store of the configuration that `antiphon serve` with these options runs."""
    got: list[Config] = []

    def run(config: Config, **_: Any) -> int:
        got.append(config)
        return 0

    monkeypatch.setattr(serve_module, "serve", run)
    result = CliRunner().invoke(app, ["serve", *options])
    assert result.exit_code == 0, result.output
    return got[0].store


def test_a_store_is_on_unless_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch) == StoreConfig()
    assert served(monkeypatch, "--store", "on") == StoreConfig()
    assert served(monkeypatch, "--store", "off") == StoreConfig(enabled=False)


def test_a_socket_names_a_store_that_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/run/kv/store.sock"
    assert served(monkeypatch, "--store", path) == StoreConfig(socket=path)


def test_sizes_and_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--store-memory", "2GiB", "--store-disk", "10GiB", "--store-dir", "/kv")
    assert served(monkeypatch, *options) == StoreConfig(
        memory_bytes=2 * 2**30, disk_bytes=10 * 2**30, dir="/kv"
    )


@pytest.mark.parametrize(
    ("command", "option", "value", "key"),
    [
        ("serve", "--store-memory", "1kB", "store.memory_bytes"),
        ("serve", "--store-disk", "-1", "store.disk_bytes"),
        ("serve", "--store", " ", "store.socket"),
        ("store", "--store-memory", "much", "store.memory_bytes"),
        ("store", "--store-dir", "", "store.dir"),
        ("store", "--store-key-file", "/key", "store.at_rest_key_file"),
    ],
)
def test_what_can_not_be_is_named(command: str, option: str, value: str, key: str) -> None:
    result = CliRunner().invoke(app, [command, option, value])
    assert result.exit_code == 2
    assert key in result.output


def test_status_has_a_line_for_the_store() -> None:
    status: dict[str, Any] = {
        **{"model": "tiny", "version": "0", "state": "ready"},
        **{"gateway_pid": 7, "open_requests": 0, "workers": []},
    }
    assert "store" not in as_table(status)
    store: dict[str, Any] = {"health": "waiting", "pid": None, "life": 2}
    store |= {"problem": "killed by SIGKILL", "socket": None, "tiers": []}
    shown = as_table({**status, "store": store}).splitlines()[-1]
    assert shown == "store: waiting (pid –, lives 2, last problem: killed by SIGKILL)"
    store |= {"health": "ready", "pid": 7, "life": None, "problem": "", "socket": "/kv/store.sock"}
    host = {"tier": "host", "blocks": 3, "used_bytes": 2**20, "limit_bytes": 2**30}
    remote = {"tier": "remote", "blocks": 1200, "used_bytes": 0, "limit_bytes": 0}
    shown = as_table({**status, "store": {**store, "tiers": [host, remote]}}).splitlines()[-1]
    assert shown == (
        "store at /kv/store.sock: ready (pid 7); host: 1.0 MiB of 1.0 GiB; remote: 1,200 blocks"
    )


@pytest.mark.parametrize("store", ["off", "/run/kv/store.sock"])
@pytest.mark.parametrize(
    "option", ["--store-memory", "--store-disk", "--store-dir", "--store-key-file"]
)
def test_options_of_a_store_that_is_not_run_are_refused(store: str, option: str) -> None:
    result = CliRunner().invoke(app, ["serve", "--store", store, option, "2GiB"])
    assert result.exit_code == 2
    assert f"{option} has no effect with --store {store}" in result.output


def test_a_store_of_more_memory_than_there_is_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("antiphon.host.available_bytes", lambda: 2 * 2**30)
    options = ["store", "--socket-dir", str(tmp_path / "s"), "--store-memory", "3GiB"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert "store.memory_bytes = 3GiB is more than this machine" in result.output
    assert not (tmp_path / "s").exists()
