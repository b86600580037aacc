"""A run on record: how its machines were built, and whether they would decide the same again.

live:    scheduler, book ──► `recorded` ──► entries    `Setup` ──► head of the log
later:   Setup ──► fresh machines, entries ──► `recorder.replay` ──► differences
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from antiphon.core.config import as_mapping, build
from antiphon.core.costs import FetchTime, PhaseTime, TransferTime
from antiphon.core.handover import LEASES
from antiphon.core.kv import entry_pages
from antiphon.core.planner import PLANNER, planner_of
from antiphon.core.requests import BOOK, SoleWorker, book_of
from antiphon.core.router import ROUTER, Router, RouterLimits
from antiphon.core.scheduler import SCHEDULER, Scheduler
from antiphon.errors import ConfigError
from antiphon.types import Config, ModelInfo, WorkerId

from .recorder import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that decisions depend on beside the calls. `program` is the version that decided.

    The log of one process with everything in it names its `worker`. In that of a cluster's gateway
    it is None, and `pages` 0: the book has a router, and there is no scheduler.
    """

    program: str
    config: Config
    pages: int
    model: ModelInfo
    max_model_len: int
    worker: WorkerId | None
    times: str = ""
    """What the router expects of steps and transfers, as `perf` writes it; empty: the defaults."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a router is told of the devices."""

    phases: PhaseTime
    transfers: TransferTime
    fetches: FetchTime


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun:
    """What a record holds. `entries` can be read once."""

    setup: Setup
    entries: Iterator[Entry]


def router_of(config: Config, model: ModelInfo, times: Times) -> Router:
    """The router of a cluster, built alike in a gateway and in a replay."""
    return Router(
        config.router,
        times=times.phases,
        transfer=times.transfers,
        fetch=times.fetches,
        kv_bytes_per_token=model.kv_bytes_per_token,
        limits=RouterLimits(
            step_tokens=config.scheduler.max_batched_tokens,
            max_sequences=config.scheduler.max_num_seqs,
            prefix_cache=config.kv.prefix_cache,
            usable_share=1 - config.scheduler.reserve_fraction,
        ),
    )


def fresh_machines(setup: Setup, times: Times | None = None) -> Mapping[str, object]:
    """The machines as they were before the first call; those of a cluster need `times`.

    Raises `ConfigError` for a setup that no run can have had: records may come from anywhere.
    """
    build(as_mapping(setup.config))
    if setup.worker is None:
        if times is None:
            raise ConfigError("the record of a cluster needs the times that its router expects")
        router = router_of(setup.config, setup.model, times)
        machines: dict[str, object] = {
            BOOK: book_of(setup.config.router, router),
            ROUTER: router,
        }
        if setup.config.planner.mode != "off":
            per_token = setup.model.kv_bytes_per_token
            machines[PLANNER] = planner_of(setup.config, times.phases, per_token)
        return machines
    kv = setup.config.kv
    entries = setup.pages // entry_pages(setup.model.kv_groups)
    if entries * kv.page_tokens * setup.model.kv_bytes_per_token > kv.memory_bytes:
        raise ConfigError(f"{setup.pages} pages are more than kv.memory_bytes has room for")
    scheduler = Scheduler(
        config=setup.config.scheduler,
        kv=setup.config.kv,
        pages=setup.pages,
        model=setup.model,
        max_model_len=setup.max_model_len,
        lease_ttl_s=setup.config.cluster.lease_ttl_s,
    )
    book = book_of(setup.config.router, SoleWorker(setup.worker))
    return {SCHEDULER: scheduler, LEASES: scheduler.leases, BOOK: book}
