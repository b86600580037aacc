"""A worker's KV memory, taken from the system while the worker starts, and while it serves."""

import os
import threading
from concurrent.futures import Future

from antiphon.errors import UsageError
from antiphon.store.transfer import OwnedRegion

_LEAST_PRIORITY = 19


class KvCommit:
    """Takes it, on a thread of its own, from the first page on, which is used first too.

    It costs 0.6 s a GiB of what nobody else wants to compute with, and nobody waits for it: pages
    that are wanted before are taken then. `done` ends with a `UsageError` if memory runs out.
    """

    def __init__(self, region: OwnedRegion) -> None:
        """Begins. Raises `UsageError`: no thread is left."""
        self.done: Future[None] = Future()
        self._region = region
        self._stop = threading.Event()
        thread = threading.Thread(target=self._run, name="kv-commit", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise UsageError(
                f"KV memory can't be taken, {error}: raise the limit of threads (ulimit -u, "
                "pids.max)"
            ) from None

    def stop(self) -> None:
        """Nobody will write to it any more."""
        self._stop.set()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LEAST_PRIORITY)
        try:
            self._region.back_all(self._stop.is_set)
        except UsageError as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(None)
