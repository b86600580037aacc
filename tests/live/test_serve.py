"""What `antiphon serve` refuses before it starts anything."""

import os
import socket
from pathlib import Path

import pytest

from antiphon.core.config import build
from antiphon.errors import ConfigError, UsageError
from antiphon.live.serve import check_memory, serve
from antiphon.live.socket_folder import check_store_socket, store_socket
from antiphon.types import StoreConfig

GIB = 2**30


def nothing(line: str) -> None:
    raise AssertionError(f"a server that can't be started said {line}")


def test_a_cluster_that_does_not_fit_is_refused_before_a_process_starts() -> None:
    config = build(
        {
            "cluster": {"prefill": 1, "decode": 2},
            "kv": {"memory_bytes": "32TiB"},
            "store": {"enabled": False},
        }
    )
    with pytest.raises(ConfigError, match=r"32TiB is for each of 3 workers, in all 96TiB"):
        serve(config, say=nothing, log=nothing, announce=nothing)


def test_the_whole_counts_and_the_remedy_fits() -> None:
    tables = {
        "cluster": {"prefill": 1, "decode": 1},
        "kv": {"memory_bytes": "2GiB"},
        "store": {"enabled": False},
    }
    check_memory(build(tables), 4 * GIB)
    with pytest.raises(ConfigError, match=r"only 4\.0GiB free.*\(--kv-memory\) to 2047MiB"):
        check_memory(build(tables), 4 * GIB - 1)
    check_memory(build({**tables, "kv": {"memory_bytes": "2047MiB"}}), 4 * GIB - 1)


def test_a_worker_alone_takes_memory_as_it_fills_and_looks_itself() -> None:
    check_memory(build({"kv": {"memory_bytes": "2GiB"}, "store": {"enabled": False}}), GIB)


def test_the_store_counts_where_there_is_one() -> None:
    tables = {"kv": {"memory_bytes": "2GiB"}, "store": {"memory_bytes": "1GiB"}}
    check_memory(build(tables), 3 * GIB)
    with pytest.raises(ConfigError, match=r"beside store.memory_bytes = 1GiB.*--store off"):
        check_memory(build(tables), 3 * GIB - 1)
    for other in ({"enabled": False}, {"socket": "/run/kv/store.sock"}):
        check_memory(build({**tables, "store": {**tables["store"], **other}}), 2 * GIB)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain", r"is a file, not a socket: name the store\.sock of an `antiphon store`"),
        ("folder", "is a folder, not a socket"),
        ("plain/store.sock", "Not a directory"),
        ("x" * 100, "longer than the 107 bytes"),
    ],
)
def test_what_can_be_no_store_is_refused_before_a_process_starts(
    name: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "folder").mkdir()
    config = build({"store": {"socket": str(tmp_path / name)}})
    with pytest.raises(UsageError, match=rf"store\.socket \(--store\) /.*{said}"):
        serve(config, say=nothing, log=nothing, announce=nothing)


def test_a_store_may_be_there_or_come_later_and_be_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = StoreConfig(socket="./store.sock")
    check_store_socket(named)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(tmp_path / "store.sock"))
        check_store_socket(named)
    assert store_socket(Path("/elsewhere"), named) == tmp_path / "store.sock"


def test_where_no_store_is_named_there_is_nothing_to_check() -> None:
    check_store_socket(StoreConfig(enabled=False, socket="/"))
    check_store_socket(StoreConfig())
