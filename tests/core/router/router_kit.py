"""A small fleet for router tests: linear times, workers, reports, requests, offers."""

from collections.abc import Iterable
from typing import Any

from antiphon.core.costs import FetchTime, PhaseTime
from antiphon.core.router import (
    STANDARD_PARTS,
    HeldPrefixes,
    Parts,
    PrefixBeliefs,
    Router,
    RouterLimits,
    StoredTokens,
)
from antiphon.core.router.prefix_beliefs import Found
from antiphon.types import (
    Health,
    HealthChanged,
    Incarnation,
    KvShape,
    LeaseId,
    ModelInfo,
    Offer,
    OfferedSequence,
    Request,
    RequestId,
    Role,
    Route,
    RouterConfig,
    SamplingParams,
    Slo,
    Tier,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)

PAGE_TOKENS = 16
PAGES = 1000
_COUNTS = (
    "running",
    "waiting",
    "cached_pages",
    "peak_pages",
    "prefix_queried_tokens_total",
    "prefix_hit_tokens_total",
    "preemptions_total",
    "steps_total",
    "computed_tokens_total",
)


class LinearTimes:
    """1 ms a prompt token; a decode step: 5 ms, 1 ms a sequence, 1 µs a token of context."""

    def prefill_s(self, tokens: int, start: int = 0) -> float:
        return 1e-3 * tokens

    def decode_step_s(self, sequences: int, context_tokens: int) -> float:
        return 5e-3 + 1e-3 * sequences + 1e-6 * context_tokens if sequences else 0.0


class TierTimes:
    """1 ms, and 0.1 ms a token on the host tier (whose KV has 1 byte), 1 ms on any other."""

    def seconds(self, size_bytes: int, tier: Tier) -> float:
        return 1e-3 + size_bytes * (1e-4 if tier is Tier.HOST else 1e-3) if size_bytes else 0.0


class Owned(dict[WorkerId, int]):
    """Tokens by worker, as a test says it."""

    def longest(self, most: int, turn: int) -> list[WorkerId]:
        return sorted(self, key=lambda worker: -self[worker])[:most]


def holding(own: dict[str, int], store: tuple[StoredTokens, ...] = ()) -> type[PrefixBeliefs]:
    """For `Parts`: workers, and the store, are believed to hold the first tokens of each prompt."""
    found = Found(Owned({WorkerId(worker): tokens for worker, tokens in own.items()}), store)

    class Believed(PrefixBeliefs):
        def of(self, request: Request) -> HeldPrefixes:
            return HeldPrefixes(lambda space: found)

    return Believed


class QuickLink:
    """5 ms and 1 ns a byte."""

    def seconds(self, size_bytes: int) -> float:
        return 5e-3 + 1e-9 * size_bytes


def info(
    id: str,
    role: Role = Role.MIXED,
    *,
    numerics: str = "avx512",
    layout: str = "page-first",
    pages: int = PAGES,
    max_model_len: int = 8192,
    life: str = "1",
) -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId(id),
        incarnation=Incarnation(f"{id}-{life}"),
        model=ModelInfo(
            name="m",
            identity=bytes(32),
            numerics=numerics,
            vocab_size=100,
            context_len=8192,
            eos_token_ids=(),
            kv_bytes_per_token=1,
        ),
        max_model_len=max_model_len,
        role=role,
        kv=KvShape(
            layout=layout,
            page_tokens=PAGE_TOKENS,
            block_tokens=64,
            page_bytes=PAGE_TOKENS,
            pages=pages,
        ),
    )


def view(total_pages: int = PAGES, *, held_pages: int = 0, **counts: Any) -> WorkerView:
    """A report of an idle worker, but for `counts`."""
    zero = dict.fromkeys(_COUNTS, 0)
    return WorkerView(
        total_pages=total_pages,
        held_pages=held_pages,
        free_pages=total_pages - held_pages,
        **(zero | counts),
    )


def request(
    id: str,
    tokens: int = 100,
    *,
    n: int = 1,
    attempt: int = 1,
    resumed: tuple[tuple[int, ...], ...] = (),
    done: tuple[int, ...] = (),
    slo: Slo | None = None,
    deadline: float | None = None,
    arrived_at: float | None = None,
) -> Request:
    return Request(
        id=RequestId(id),
        prompt=(7,) * tokens,
        sampling=SamplingParams(n=n, max_tokens=100, seed=0),
        attempt=attempt,
        resumed=resumed,
        done=done,
        slo=slo,
        deadline=deadline,
        arrived_at=arrived_at,
    )


def router(
    *infos: WorkerInfo,
    policy: str = "slo",
    seed: int = 0,
    limits: RouterLimits | None = None,
    parts: Parts = STANDARD_PARTS,
    fetch: FetchTime | None = TierTimes(),  # noqa: B008  it has no state
    times: PhaseTime = LinearTimes(),  # noqa: B008  nor has it
    **config: Any,
) -> Router:
    """`queue_s`, if it is not given: requests wait for nothing but room."""
    made = Router(
        RouterConfig(policy=policy, **{"queue_s": 3600.0, **config}),
        times=times,
        transfer=QuickLink(),
        fetch=fetch,
        kv_bytes_per_token=1,
        seed=seed,
        limits=limits or RouterLimits(),
        parts=parts,
    )
    for one in infos:
        made.observe(WorkerJoined(one), 0.0)
    return made


def report(made: Router, worker: str, now: float = 0.0, **counts: Any) -> None:
    made.observe(WorkerReported(WorkerId(worker), view(**counts)), now)


def health(made: Router, worker: str, what: Health, now: float = 0.0) -> None:
    made.observe(HealthChanged(WorkerId(worker), what), now)


def offer_of(owner: WorkerInfo, one: Request) -> Offer:
    assert owner.kv
    return Offer(
        request=one.id,
        attempt=one.attempt,
        lease=LeaseId("lease"),
        ttl_s=10.0,
        owner=owner.id,
        incarnation=owner.incarnation,
        kv=owner.kv,
        numerics=owner.model.numerics,
        pages=(),
        sequences=(OfferedSequence(0, len(one.prompt), ()),),
    )


def routes(made: Router, requests: Iterable[Request], now: float = 0.0) -> list[Route]:
    """The routes of requests that all find one."""
    chosen = [made.choose(one, now) for one in requests]
    for answer in chosen:
        assert isinstance(answer, Route), answer
    return [answer for answer in chosen if isinstance(answer, Route)]
