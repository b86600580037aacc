"""What Prometheus may read of a cluster: each worker's counts, hand-overs, retries, queues."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.core.requests import RequestBook
from antiphon.types import (
    Admitted,
    Event,
    Fetched,
    GrantAnswered,
    Member,
    Offer,
    Pulled,
    Rejected,
    Role,
    WorkerId,
    WorkerInfo,
    WorkerView,
)

_WORKER_LABELS = ("model_name", "worker", "role")


def _used(view: WorkerView) -> float:
    return view.held_pages / view.total_pages if view.total_pages else 0.0


_GAUGES: tuple[tuple[str, str, Callable[[WorkerView], float]], ...] = (
    ("vllm:num_requests_running", "Requests that run now.", lambda view: view.running),
    ("vllm:num_requests_waiting", "Requests that wait.", lambda view: view.waiting),
    ("vllm:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.", _used),
    (
        "antiphon_waiting_tokens",
        "Prompt tokens that are still to be computed.",
        lambda view: view.waiting_tokens,
    ),
    (
        "antiphon_pulling_requests",
        "Requests whose KV is on its way to the worker.",
        lambda view: view.pulling,
    ),
    ("antiphon_offered_pages", "Pages kept for other workers.", lambda view: view.offered_pages),
    ("antiphon_worker_leases", "Offers that the worker keeps.", lambda view: view.leases),
    (
        "antiphon_worker_store_connected",
        "1 if it can ask the store.",
        lambda view: view.store_sessions,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[WorkerView], float]], ...] = (
    (
        "vllm:prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda view: view.prefix_queried_tokens_total,
    ),
    (
        "vllm:prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda view: view.prefix_hit_tokens_total,
    ),
    (
        "vllm:num_preemptions",
        "Sequences that gave their memory back.",
        lambda view: view.preemptions_total,
    ),
    ("antiphon_steps", "Forward passes.", lambda view: view.steps_total),
    ("antiphon_busy_seconds", "Time in forward passes.", lambda view: view.busy_s_total),
    ("antiphon_put_blocks", "Blocks offered to the store.", lambda view: view.put_blocks_total),
    (
        "antiphon_put_dropped_blocks",
        "Blocks not offered: the store was not there, or did not read.",
        lambda view: view.put_dropped_blocks_total,
    ),
    (
        "antiphon_fetch_missed_blocks",
        "Blocks that were to come from the store and did not.",
        lambda view: view.fetch_missed_blocks_total,
    ),
)


def worker_families(model: str, members: Sequence[Member]) -> Iterator[Metric]:
    """One sample a worker. A restarted worker's counters begin at 0, as Prometheus expects."""
    seen = [(_labels(model, member), member.view) for member in members]
    for name, text, read in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=_WORKER_LABELS)
        for labels, view in seen:
            gauge.add_metric(labels, read(view))
        yield gauge
    for name, text, read in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=_WORKER_LABELS)
        for labels, view in seen:
            counter.add_metric(labels, read(view))
        yield counter
    health = GaugeMetricFamily(
        "antiphon_worker_health",
        "1 for each worker that has joined, under its present health.",
        labels=(*_WORKER_LABELS, "health"),
    )
    for member in members:
        health.add_metric([*_labels(model, member), member.health.value], 1)
    yield health
    yield _expert_tokens(model, members)


def pace_family(model: str, members: Sequence[Member], paces: Mapping[WorkerId, float]) -> Metric:
    """What steps take over what routers expect of them: far from 1, and the profile is of another
    machine, or of a quieter one."""
    gauge = GaugeMetricFamily(
        "antiphon_worker_pace",
        "Time of steps over what the router's step times say.",
        labels=_WORKER_LABELS,
    )
    for member in members:
        if (pace := paces.get(member.info.id)) is not None:
            gauge.add_metric(_labels(model, member), pace)
    return gauge


def _expert_tokens(model: str, members: Sequence[Member]) -> Metric:
    """By layer and expert, or by expert alone if the worker has told sums over layers."""
    counter = CounterMetricFamily(
        "antiphon_expert_tokens",
        "Tokens that a routed expert has computed.",
        labels=(*_WORKER_LABELS, "layer", "expert"),
    )
    for member in members:
        said = member.view.expert_tokens
        if said is None:
            continue
        layers = [str(layer) for layer in said.layers] or ["all"]
        places = [(layer, str(expert)) for layer in layers for expert in range(said.experts)]
        for place, total in zip(places, said.totals, strict=True):
            counter.add_metric([*_labels(model, member), *place], total)
    return counter


def _labels(model: str, member: Member) -> list[str]:
    return [model, member.info.id, member.info.role.value]


class _Tally:
    """One worker's part in hand-overs and fetches, under the role that it had."""

    def __init__(self) -> None:
        self.offers = 0
        self.refused_grants = 0
        self.pulls = 0
        self.failed_pulls = 0
        self.pulled_tokens = 0
        self.pulled_bytes = 0
        self.recomputed_tokens = 0
        self.pull_s = 0.0
        self.fetches = 0
        self.failed_fetches = 0
        self.fetched_tokens = 0
        self.wanted_tokens = 0
        self.fetch_s = 0.0
        self.refusals = 0


_TALLIES: tuple[tuple[str, str, Callable[[_Tally], float]], ...] = (
    ("antiphon_offers", "Prompts that the worker computed and offered.", lambda one: one.offers),
    (
        "antiphon_refused_grants",
        "Offers of the worker's that were gone before they were taken.",
        lambda one: one.refused_grants,
    ),
    ("antiphon_pulls", "Hand-overs that the worker went on with.", lambda one: one.pulls),
    (
        "antiphon_failed_pulls",
        "Those that lacked some of their KV.",
        lambda one: one.failed_pulls,
    ),
    ("antiphon_pulled_tokens", "Tokens whose KV it pulled.", lambda one: one.pulled_tokens),
    ("antiphon_pulled_bytes", "Bytes of the pages that it pulled.", lambda one: one.pulled_bytes),
    ("antiphon_pull_seconds", "Time that its pulls took, in all.", lambda one: one.pull_s),
    (
        "antiphon_recomputed_tokens",
        "Tokens to be pulled or fetched that it had to compute.",
        lambda one: one.recomputed_tokens,
    ),
    (
        "vllm:external_prefix_cache_queries",
        "Tokens that it was to fetch from the store.",
        lambda one: one.wanted_tokens,
    ),
    (
        "vllm:external_prefix_cache_hits",
        "Tokens that it fetched from the store.",
        lambda one: one.fetched_tokens,
    ),
    ("antiphon_fetches", "Fetches from the store.", lambda one: one.fetches),
    (
        "antiphon_failed_fetches",
        "Those that lacked some of their KV.",
        lambda one: one.failed_fetches,
    ),
    ("antiphon_fetch_seconds", "Time that its fetches took, in all.", lambda one: one.fetch_s),
    ("antiphon_worker_refusals", "Requests that it did not take.", lambda one: one.refusals),
)


class LocalReason(StrEnum):
    """Why a request's prompt is computed where it is decoded though that is not the plan."""

    CHOSEN = "chosen"
    """There is a prefill pool: the router's rule, or a mixed worker that was better."""
    NO_PREFILL_WORKER = "no_prefill_worker"
    """A worker meant for decoding does it: nobody of the prefill pool is there."""
    NO_DECODE_WORKER = "no_decode_worker"
    """A worker meant for prefill goes on with it: nobody else is there."""


class ClusterCounters:
    """Hand-overs and failovers, counted as they pass the gateway.

    Counts of workers stay when those are lost: they are as many as names and roles were seen.
    """

    def __init__(self) -> None:
        self.kv_bytes_per_token = 0
        self.retries = 0
        """Attempts beyond the first of requests that have ended, whoever ran them."""
        self._tallies: dict[tuple[WorkerId, Role], _Tally] = {}
        self._local: Counter[tuple[WorkerId, Role, LocalReason]] = Counter()

    def whole(self, worker: WorkerInfo, *, splits: bool) -> None:
        """A request goes whole to this worker; `splits`: there are workers for prefill."""
        if worker.role is Role.PREFILL:
            reason = LocalReason.NO_DECODE_WORKER
        elif splits:
            reason = LocalReason.CHOSEN
        elif worker.role is Role.DECODE:
            reason = LocalReason.NO_PREFILL_WORKER
        else:
            return
        self._local[worker.id, worker.role, reason] += 1

    def heard(self, worker: WorkerInfo, fact: Event | Admitted | Rejected | GrantAnswered) -> None:
        """Count what a worker said. Tokens need not come here."""
        match fact:
            case Offer():
                self._of(worker).offers += 1
            case Pulled():
                tally = self._of(worker)
                tally.pulls += 1
                tally.failed_pulls += fact.missing_tokens > 0
                tally.pulled_tokens += fact.pulled_tokens
                tally.pulled_bytes += fact.moved_bytes
                tally.recomputed_tokens += fact.missing_tokens
                tally.pull_s += fact.seconds
            case Fetched():
                tally = self._of(worker)
                tally.fetches += 1
                tally.failed_fetches += fact.missing_tokens > 0
                tally.fetched_tokens += fact.fetched_tokens
                tally.wanted_tokens += fact.fetched_tokens + fact.missing_tokens
                tally.recomputed_tokens += fact.missing_tokens
                tally.fetch_s += fact.seconds
            case Rejected():
                self._of(worker).refusals += 1
            case GrantAnswered() if fact.refused is not None:
                self._of(worker).refused_grants += 1
            case _:
                pass

    def families(self, model: str, book: RequestBook) -> Iterator[Metric]:
        """All of it, and the queues of `book`."""
        yield from self._of_workers(model)
        retries = CounterMetricFamily(
            "antiphon_retries",
            "Attempts beyond the first of ended requests.",
            labels=("model_name",),
        )
        retries.add_metric([model], self.retries)
        yield retries
        late = CounterMetricFamily(
            "antiphon_late_events",
            "Worker events that could not be used, by why.",
            labels=("model_name", "reason"),
        )
        for why, count in book.dropped.items():
            late.add_metric([model, why.value], count)
        yield late
        held = GaugeMetricFamily(
            "antiphon_held_requests",
            "Requests that no worker has, by what they wait for.",
            labels=("model_name", "stage"),
        )
        for stage, count in zip(("route", "decode"), book.held, strict=True):
            held.add_metric([model, stage], count)
        yield held
        leases = GaugeMetricFamily(
            "antiphon_leases", "Offers that are kept alive.", labels=("model_name",)
        )
        leases.add_metric([model], book.offers)
        yield leases

    def _of(self, worker: WorkerInfo) -> _Tally:
        return self._tallies.setdefault((worker.id, worker.role), _Tally())

    def _of_workers(self, model: str) -> Iterator[Metric]:
        tallies = sorted(self._tallies.items(), key=lambda item: item[0])
        fetched_bytes = (
            "antiphon_fetched_bytes",
            "Bytes of the KV that it fetched from the store.",
            lambda one: one.fetched_tokens * self.kv_bytes_per_token,
        )
        for name, text, read in (*_TALLIES, fetched_bytes):
            counter = CounterMetricFamily(name, text, labels=_WORKER_LABELS)
            for (worker, role), tally in tallies:
                counter.add_metric([model, worker, role.value], read(tally))
            yield counter
        local = CounterMetricFamily(
            "antiphon_local_prefills",
            "Requests that one worker served whole beside a split of roles, by why.",
            labels=(*_WORKER_LABELS, "reason"),
        )
        for (worker, role, reason), count in sorted(self._local.items()):
            local.add_metric([model, worker, role.value, reason.value], count)
        yield local
