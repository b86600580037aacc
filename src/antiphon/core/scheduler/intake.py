"""Which requests are taken, and what is remembered of those that are."""

from collections.abc import Iterable

from antiphon.core.end_marks import EndMarks
from antiphon.core.kv import MAX_SALT_BYTES, tenant_of
from antiphon.types import (
    KvConfig,
    LeaseId,
    ModelInfo,
    Offer,
    Rejected,
    RejectReason,
    Request,
    SchedulerConfig,
    Seconds,
    SequenceKey,
)

from .adoption import examine
from .history import History
from .limits import Limits
from .parts import IdRange, Parts
from .roster import Roster
from .sequence import RequestState, SequenceState, ending, in_party_order


class Intake:
    """Makes a state of each request that can be taken. Changes nothing beside its own count."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KvConfig,
        model: ModelInfo,
        limits: Limits,
        parts: Parts,
    ) -> None:
        self._config, self._kv, self._model = config, kv, model
        self._limits = limits
        self._parts = parts
        self._arrivals = 0

    def take(
        self,
        request: Request,
        now: Seconds,
        roster: Roster,
        history: History,
        *,
        lease: LeaseId | None = None,
        offer: Offer | None = None,
        fetch: int = 0,
    ) -> RequestState | Rejected:
        """The request as it enters, or why it can't. Its sequences neither wait nor run yet.

        With a lease its KV will be offered; with an offer its KV is to be pulled; with `fetch` so
        many tokens may come from the store, unless that is impossible here.
        """
        refused = refusal(request, self._limits, self._parts.id_range)
        refused = refused or self._refusal_now(request, now, roster, history)
        if refused is not None:
            return refused
        state = self._state_of(request, now)
        state.lease = lease
        if offer is not None:
            self._examine(state, offer)
        elif self._can_fetch(state):
            state.fetch = max(0, fetch)
        if state.is_party or len(state.sequences) > 1:
            whole = self._limits.groups.whole_pages(max(one.length for one in state.sequences))
            state.worst_pages = max(state.worst_pages, whole)
        refused = self._party_refusal(state)
        if refused is None:
            self._arrivals += 1
        return refused or state

    def _refusal_now(
        self, request: Request, now: Seconds, roster: Roster, history: History
    ) -> Rejected | None:
        """Why it can't be taken at this moment."""
        if request.id in roster.requests or (request.id, request.attempt) in roster.receiving:
            return Rejected(
                request=request.id,
                reason=RejectReason.DUPLICATE,
                message=f"a request with id {request.id} is already here, in this attempt or a "
                "later one",
                field="id",
                attempt=request.attempt,
            )
        if request.deadline is not None and request.deadline <= now:
            return Rejected(
                request=request.id,
                reason=RejectReason.DEADLINE,
                message="the deadline passed before the request could be taken",
                field="deadline",
                attempt=request.attempt,
            )
        if (waiting := self._full_queue(request.sampling.n, roster)) is not None:
            return Rejected(
                request=request.id,
                reason=RejectReason.QUEUE_FULL,
                message=f"{waiting} requests wait already; try again later",
                retry_after_s=history.retry_after_s(now),
                attempt=request.attempt,
            )
        return None

    def _full_queue(self, n: int, roster: Roster) -> int | None:
        """How many requests wait, if that is too many for one more of n sequences; else None.

        Who finds a place among the running ones in the next step does not count as waiting.
        """
        if roster.fresh < self._config.max_queue:
            return None
        starting, places = roster.starting(self._limits.max_sequences - roster.taken_places)
        waiting = roster.fresh - starting
        full = waiting >= self._config.max_queue and (waiting > 0 or places < n)
        return waiting if full else None

    def _state_of(self, request: Request, now: Seconds) -> RequestState:
        sampling, length = request.sampling, len(request.prompt)
        max_tokens = min(sampling.max_tokens or 0, self._limits.max_len - length)
        state = RequestState(
            request=request,
            arrival=self._arrivals,
            arrived_at=now,
            block_keys=self._parts.block_keys(
                identity=self._model.identity,
                numerics=self._model.numerics,
                salt=request.tenant_salt,
                block_tokens=self._kv.block_tokens,
            ),
            marks=EndMarks.of(request),
            max_tokens=max_tokens,
            worst_pages=self._limits.worst_pages(length + max_tokens),
            tenant=tenant_of(request.tenant_salt),
        )
        resumed = request.resumed or ((),) * sampling.n
        names = self._parts.known_names(request, self._model, self._kv.block_tokens)
        state.sequences = [
            SequenceState(
                owner=state,
                key=SequenceKey(request.id, index),
                prompt_len=length,
                length=length + len(resumed[index]),
                output=[*resumed[index]],
                resumed_len=len(resumed[index]),
                block_keys=[*names],
            )
            for index in range(sampling.n)
            if index not in request.done
        ]
        return state

    def _examine(self, state: RequestState, offer: Offer) -> None:
        state.adoption = examine(
            state.request,
            [one.key.sequence for one in state.alive if one.resumed_len],
            offer,
            groups=self._limits.groups,
            numerics=self._model.numerics,
        )

    def _can_fetch(self, state: RequestState) -> bool:
        """Whether blocks can have names here, and its sequences can start together."""
        fits = self._party_pages(state, state.alive) <= self._limits.total_pages
        return self._kv.prefix_cache and fits

    def _party_pages(self, state: RequestState, party: Iterable[SequenceState]) -> int:
        """Pages of these sequences, each with a token more than now."""
        beyond = (one.resumed_len + 1 for one in party)
        return self._limits.pages(len(state.request.prompt), beyond)

    def _party_refusal(self, state: RequestState) -> Rejected | None:
        """Why a request whose KV changes hands can never run here as a whole."""
        party = in_party_order(one for one in state.alive if ending(one) is None)
        if not state.is_party or not party:
            return None
        request, limits = state.request, self._limits
        if state.adoption is not None and not party[0].resumed_len:
            return Rejected(
                request=request.id,
                reason=RejectReason.INVALID,
                message=f"sequence {party[0].key.sequence} has no token to go on from: "
                "resumed must name the first token of each sequence whose KV is offered",
                field="resumed",
                attempt=request.attempt,
            )
        # Whoever offers needs no more: so what fits into half of its memory fits, beside all that
        # another worker of that size may have promised, there too.
        pages = self._party_pages(state, party)
        if state.adoption is not None and pages > limits.total_pages:
            return too_long(
                request,
                f"the offered KV needs {pages} pages of KV memory, which has {limits.total_pages}",
            )
        if state.lease is not None and pages > limits.total_pages // 2:
            return too_long(
                request,
                f"{len(party)} sequences of a prompt of {len(request.prompt)} tokens need {pages} "
                f"pages, but only half of the KV memory, {limits.total_pages // 2} pages, is for "
                "prompts that are computed for other workers: run the request whole",
            )
        return None


def refusal(request: Request, limits: Limits, id_range: IdRange) -> Rejected | None:
    """Why the request can never run here, with the field to change; None: it can."""
    return _invalid(request, limits, id_range) or _too_long(request, limits)


def _invalid(request: Request, limits: Limits, id_range: IdRange) -> Rejected | None:
    sampling = request.sampling
    n, resumed = sampling.n, request.resumed
    problems = (
        ("prompt", not request.prompt, "the prompt has no tokens"),
        ("n", n < 1, f"n is {n}, must be at least 1"),
        (
            "n",
            n > limits.max_sequences,
            f"n is {n}, at most {limits.max_sequences} sequences run at once",
        ),
        ("max_tokens", sampling.max_tokens is None, "max_tokens is not resolved"),
        (
            "max_tokens",
            (sampling.max_tokens or 0) < 0,
            f"max_tokens is {sampling.max_tokens}, must not be negative",
        ),
        ("seed", sampling.seed is None, "seed is not resolved"),
        (
            "min_tokens",
            sampling.min_tokens < 0,
            f"min_tokens is {sampling.min_tokens}, must not be negative",
        ),
        (
            "resumed",
            len(resumed) not in (0, n),
            f"resumed has {len(resumed)} parts for n = {n} sequences",
        ),
        (
            "done",
            bool(request.done) and not _some_of(request.done, n),
            f"done is {request.done}, must name some of {n} sequences, but not all, each once",
        ),
        (
            "tenant_salt",
            len(request.tenant_salt) > MAX_SALT_BYTES,
            f"tenant_salt has {len(request.tenant_salt)} bytes, at most {MAX_SALT_BYTES} work",
        ),
        ("deadline", request.deadline != request.deadline, "deadline is not a number"),
    )
    for field, wrong, message in problems:
        if wrong:
            return Rejected(
                request=request.id,
                reason=RejectReason.INVALID,
                message=message,
                field=field,
                attempt=request.attempt,
            )
    for field, tokens in (("prompt", request.prompt), *(("resumed", part) for part in resumed)):
        if tokens:
            least, largest = id_range(tokens)
            if least < 0 or largest >= limits.vocab_size:
                return _unknown_token(request, field, limits)
    return None


def _unknown_token(request: Request, field: str, limits: Limits) -> Rejected:
    return Rejected(
        request=request.id,
        reason=RejectReason.INVALID,
        message=f"{field} holds a token id outside 0 … {limits.vocab_size - 1}",
        field=field,
        attempt=request.attempt,
    )


def _some_of(done: tuple[int, ...], n: int) -> bool:
    return len(set(done)) == len(done) < n and min(done) >= 0 and max(done) < n


def _too_long(request: Request, limits: Limits) -> Rejected | None:
    length, n = len(request.prompt), request.sampling.n - len(request.done)
    pages = limits.pages(length, (0,) * n) if n > 1 else limits.worst_pages(length)
    if length + 1 > limits.max_model_len:
        message = (
            f"the prompt has {length} tokens and 1 is generated at least, "
            f"but the model's limit is {limits.max_model_len} tokens"
        )
    elif length + 1 > limits.memory_tokens:
        message = (
            f"the prompt has {length} tokens and 1 is generated at least, "
            f"but the KV memory holds {limits.memory_tokens} tokens"
        )
    elif pages > limits.total_pages:
        message = (
            f"{n} sequences of a prompt of {length} tokens need {pages} pages of KV memory, "
            f"which has {limits.total_pages}"
        )
    else:
        return None
    return too_long(request, message)


def too_long(request: Request, message: str) -> Rejected:
    """The answer to a prompt that can never run here."""
    return Rejected(
        request=request.id,
        reason=RejectReason.TOO_LONG,
        message=message,
        field="prompt",
        attempt=request.attempt,
    )
