"""The end of a worker's KV waits for what is copied, and everything else goes on meanwhile."""

import asyncio
import threading
from pathlib import Path

from pull_kit import KV

from antiphon.core.config import build
from antiphon.live.kv_listeners import KvListeners
from antiphon.live.shared_kv import SharedKv
from antiphon.store.transfer import OwnedRegion

LONG_S = 10.0


async def test_to_wait_for_a_copy_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    kv = SharedKv(
        OwnedRegion(KV),
        KvListeners(),
        lambda: (_ for _ in ()).throw(AssertionError),
        config=build({"store": {"enabled": False}}),
        folder=tmp_path,
    )
    ended = threading.Event()
    copies = [threads.submit(ended.wait, LONG_S) for threads in (kv._copying, kv._reading)]
    closing = asyncio.create_task(kv.close())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not closing.done()
    ended.set()
    await closing
    assert all(copy.result() for copy in copies), "the loop went on before they were late"
