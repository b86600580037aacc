"""`antiphon cluster` as a person meets it."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.adapters import nixl_agent
from antiphon.cli.app import app

NIXL = 'kv_transport = "nixl"\nencrypt_kv = false'
FILE = """
[hosts.box1]
gateway = true
addresses = ["10.0.0.1"]
prefill = 1

[hosts.box2]
addresses = ["10.0.0.2"]
decode = 2
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="antiphon")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    return path


def test_keys_for_a_file_and_for_hosts_that_come_later(tmp_path: Path, file: Path) -> None:
    keys = tmp_path / "keys"
    first = run("cluster", "keys", str(keys), "--config", str(file))
    assert first.exit_code == 0, first.output
    assert "a new authority" in first.output
    assert {one.name for one in keys.iterdir()} == {"authority", "box1", "box2"}
    later = run("cluster", "keys", str(keys), "--host", "box3")
    assert later.exit_code == 0, later.output
    assert "authority;" not in later.output
    shown = run("cluster", "check", str(file), "--keys", str(keys), "--json")
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.output)["hosts"]
    assert [(row["host"], row["gateway"], row["workers"]) for row in rows] == [
        ("box1", True, ["prefill-0"]),
        ("box2", False, ["decode-0", "decode-1"]),
    ]
    assert all(363 <= row["days_left"] <= 365 for row in rows)
    assert "keys in force for" in run("cluster", "check", str(file), "--keys", str(keys)).output
    one = run("cluster", "check", str(file), "--keys", str(keys / "box2"), "--json")
    assert [row["days_left"] is None for row in json.loads(one.output)["hosts"]] == [True, False]


@pytest.mark.parametrize(
    ("network", "installed", "says", "told"),
    [
        ("", True, "tcp, encrypted", ["tcp", True, None]),
        ("encrypt_kv = false", True, "tcp, not encrypted", ["tcp", False, None]),
        (NIXL, True, "NIXL is installed here", ["nixl", False, True]),
        (NIXL, False, "NIXL is not here: pip install 'antiphon[nixl]'", ["nixl", False, False]),
    ],
)
def test_a_check_says_what_brings_kv_and_whether_it_is_here(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    network: str,
    installed: bool,
    says: str,
    told: list[object],
) -> None:
    monkeypatch.setattr(nixl_agent, "is_installed", lambda: installed)
    file.write_text(f"{FILE}\n[network]\n{network}\n")
    shown = run("cluster", "check", str(file))
    assert (shown.exit_code, shown.stderr) == (0, "")
    [line] = [one for one in shown.stdout.splitlines() if one.startswith("KV between hosts: ")]
    assert says in line
    kv = json.loads(run("cluster", "check", str(file), "--json").stdout)["kv"]
    assert [kv["transport"], kv["encrypted"], kv["nixl_here"]] == told


def test_one_host_that_can_not_have_keys_and_none_gets_any(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    refused = run("cluster", "keys", str(keys), "--host", "box1", "--host", "Box_2")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert not keys.exists()


def test_there_must_be_somebody_who_is_to_have_keys(tmp_path: Path, file: Path) -> None:
    assert run("cluster", "keys", str(tmp_path / "keys")).exit_code == 2
    assert run("cluster", "keys", str(tmp_path / "keys"), "--config", str(file)).exit_code == 0
    again = run("cluster", "keys", str(tmp_path / "keys"), "--config", str(file))
    assert (again.exit_code, "have keys" in again.output) == (0, True)


def test_a_check_says_what_is_wrong(tmp_path: Path, file: Path) -> None:
    keys = tmp_path / "keys"
    assert run("cluster", "keys", str(keys), "--host", "box1", "--host", "box2").exit_code == 0
    no_gateway = run("cluster", "check", str(file), "--keys", str(keys))
    assert no_gateway.exit_code == 2
    assert "--gateway box1" in no_gateway.stderr
    file.write_text(FILE.replace("decode = 2", "decod = 2"))
    misspelt = run("cluster", "check", str(file))
    assert (misspelt.exit_code, misspelt.stderr.count("\n")) == (2, 1)
    assert "did you mean decode?" in misspelt.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--keys FOLDER is missing"),
        (("--keys", "nowhere"), "is not there: make keys"),
    ],
)
def test_a_worker_needs_its_keys(arguments: tuple[str, ...], says: str) -> None:
    refused = run("worker", *arguments, "--join", "10.0.0.1", "--address", "10.0.0.2")
    assert refused.exit_code == 2
    assert says in refused.stderr


def test_a_worker_is_not_on_the_gateways_host(tmp_path: Path, file: Path) -> None:
    keys = tmp_path / "keys"
    run("cluster", "keys", str(keys), "--config", str(file))
    refused = run("worker", str(file), "--keys", str(keys / "box1"))
    assert (refused.exit_code, "run `antiphon serve` here" in refused.stderr) == (2, True)
    served = run("serve", str(file), "--keys", str(keys / "box2"))
    assert (served.exit_code, "no gateway's host" in served.stderr) == (2, True)


def test_a_file_with_hosts_needs_keys_where_hosts_are_reached_and_only_there(file: Path) -> None:
    shown = run("config", "show", "--config", str(file), "--json")
    assert shown.exit_code == 0, shown.output
    assert "keys" not in json.loads(shown.output)["network"]
    for command in ("serve", "worker"):
        refused = run(command, str(file))
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert "--keys FOLDER is missing" in refused.stderr
        assert "network.addresses" not in refused.stderr
    assert "--keys keys/box1" in run("serve", str(file)).stderr


def test_what_is_no_cluster_file_is_named_once(tmp_path: Path, file: Path) -> None:
    for content in ("[", None):
        bad = tmp_path / "bad.toml"
        bad.unlink(missing_ok=True)
        if content is not None:
            bad.write_text(content)
        refused = run("cluster", "check", str(bad))
        assert (refused.exit_code, refused.stderr.count("bad.toml")) == (2, 1)
    file.write_text(FILE.replace("[hosts.box2]", "[host.box2]"))
    assert "did you mean [hosts]?" in run("cluster", "check", str(file)).stderr
    assert "name a folder" in run("cluster", "keys", str(file), "--host", "a").stderr


def test_no_second_authority_and_no_second_gateway(tmp_path: Path, file: Path) -> None:
    keys = tmp_path / "keys"
    assert run("cluster", "keys", str(keys), "--config", str(file)).exit_code == 0
    second = run("cluster", "keys", str(keys), "--gateway", "box7")
    assert (second.exit_code, "the gateway's keys" in second.stderr) == (2, True)
    both = run("cluster", "keys", str(tmp_path / "n"), "--gateway", "box7", "--config", str(file))
    assert (both.exit_code, (tmp_path / "n").exists()) == (2, False)
    (keys / "authority").rename(tmp_path / "away")
    strange = run("cluster", "keys", str(keys), "--host", "box9")
    assert (strange.exit_code, "but no authority" in strange.stderr) == (2, True)
    assert {one.name for one in keys.iterdir()} == {"box1", "box2"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--store", "on"], "--pool-listen HOST:PORT"),
        (["--store-memory", "64MiB"], "a place in the cluster's pool of stores"),
        (["--store", "off", "--store-memory", "64MiB"], "no effect with --store off"),
        (["--pool-listen", "nowhere:0"], "store_pool.listen"),
        (["--pool-listen", "10.0.0.2:7420", "--peer", "box1"], "store_pool.peers"),
    ],
)
def test_a_workers_store_needs_a_place_in_the_pool(
    tmp_path: Path, options: list[str], says: str
) -> None:
    keys = tmp_path / "keys"
    assert run("cluster", "keys", str(keys), "--gateway", "box1", "--host", "box2").exit_code == 0
    whose = ("--keys", str(keys / "box2"), "--address", "10.0.0.2")
    done = run("worker", "m.gguf", "--join", "10.0.0.1:7400", *whose, "--decode", "1", *options)
    assert done.exit_code == 2
    assert says in done.stderr


def test_an_address_without_answer_is_named_once_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound, and not listening: refused
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        file, keys = tmp_path / "cluster.toml", tmp_path / "keys"
        here = FILE.replace("10.0.0.", "127.0.0.")
        file.write_text(here.replace("gateway = true", f"gateway = true\nport = {port}"))
        assert run("cluster", "keys", str(keys), "--config", str(file)).exit_code == 0
        done = run("cluster", "check", str(file), "--keys", str(keys), "--dial")
    assert done.exit_code == 1, done.output
    [line] = [line for line in done.stdout.splitlines() if line.startswith("  gateway at ")]
    assert line == (
        f"  gateway at 127.0.0.1:{port}: nothing listens there: start Antiphon on that host, or "
        f"correct the port in the file"
    )
    assert "Errno" not in done.output


def test_who_is_called_asks_for_a_certificate(file: Path) -> None:
    done = run("cluster", "check", str(file), "--dial")
    assert done.exit_code == 2
    assert "--keys FOLDER" in done.stderr
