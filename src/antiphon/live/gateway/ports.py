"""What a gateway needs of its process."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.recorder import Entry
from antiphon.live.kv_journal import KvNews
from antiphon.live.worker_link import WorkerLink
from antiphon.types import (
    KvReplay,
    Rejected,
    Request,
    RequestRecord,
    Seconds,
    WorkerInfo,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What is done with decisions, records and news; none of these may raise.

    `clock` is monotonic. `log_decision` gets every decision of the book, `heard_request` each
    request that comes, `log_request` the record of each that is over. `on_lost` gets each link that
    was given up. `heard_kv` gets what workers say of their KV, and returns what they are to say
    again.
    """

    clock: Callable[[], Seconds]
    draw_seed: Callable[[], int] = lambda: secrets.randbits(63)
    log_decision: Callable[[Entry], None] | None = None
    heard_request: Callable[[Request], None] = lambda request: None
    log_request: Callable[[RequestRecord, Rejected | None], None] = lambda record, rejected: None
    on_lost: Callable[[WorkerLink, str], None] = lambda link, reason: None
    heard_kv: Callable[[WorkerInfo, KvNews], KvReplay | None] = lambda worker, news: None
