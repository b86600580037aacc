"""What the parts of one disk tier share."""

import threading
from collections import Counter
from dataclasses import dataclass, field

from antiphon.store.record import KvOrigin
from antiphon.store.record.record_seal import RecordSeal

from .block_index import BlockIndex
from .disk_calls import DiskCalls
from .private_folder import PrivateFolder


@dataclass(slots=True)
class DiskState:
    """`lock` guards `index` and `counts`, which many threads use; it is never held over I/O."""

    folder: PrivateFolder
    calls: DiskCalls
    origin: KvOrigin
    seal: RecordSeal | None = None
    """Records are sealed with it; None: they are plain. `origin` says so, too."""
    index: BlockIndex = field(default_factory=BlockIndex)
    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, times: int = 1) -> None:
        """It happened so many times more. Takes the lock."""
        with self.lock:
            self.counts[what] += times
