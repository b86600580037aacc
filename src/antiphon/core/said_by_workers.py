"""What a worker says of itself and its requests must at least be possible.

Types come from the wire; here are the values: a number that can't be must end at the worker that
said it, not where a gateway counts, waits or spells with it. Each function returns what is wrong,
as a phrase that follows "it says", or nothing ("").
"""

from itertools import pairwise
from math import isfinite

from antiphon.types import (
    MOST_EXPERT_COUNTS,
    Admitted,
    EventBatch,
    ExpertTokens,
    Leave,
    Logprobs,
    Offer,
    Pulled,
    Rejected,
    WorkerView,
)

from .said_of_links import wrong_in_links

_MAX_COUNT = 2**48
_MAX_SECONDS = 2.0**31
_MAX_LAYERS = 2**16
_COUNTS = (
    "running",
    "waiting",
    "free_pages",
    "held_pages",
    "cached_pages",
    "total_pages",
    "peak_pages",
    "prefix_queried_tokens_total",
    "prefix_hit_tokens_total",
    "preemptions_total",
    "steps_total",
    "computed_tokens_total",
    "waiting_tokens",
    "running_sequences",
    "context_tokens",
    "pulling",
    "roomless",
    "offered_pages",
    "leases",
    "fetched_tokens_total",
    "fetch_missed_blocks_total",
    "put_blocks_total",
    "put_dropped_blocks_total",
    "store_sessions",
)


def wrong_in_view(view: WorkerView) -> str:
    """Counts are 0 or more, there is memory, and its parts make up the whole."""
    for name in _COUNTS:
        if problem := _wrong_count(name, getattr(view, name)):
            return problem
    if view.total_pages < 1:
        return "total_pages is 0"
    if view.free_pages + view.held_pages + view.cached_pages != view.total_pages:
        return "free, held and cached pages do not add up to total_pages"
    if view.expert_tokens is not None and (problem := _wrong_experts(view.expert_tokens)):
        return problem
    links = "" if view.links is None else wrong_in_links(view.links)
    return links or _wrong_seconds("busy_s_total", view.busy_s_total)


def wrong_in_batch(batch: EventBatch, vocab_size: int) -> str:
    """Tokens are the model's, counts 0 or more, times can be waited for."""
    for token in batch.tokens:
        if not 0 <= token.token < vocab_size:
            return f"token is {token.token}, of {vocab_size}"
        if token.logprobs is not None and (problem := _wrong_scores(token.logprobs, vocab_size)):
            return problem
    for started in batch.started:
        if problem := (
            _wrong_count("cached_tokens", started.cached_tokens)
            or _wrong_count("stored_tokens", started.stored_tokens)
            or _wrong_seconds("queued_s", started.queued_s)
        ):
            return problem
    for offer in batch.offers:
        if problem := _wrong_offer(offer):
            return problem
    for fetched in batch.fetched:
        if problem := (
            _wrong_count("fetched_tokens", fetched.fetched_tokens)
            or _wrong_count("missing_tokens", fetched.missing_tokens)
            or _wrong_seconds("seconds", fetched.seconds)
        ):
            return problem
    for pulled in batch.pulled:
        if problem := _wrong_pulled(pulled):
            return problem
    return ""


def wrong_in_leave(leave: Leave) -> str:
    """How long what it has may take."""
    return _wrong_seconds("timeout_s", leave.timeout_s)


def wrong_in_answer(answer: Admitted | Rejected) -> str:
    """Whether a request was taken, and when to come back."""
    match answer:
        case Admitted(ahead=ahead):
            return _wrong_count("ahead", ahead)
        case Rejected():
            return _wrong_seconds("retry_after_s", answer.retry_after_s or 0.0)


def _wrong_scores(logprobs: Logprobs, vocab_size: int) -> str:
    """A log-probability may be minus infinity, and by rounding a little above 0."""
    scores = [logprobs.chosen, *(score for _, score in logprobs.top)]
    if not all(score < 1.0 for score in scores):
        return "a log-probability is no logarithm of one"
    strange = [token for token, _ in logprobs.top if not 0 <= token < vocab_size]
    return f"a likely token is {strange[0]}, of {vocab_size}" if strange else ""


def _wrong_experts(said: ExpertTokens) -> str:
    """Each total has its place in the table, and the table its limit: all are shown by number."""
    layers, totals = said.layers, said.totals
    if not 0 < len(totals) <= MOST_EXPERT_COUNTS:
        return f"expert_tokens has {len(totals)} totals, not 1 to {MOST_EXPERT_COUNTS}"
    if said.experts * max(1, len(layers)) != len(totals):
        return f"expert_tokens has {len(totals)} totals of {said.experts} experts"
    if layers and not 0 <= layers[0] <= layers[-1] < _MAX_LAYERS:
        return f"expert_tokens has layers {layers[0]} to {layers[-1]}"
    if any(one >= next for one, next in pairwise(layers)):
        return "expert_tokens has layers that do not ascend"
    return _wrong_count("expert_tokens", min(totals)) or _wrong_count("expert_tokens", max(totals))


def _wrong_offer(offer: Offer) -> str:
    if offer.ttl_s <= 0:
        return f"ttl_s is {offer.ttl_s}"
    return _wrong_seconds("ttl_s", offer.ttl_s)


def _wrong_pulled(pulled: Pulled) -> str:
    return (
        _wrong_count("pulled_tokens", pulled.pulled_tokens)
        or _wrong_count("cached_tokens", pulled.cached_tokens)
        or _wrong_count("missing_tokens", pulled.missing_tokens)
        or _wrong_count("moved_bytes", pulled.moved_bytes)
        or _wrong_seconds("seconds", pulled.seconds)
    )


def _wrong_count(name: str, count: int) -> str:
    return "" if 0 <= count <= _MAX_COUNT else f"{name} is {count}"


def _wrong_seconds(name: str, seconds: float) -> str:
    possible = isfinite(seconds) and 0.0 <= seconds <= _MAX_SECONDS
    return "" if possible else f"{name} is {seconds}"
