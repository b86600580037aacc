"""A store's place in a pool that another one has."""

import time
from pathlib import Path

import pytest
from pool_kit import free_ports, pool_table

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.store.pool import opened_pool as module
from antiphon.live.store.pool.opened_pool import opened_pool
from antiphon.live.store.pool.pool_dial import pool_socket


@pytest.mark.usefixtures("folder")
async def test_a_place_that_another_store_has_is_named_with_the_settings() -> None:
    [port] = free_ports(1)
    one, other = (build({"store_pool": pool_table(name, port, [])}) for name in ("a", "b"))
    first = opened_pool(one, clock=time.monotonic)
    assert first is not None
    told = (
        rf"^store_pool\.listen \(--pool-listen, or store_port .*\) = 127\.0\.0\.1:{port}: .*"
        r"another process listens there: choose another port$"
    )
    try:
        with pytest.raises(UsageError, match=told):
            opened_pool(other, clock=time.monotonic)
    finally:
        await first.port.close()
    again = opened_pool(other, clock=time.monotonic)
    assert again is not None
    await again.port.close()


async def test_another_port_is_no_remedy_where_the_port_is_not_what_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = folder / ("deep" * 20)
    far.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(far))
    [port] = free_ports(1)
    config = build({"store_pool": pool_table("a", port, [])})
    with pytest.raises(UsageError, match=r"^store_pool\.listen .*107 bytes; shorten the folder$"):
        opened_pool(config, clock=time.monotonic)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    (folder / "antiphon" / "pool").mkdir(mode=0o755, parents=True)
    (folder / "antiphon").chmod(0o700)
    with pytest.raises(UsageError, match=r"others can enter it; (?!.*another port)"):
        opened_pool(config, clock=time.monotonic)


@pytest.mark.usefixtures("folder")
async def test_who_can_call_nobody_listens_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(keys: None) -> None:
        raise UsageError("keys: can't be used")

    monkeypatch.setattr(module, "dial_by", unusable)
    [port] = free_ports(1)
    with pytest.raises(UsageError, match="can't be used"):
        opened_pool(build({"store_pool": pool_table("a", port, [])}), clock=time.monotonic)
    assert not pool_socket(port).exists()
