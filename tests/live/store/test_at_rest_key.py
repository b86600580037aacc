"""The key of blocks at rest: its file, and a store that is started with it."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from store_callers import FakeGateway, FakeWorker, contents
from store_kit import RealStore, real_store

from antiphon.core.config import build
from antiphon.errors import ConfigError, PeerError
from antiphon.live.store.at_rest_key import read_at_rest_key
from antiphon.types import BlockKey, Tier

KEY = bytes(range(0, 256, 8))


def key_file(folder: Path, content: bytes, mode: int = 0o600, name: str = "kv.key") -> Path:
    file = folder / name
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    "content",
    [
        KEY.hex().encode(),
        KEY.hex().upper().encode() + b"\n",
        base64.b64encode(KEY) + b"\n",
        base64.b64encode(KEY).rstrip(b"="),
        base64.urlsafe_b64encode(KEY),
    ],
)
def test_hexadecimal_digits_and_base64(folder: Path, content: bytes) -> None:
    assert read_at_rest_key(key_file(folder, content)) == KEY


@pytest.mark.parametrize(
    "content",
    [
        b"",
        KEY.hex()[:-2].encode(),
        KEY.hex().encode() * 2,
        KEY,
        b"hunter2",
        base64.b64encode(KEY + b"!"),
        bytes(9000),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(folder: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"store\.at_rest_key_file .*kv\.key.*32 bytes") as raised:
        read_at_rest_key(key_file(folder, content))
    assert "hunter" not in str(raised.value)


def test_a_file_that_others_read_and_none_at_all_are_refused(folder: Path) -> None:
    file = key_file(folder, KEY.hex().encode(), 0o640)
    with pytest.raises(ConfigError, match=r"store\.at_rest_key_file.*chmod 600"):
        read_at_rest_key(file)
    with pytest.raises(ConfigError, match=r"store\.at_rest_key_file.*No such file.*make one"):
        read_at_rest_key(folder / "none")
    with pytest.raises(ConfigError, match=r"store\.at_rest_key_file"):
        read_at_rest_key(folder)


def test_a_key_that_seals_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"store\.at_rest_key_file = .*store\.disk_bytes"):
        build({"store": {"at_rest_key_file": "/k"}})
    for more in ({"disk_bytes": 2**20}, {"remote": "redis://h:1/0"}):
        assert build({"store": {"at_rest_key_file": "/k", **more}})


def with_key(folder: Path, file: Path | None) -> dict[str, Any]:
    named = {} if file is None else {"at_rest_key_file": str(file)}
    return {"disk_bytes": "64MiB", "dir": str(folder / "disk"), **named}


def shown(folder: Path, keys: Sequence[BlockKey]) -> int:
    """How many of these blocks whoever reads the files can read."""
    data = b"".join(file.read_bytes() for file in (folder / "disk").glob("*.kv"))
    return sum(block[:64] in data for block in contents(keys))


@pytest.mark.timeout(120)
async def test_a_store_is_warm_with_its_key_and_cold_with_any_other(folder: Path) -> None:
    """Processes: killed, started with the key, without it, with another one, and with it again."""
    ours = key_file(folder, KEY.hex().encode())
    theirs = key_file(folder, base64.b64encode(bytes(32)), name="other.key")
    async with (
        real_store(folder, **with_key(folder, ours)) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        keys = await worker.put_prompt(blocks=8)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
    assert shown(folder, keys) == 0
    for seed, file in enumerate((None, theirs), 1):
        async with (
            real_store(folder, **with_key(folder, file)) as store,
            FakeWorker(store.path) as worker,
            FakeGateway(store.path) as gateway,
        ):
            own = await worker.put_prompt(blocks=2, seed=seed)
            plain = 2 if file is None else 0
            await gateway.until(lambda own=own, of=gateway: of.on(Tier.DISK) == set(own))
            assert (await worker.locate(keys)).blocks == ()
            assert shown(folder, own) == plain
    async with (
        real_store(folder, **with_key(folder, ours)) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        assert await worker.fetch(keys) == contents(keys)


@pytest.mark.timeout(60)
async def test_a_store_does_not_start_with_a_key_that_it_can_not_use(folder: Path) -> None:
    file = key_file(folder, b"hunter2")
    store = RealStore(folder, {"memory_bytes": "1MiB", **with_key(folder, file)}, {})
    with pytest.raises(PeerError, match=r"store\.at_rest_key_file .*32 bytes"):
        await store.start()
    assert not (folder / "disk").exists()
