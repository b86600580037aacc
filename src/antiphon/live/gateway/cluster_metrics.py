"""What Prometheus may read of a cluster: each worker's counts, hand-overs, retries, queues."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.core.requests import RequestBook
from antiphon.types import (
    Admitted,
    Event,
    GrantAnswered,
    Member,
    Offer,
    Pulled,
    Rejected,
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


def _labels(model: str, member: Member) -> list[str]:
    return [model, member.info.id, member.info.role.value]


class ClusterCounters:
    """Hand-overs and failovers, counted as they pass the gateway."""

    def __init__(self) -> None:
        self.kv_bytes_per_token = 0
        self.retries = 0
        """Attempts beyond the first of requests that have ended."""
        self.local = 0
        """Requests that were sent whole to one worker though there were prefill workers."""
        self._offers = 0
        self._refusals = 0
        self._lost_leases = 0
        self._pulls = 0
        self._failed_pulls = 0
        self._pulled_tokens = 0
        self._recomputed_tokens = 0
        self._pull_s = 0.0

    def heard(self, fact: Event | Admitted | Rejected | GrantAnswered) -> None:
        """Count what a worker said. Tokens need not come here."""
        match fact:
            case Offer():
                self._offers += 1
            case Pulled():
                self._pulls += 1
                self._failed_pulls += fact.missing_tokens > 0
                self._pulled_tokens += fact.pulled_tokens
                self._recomputed_tokens += fact.missing_tokens
                self._pull_s += fact.seconds
            case Rejected():
                self._refusals += 1
            case GrantAnswered() if fact.refused is not None:
                self._lost_leases += 1
            case _:
                pass

    def families(self, model: str, book: RequestBook) -> Iterator[Metric]:
        """All of it, and the queues of `book`."""
        for name, text, value in (
            ("antiphon_offers", "Offers of computed prompts.", self._offers),
            ("antiphon_refused_grants", "Offers gone before they were taken.", self._lost_leases),
            ("antiphon_pulls", "Hand-overs that a worker went on with.", self._pulls),
            ("antiphon_failed_pulls", "Those that lacked some of their KV.", self._failed_pulls),
            ("antiphon_pulled_tokens", "Tokens whose KV was pulled.", self._pulled_tokens),
            (
                "antiphon_pulled_bytes",
                "Bytes of that KV.",
                self._pulled_tokens * self.kv_bytes_per_token,
            ),
            ("antiphon_pull_seconds", "Time that pulls took, in all.", self._pull_s),
            (
                "antiphon_recomputed_tokens",
                "Tokens to be pulled that had to be computed.",
                self._recomputed_tokens,
            ),
            ("antiphon_worker_refusals", "Requests that a worker did not take.", self._refusals),
            ("antiphon_retries", "Attempts beyond the first of ended requests.", self.retries),
            (
                "antiphon_local_prefills",
                "Requests served whole by one worker beside a prefill pool.",
                self.local,
            ),
            (
                "antiphon_late_events",
                "Worker events that came after their request's end.",
                sum(book.dropped.values()),
            ),
        ):
            counter = CounterMetricFamily(name, text, labels=("model_name",))
            counter.add_metric([model], value)
            yield counter
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
