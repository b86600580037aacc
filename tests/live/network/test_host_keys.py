"""Keys are made once, are nobody else's, and are refused when they do not fit."""

import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from network_kit import keys_of, make_keys

from antiphon.errors import UsageError
from antiphon.live.network import host_in, may_speak_for, read_host_keys
from antiphon.live.network.authority import AUTHORITY, add_host, open_authority
from antiphon.types import WorkerId

GATEWAY = ("box1.host.antiphon", "gateway.antiphon")
OTHER = ("box2.host.antiphon",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys = tmp_path / "keys"
    make_keys(keys, "box1", "box2")
    return keys


def files_of(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_host_has_what_it_needs_and_no_more(folder: Path) -> None:
    names = {file.name for file in (folder / "box2").iterdir()}
    assert names == {"authority.pem", "host.pem", "host.key"}
    one, two = keys_of(folder, "box1"), keys_of(folder, "box2")
    assert [(one.host, one.gateway), (two.host, two.gateway)] == [("box1", True), ("box2", False)]
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_nothing_is_written_again(folder: Path) -> None:
    before = files_of(folder)
    authority, new = open_authority(folder)
    assert not new
    with pytest.raises(UsageError, match="is there already"):
        add_host(folder, authority, "box2", gateway=True, days=1)
    assert files_of(folder) == before


def test_a_host_that_comes_later_is_of_the_same_cluster(folder: Path) -> None:
    make_keys(folder, "box3")
    authorities = {(folder / host / "authority.pem").read_bytes() for host in ("box1", "box3")}
    assert len(authorities) == 1
    assert not keys_of(folder, "box3").gateway


@pytest.mark.parametrize("name", ["Box", "a_b", "a.b", "", "-a", "x" * 33, AUTHORITY, "../up"])
def test_no_host_is_called_so(folder: Path, name: str) -> None:
    authority, _ = open_authority(folder)
    before = files_of(folder.parent)
    with pytest.raises(UsageError, match="name has lower-case"):
        add_host(folder, authority, name, gateway=False, days=1)
    assert files_of(folder.parent) == before


def test_a_folder_that_others_can_enter_holds_no_keys(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match="others can enter"):
        open_authority(tmp_path)
    assert not files_of(tmp_path)


def broken(own: Path, what: str) -> None:
    match what:
        case "missing":
            (own / "host.key").unlink()
        case "readable":
            (own / "host.key").chmod(0o640)
        case "another's key":
            shutil.copy(own.parent / "box1/host.key", own / "host.key")
        case "another authority":
            other = own.parent.parent / "other"
            make_keys(other, "box2")
            shutil.copy(other / "box2/authority.pem", own / "authority.pem")
        case "no certificate":
            (own / "host.pem").write_text("hello")
        case "an authority's":
            shutil.copy(own / "authority.pem", own / "host.pem")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "is not there"),
        ("readable", "others can read this secret"),
        ("another's key", "is not the key of host.pem"),
        ("another authority", "not by the authority"),
        ("no certificate", "holds no certificate"),
        ("an authority's", "is not the key of host.pem"),
    ],
)
def test_keys_that_do_not_fit_are_refused(folder: Path, what: str, says: str) -> None:
    broken(folder / "box2", what)
    with pytest.raises(UsageError, match=says):
        keys_of(folder, "box2")


def test_keys_are_in_force_for_their_time_and_from_a_day_before(folder: Path) -> None:
    own, now = folder / "box2", datetime.now(UTC)
    read_host_keys(own, now - timedelta(hours=23))
    read_host_keys(own, now + timedelta(days=364))
    with pytest.raises(UsageError, match="has expired"):
        read_host_keys(own, now + timedelta(days=366))
    with pytest.raises(UsageError, match="is this machine's date right"):
        read_host_keys(own, now - timedelta(days=2))


@pytest.mark.parametrize(
    ("names", "worker", "may"),
    [
        (OTHER, "box2.decode-0", True),
        (OTHER, "box1.decode-0", False),
        (OTHER, "box22.decode-0", False),
        (OTHER, "decode-0", False),
        (GATEWAY, "decode-0", True),
        (GATEWAY, "box2.decode-0", False),
        (("gateway.antiphon",), "decode-0", False),
        ((), "decode-0", False),
        ((*OTHER, "box1.host.antiphon"), "box2.decode-0", False),
    ],
)
def test_a_host_speaks_for_its_own_workers_alone(
    names: tuple[str, ...], worker: str, may: bool
) -> None:
    assert may_speak_for(names, WorkerId(worker)) is may


def test_a_name_that_is_no_hosts_is_of_none() -> None:
    assert host_in(["box2.host.antiphon.evil", "gateway.antiphon"]) is None
    assert host_in(["a.b.host.antiphon"]) is None
