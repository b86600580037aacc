"""A run on record: how its machines were built, and whether they would decide the same again.

live:    scheduler, book ──► `recorded` ──► entries    `Setup` ──► head of the log
later:   Setup ──► fresh machines, entries ──► `recorder.replay` ──► differences
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from antiphon.core.config import as_mapping, build
from antiphon.core.handover import LEASES
from antiphon.core.requests import BOOK, RequestBook
from antiphon.core.scheduler import SCHEDULER, Scheduler
from antiphon.errors import ConfigError
from antiphon.types import Config, ModelInfo, WorkerId

from .recorder import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that decisions depend on beside the calls. `program` is the version that decided."""

    program: str
    config: Config
    pages: int
    model: ModelInfo
    max_model_len: int
    worker: WorkerId


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun:
    """What a record holds. `entries` can be read once."""

    setup: Setup
    entries: Iterator[Entry]


def fresh_machines(setup: Setup) -> Mapping[str, object]:
    """The machines as they were before the first call.

    Raises `ConfigError` for a setup that no run can have had: records may come from anywhere.
    """
    build(as_mapping(setup.config))
    kv = setup.config.kv
    if setup.pages * kv.page_tokens * setup.model.kv_bytes_per_token > kv.memory_bytes:
        raise ConfigError(f"{setup.pages} pages are more than kv.memory_bytes has room for")
    scheduler = Scheduler(
        config=setup.config.scheduler,
        kv=setup.config.kv,
        pages=setup.pages,
        model=setup.model,
        max_model_len=setup.max_model_len,
        lease_ttl_s=setup.config.cluster.lease_ttl_s,
    )
    return {
        SCHEDULER: scheduler,
        LEASES: scheduler.leases,
        BOOK: RequestBook(setup.worker),
    }
