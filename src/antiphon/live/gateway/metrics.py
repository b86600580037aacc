"""What Prometheus may read of a gateway and its workers.

Names are vLLM's where the meaning is the same, so that dashboards keep working; what is our own is
called `antiphon_…`. Counting costs an addition: the Prometheus objects are made when somebody asks
(a custom collector), never per token.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from antiphon.core.requests import RequestBook
from antiphon.types import (
    FinishReason,
    ModelInfo,
    Outcome,
    Rejected,
    RequestRecord,
    Seconds,
    WorkerId,
)

from .cluster_metrics import ClusterCounters, pace_family, worker_families
from .fleet import Fleet
from .kv_metrics import KvSeen, kv_families
from .link_metrics import link_families
from .planner_metrics import PlannerCounts, planner_families

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
_TTFT_S = (*_TTFT_S, 10.0, 20.0, 40.0, 80.0, 160.0)
_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_TOKEN_S = (*_TOKEN_S, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
_REQUEST_S = (*_REQUEST_S, 120.0, 240.0, 480.0, 960.0, 1920.0)


class Histogram:
    """Counts by upper bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: Seconds) -> None:
        """Count `value`."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, text: str, model: str) -> HistogramMetricFamily:
        """In Prometheus's cumulative form."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        family = HistogramMetricFamily(name, text, labels=["model_name"])
        family.add_metric([model], buckets, self._sum)
        return family


class Metrics(Collector):
    """All counters of one gateway, and what its workers report."""

    def __init__(self, model: str) -> None:
        self.cluster = ClusterCounters()
        self._model = model
        self._fleet: Fleet | None = None
        self._book: RequestBook | None = None
        self._ttft = Histogram(_TTFT_S)
        self._between_tokens = Histogram(_TOKEN_S)
        self._whole = Histogram(_REQUEST_S)
        self._queue = Histogram(_REQUEST_S)
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._finished: Counter[FinishReason] = Counter()
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._http: Counter[tuple[str, int]] = Counter()
        self._preemptions = 0
        self._kv: KvSeen | None = None
        self._paces: Callable[[], Mapping[WorkerId, float]] = dict
        self._planner: PlannerCounts | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def watch(self, fleet: Fleet, book: RequestBook, model: ModelInfo) -> None:
        """Show these from now on."""
        self._fleet, self._book = fleet, book
        self.cluster.kv_bytes_per_token = model.kv_bytes_per_token

    def watch_kv(self, kv: KvSeen) -> None:
        """Show this, too, from now on."""
        self._kv = kv

    def watch_paces(self, paces: Callable[[], Mapping[WorkerId, float]]) -> None:
        """Show these, too, from now on."""
        self._paces = paces

    def watch_planner(self, planner: PlannerCounts) -> None:
        """Show this, too, from now on."""
        self._planner = planner

    def tokens(self, count: int) -> None:
        """`count` output tokens were delivered."""
        self._output_tokens += count

    def gap(self, seconds: Seconds) -> None:
        """The time between a token and the one before it in its sequence."""
        self._between_tokens.observe(seconds)

    def settled(self, record: RequestRecord, rejected: Rejected | None) -> None:
        """A request ended."""
        reason = rejected.reason.value if rejected else ""
        self._outcomes[record.outcome.value, reason] += 1
        self._preemptions += record.preemptions
        self.cluster.retries += record.attempts - 1
        if record.outcome is Outcome.REJECTED:
            return
        self._prompt_tokens += record.prompt_tokens
        if record.outcome is Outcome.FINISHED:
            self._finished.update(record.finish_reasons)
            self._whole.observe(record.ended_at - record.arrived_at)
        if record.started_at is not None:
            self._queue.observe(record.started_at - record.arrived_at)
        if record.first_token_at is not None:
            self._ttft.observe(record.first_token_at - record.arrived_at)

    def http(self, route: str, status: int) -> None:
        """A response ended. `route` is a template of ours, never what the caller typed."""
        self._http[route, status] += 1

    def render(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`: one family at a time."""
        if self._fleet is not None and self._book is not None:
            yield from worker_families(self._model, self._fleet.members())
            yield pace_family(self._model, self._fleet.members(), self._paces())
            yield from self.cluster.families(self._model, self._book)
            yield from kv_families(self._model, self._kv)
            yield from link_families(self._model, self._fleet.members(), self._kv)
            yield from planner_families(self._model, self._planner)
        yield from self._of_requests()
        yield from self._own()

    def describe(self) -> Iterator[Metric]:
        """Empty: names need no check against other collectors, the registry is ours alone."""
        return iter(())

    def _count(self, name: str, text: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _of_requests(self) -> Iterator[Metric]:
        model = self._model
        yield self._count(
            "vllm:prompt_tokens", "Prompt tokens of ended requests.", self._prompt_tokens
        )
        yield self._count("vllm:generation_tokens", "Tokens delivered.", self._output_tokens)
        yield self._ttft.family(
            "vllm:time_to_first_token_seconds", "Arrival to first token.", model
        )
        yield self._between_tokens.family(
            "vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", model
        )
        yield self._whole.family(
            "vllm:e2e_request_latency_seconds", "Arrival to end, if it finished.", model
        )
        yield self._queue.family(
            "vllm:request_queue_time_seconds", "Arrival to first computing.", model
        )
        finished = CounterMetricFamily(
            "vllm:request_success",
            "Sequences that ended well.",
            labels=["model_name", "finished_reason"],
        )
        for reason in (FinishReason.STOP, FinishReason.LENGTH):
            finished.add_metric([model, reason.value], self._finished[reason])
        yield finished

    def _own(self) -> Iterator[Metric]:
        outcomes = CounterMetricFamily(
            "antiphon_requests",
            "Requests by how they ended; `reason` says why one was rejected.",
            labels=["model_name", "outcome", "reason"],
        )
        for (outcome, reason), count in sorted(self._outcomes.items()):
            outcomes.add_metric([self._model, outcome, reason], count)
        yield outcomes
        http = CounterMetricFamily(
            "antiphon_http_requests", "HTTP requests.", labels=["route", "status"]
        )
        for (route, status), count in sorted(self._http.items()):
            http.add_metric([route, str(status)], count)
        yield http
        yield self._count(
            "antiphon_preempted_sequences", "Preemptions of ended requests.", self._preemptions
        )
