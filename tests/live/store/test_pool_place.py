"""A store's place in a pool that another one has."""

import time

import pytest
from pool_kit import free_ports, pool_table

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.store.pool.opened_pool import opened_pool


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
