"""The laws of `docs/invariants.md` that can be read off what happened in a run."""

from collections.abc import Iterable, Mapping, Sequence

from antiphon.core.token_runs import each_token
from antiphon.sim import RunLog
from antiphon.sim.law import LawBroken
from antiphon.types import (
    Aborted,
    Admitted,
    Fetched,
    Prefilled,
    Rejected,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    SequenceKey,
    Started,
    StepPlan,
    TokenGenerated,
    TokenId,
    TokensGenerated,
    WorkerView,
)


def check_conservation(log: RunLog, requests: Iterable[Request]) -> None:
    """I1: every request gets one answer, and every sequence taken ends, or is offered, once.

    Nothing is said of a sequence after its end, nor of a request that was refused.
    """
    for request in requests:
        said = log.of(request.id)
        answers = [what for what in said if isinstance(what, Admitted | Rejected)]
        if len(answers) != 1 or said[0] is not answers[0]:
            raise LawBroken(f"I1: {request.id} was answered {len(answers)} times")
        ends: list[int] = []
        for what in said[1:]:
            match what:
                case Aborted(sequences=sequences):
                    ends += sequences
                case SequenceEnded(sequence=sequence):
                    ends.append(sequence)
                case Prefilled(sequences=offered):
                    ends += (one.sequence for one in offered)
                case TokenGenerated() | TokensGenerated() if what.sequence in ends:
                    sequence = what.sequence
                    raise LawBroken(f"I1: {request.id}/{sequence} goes on after its end")
                case _:
                    pass
        taken = isinstance(answers[0], Admitted)
        living = set(range(request.sampling.n)) - set(request.done)
        if sorted(ends) != (sorted(living) if taken else []):
            raise LawBroken(f"I1: sequences {sorted(ends)} of {request.id} ended")


def check_tokens(log: RunLog, requests: Iterable[Request]) -> None:
    """I2: the tokens of each sequence come once and in order, from where it was resumed."""
    for request in requests:
        for sequence, tokens in tokens_of(log, request).items():
            first = len(request.resumed[sequence]) if request.resumed else 0
            indices = [index for index, _ in tokens]
            if indices != list(range(first, first + len(indices))):
                raise LawBroken(f"I2: {request.id}/{sequence} has tokens {indices}")
            limit = request.sampling.max_tokens or 0
            if indices and indices[-1] >= limit:
                raise LawBroken(f"I2: {request.id}/{sequence} has more than {limit} tokens")


def check_started(log: RunLog, requests: Iterable[Request]) -> None:
    """I6: a request starts once, after it came, and it is said before a plan computes any of it.

    If KV of it is fetched, it starts as soon as that is over, unless a step that awaits the fetch
    has begun before; then too no token comes before the fetch is over.
    """
    for request in requests:
        said = log.of(request.id)
        starts = [what for what in said if isinstance(what, Started)]
        tokens = [what for what in said if isinstance(what, TokenGenerated)]
        if len(starts) > 1 or (tokens and not starts):
            raise LawBroken(f"I6: {request.id} started {len(starts)} times")
        if tokens and said.index(starts[0]) > said.index(tokens[0]):
            raise LawBroken(f"I6: {request.id} has a token before it started")
        _check_fetched(log, request, starts, tokens)
        started_at = [at for at, what in log.happenings if what in starts]
        planned = (at for at, plan in log.plans for one in plan.chunks if one.request is request)
        first = next(planned, None)
        if first is not None and (not started_at or started_at[0] > first):
            raise LawBroken(f"I6: {request.id} was computed before anybody knew that it started")
        if any(start.queued_s < 0 for start in starts):
            raise LawBroken(f"I6: {request.id} started before it came")


def _check_fetched(
    log: RunLog, request: Request, starts: Sequence[Started], tokens: Sequence[TokenGenerated]
) -> None:
    said = log.of(request.id)
    fetched = [at for at, what in enumerate(said) if isinstance(what, Fetched)]
    if not fetched:
        return
    awaited = [plan.awaits.request for _, plan in log.plans if plan.awaits is not None]
    started_at = said.index(starts[0]) if starts else len(said)
    in_time = started_at == fetched[0] + 1
    if request.id in awaited:
        in_time = started_at < fetched[0]
    if len(fetched) > 1 or not in_time:
        raise LawBroken(f"I6: {request.id} did not start when its KV had come")
    if tokens and said.index(tokens[0]) < fetched[0]:
        raise LawBroken(f"I6: {request.id} has a token before its KV had come")


def check_causality(log: RunLog, arrivals: Mapping[RequestId, Seconds]) -> None:
    """I6: time does not run backwards, and nobody is computed before it came."""
    for entries in (log.happenings, log.plans, log.views):
        times = [at for at, _ in entries]
        if times != sorted(times):
            raise LawBroken("I6: time ran backwards")
    for at, plan in log.plans:
        for chunk in plan.chunks:
            if at < arrivals[chunk.request.id]:
                raise LawBroken(f"I6: {chunk.request.id} was computed before it came")


def check_drained(view: WorkerView) -> None:
    """I4: when nothing is left to do, nothing runs, waits or holds a page."""
    here = view.running, view.waiting, view.pulling, view.roomless
    if any(here) or view.held_pages or view.leases:
        raise LawBroken(f"I4: something is left over in {view}")


def check_budget(plan: StepPlan, *, max_tokens: int, max_sequences: int) -> None:
    """I10: a step computes at most its budget, each sequence once, and something at all."""
    tokens = sum(len(chunk.tokens) for chunk in plan.chunks)
    if not 0 < tokens <= max_tokens:
        raise LawBroken(f"I10: step {plan.number} computes {tokens} tokens of {max_tokens}")
    keys = {SequenceKey(chunk.request.id, chunk.sequence) for chunk in plan.chunks}
    if len(keys) < len(plan.chunks) or len(keys) > max_sequences:
        raise LawBroken(f"I10: step {plan.number} has {len(plan.chunks)} chunks")
    if any(not chunk.tokens for chunk in plan.chunks):
        raise LawBroken(f"I10: step {plan.number} has an empty chunk")


def tokens_of(log: RunLog, request: Request) -> Mapping[int, list[tuple[int, TokenId]]]:
    """(index, token) of each sequence of a request, in the order of delivery."""
    tokens: dict[int, list[tuple[int, TokenId]]] = {
        sequence: [] for sequence in range(request.sampling.n)
    }
    for what in log.of(request.id):
        if isinstance(what, TokenGenerated | TokensGenerated):
            tokens[what.sequence] += ((one.index, one.token) for one in each_token(what))
    return tokens


def outputs(
    log: RunLog, requests: Iterable[Request]
) -> Mapping[RequestId, Mapping[int, list[tuple[int, TokenId]]]]:
    """`tokens_of` each request that was taken."""
    return {
        request.id: tokens_of(log, request)
        for request in requests
        if isinstance(log.of(request.id)[0], Admitted)
    }
