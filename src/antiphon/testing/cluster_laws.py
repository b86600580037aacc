"""The laws of `docs/invariants.md` that can be read off the log of a virtual cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.core.end_marks import EndMarks
from antiphon.core.token_runs import each_token
from antiphon.sim import ClusterLog, VirtualCluster, hashed_script
from antiphon.sim.cluster_log import Arrived, GivenUp, LeaseGranted, LeaseUsed, LifeEnded
from antiphon.sim.cluster_setup import GATEWAY, ClusterSetup
from antiphon.types import (
    Adopt,
    Deliver,
    DeliverRun,
    Dispatch,
    EndSequence,
    Fetched,
    FinishReason,
    Grant,
    Health,
    HealthChanged,
    Incarnation,
    LeaseId,
    Outcome,
    RejectReason,
    Request,
    RequestId,
    Seconds,
    Settle,
    Started,
    TokenGenerated,
    TokenId,
    TokensGenerated,
)

from .laws import LawBroken, check_pages

MAX_FRUITLESS = 3
"""So many attempts in a row that have begun may be ended by lost workers before a request is
given up."""


@dataclass(slots=True)
class Story:
    """What one client saw."""

    request: Request
    arrived_at: Seconds
    attempt: int = 0
    """The newest that was given to a worker, or for which an offer was granted."""
    tokens: dict[int, list[TokenId]] = field(default_factory=dict)
    ends: dict[int, FinishReason] = field(default_factory=dict)
    given_up: dict[int, FinishReason] = field(default_factory=dict)
    """Sequences that the client, or a stop string, ended."""
    settle: Settle | None = None
    settled_at: Seconds = 0.0
    broken: bool = False
    """Its gateway died before it was over."""


def stories_of(log: ClusterLog) -> Mapping[RequestId, Story]:
    """The stories of all calls that a gateway took.

    Raises `LawBroken` where one can't be told: I1 (nothing follows the end of a sequence or of a
    request, each of which comes once) and I14 (each (sequence, index) comes once and in order).
    """
    stories: dict[RequestId, Story] = {}
    for at, node, what in log.entries:
        match what:
            case Arrived(request):
                stories[request.id] = Story(request, at)
            case LifeEnded() if node == GATEWAY:
                for story in stories.values():
                    story.broken = story.broken or story.settle is None
            case GivenUp() if what.request in stories:
                _give_up(stories[what.request], what)
            case _ if node == GATEWAY:
                _command(stories, at, what)
            case _:
                pass
    return stories


def _command(stories: Mapping[RequestId, Story], at: Seconds, what: object) -> None:
    match what:
        case Dispatch(request=request) | Adopt(request=request):
            _give(stories[request.id], request)
        case Grant(request=request, attempt=attempt):
            stories[request].attempt = attempt
        case Deliver(token) | DeliverRun(token):
            _deliver(stories[token.request], token)
        case EndSequence(request=request, sequence=sequence, reason=reason):
            _check_open(stories[request], sequence, "ends")
            stories[request].ends[sequence] = reason
        case Settle(record):
            story = stories[record.request]
            if story.settle is not None or story.broken:
                raise LawBroken(f"I1: {record.request} is settled twice")
            story.settle, story.settled_at = what, at
        case _:
            pass


def _give_up(story: Story, what: GivenUp) -> None:
    every = range(story.request.sampling.n)
    for sequence in every if what.sequence is None else (what.sequence,):
        story.given_up.setdefault(sequence, what.reason)


def _check_open(story: Story, sequence: int, what: str) -> None:
    if sequence in story.ends or story.settle is not None or story.broken:
        raise LawBroken(f"I1: {story.request.id}/{sequence} {what} after its end")


def _give(story: Story, request: Request) -> None:
    """I14: whoever gets a request is told all that its client has, and nothing else."""
    story.attempt = request.attempt
    has = tuple(tuple(story.tokens.get(s, ())) for s in range(request.sampling.n))
    if (request.resumed or ((),) * len(has)) != has:
        raise LawBroken(f"I14: {request.id} goes on from {request.resumed}, its client has {has}")
    if set(request.done) != set(story.ends):
        raise LawBroken(f"I14: {request.id} goes on without {request.done}, not {story.ends}")


def _deliver(story: Story, said: TokenGenerated | TokensGenerated) -> None:
    name = f"{said.request}/{said.sequence}"
    _check_open(story, said.sequence, "goes on")
    if said.attempt != story.attempt:
        raise LawBroken(f"I14: {name} hears attempt {said.attempt} in attempt {story.attempt}")
    tokens = story.tokens.setdefault(said.sequence, [])
    for token in each_token(said):
        if token.index != len(tokens):
            raise LawBroken(f"I14: {name} gets token {token.index} where {len(tokens)} is due")
        tokens.append(token.token)


def check_leases(log: ClusterLog) -> None:
    """I23: only the life that a lease was granted to last, for that attempt, takes or ends it."""
    granted: dict[LeaseId, tuple[Incarnation, int]] = {}
    for _, _, what in log.entries:
        match what:
            case LeaseGranted(lease, taker, attempt):
                granted[lease] = (taker, attempt)
            case LeaseUsed(lease, taker, attempt):
                if granted.get(lease) != (taker, attempt):
                    raise LawBroken(f"I23: {taker} uses {lease}, which {granted.get(lease)} has")
            case _:
                pass


def check_ended(stories: Mapping[RequestId, Story]) -> None:
    """I1: each request that a gateway took and lived on with is settled, and so are its parts."""
    for id, story in stories.items():
        if story.broken:
            continue
        if story.settle is None:
            raise LawBroken(f"I1: {id} never ends")
        refused = story.settle.record.outcome is Outcome.REJECTED
        expected = () if refused else range(story.request.sampling.n)
        if not refused and sorted(story.ends) != list(expected):
            raise LawBroken(f"I1: sequences {sorted(story.ends)} of {id} ended")


def check_tokens(
    setup: ClusterSetup, stories: Mapping[RequestId, Story], *, lossless: bool = True
) -> None:
    """I20: what was delivered is the beginning of what an undisturbed run would have said.

    All of it, if the sequence ended by itself: a failover repeats, loses and changes nothing.
    (Where a link may lose the last token and go on, `lossless=False`, nobody can know that.)
    """
    for id, story in stories.items():
        for sequence in range(story.request.sampling.n):
            said = story.tokens.get(sequence, [])
            whole = undisturbed(setup, story.request, sequence)
            if said != whole[: len(said)]:
                raise LawBroken(f"I20: {id}/{sequence} says {said} instead of {whole}")
            ended = story.ends.get(sequence)
            by_itself = (FinishReason.STOP, FinishReason.LENGTH)
            whole_is_due = lossless and ended in by_itself and sequence not in story.given_up
            if whole_is_due and said != whole:
                raise LawBroken(f"I20: {id}/{sequence} ends after {said}, which lacks {whole}")


def undisturbed(setup: ClusterSetup, request: Request, sequence: int) -> list[TokenId]:
    """A sequence straight from the definition: without a scheduler, workers or faults."""
    script, marks = hashed_script(setup.vocab_size), EndMarks.of(request)
    limit = min(request.sampling.max_tokens or 0, setup.max_model_len - len(request.prompt))
    tokens: list[TokenId] = []
    while len(tokens) < limit:
        tokens.append(script(request, sequence, len(tokens)))
        if marks.end(tokens[-1], len(tokens)):
            break
    return tokens


def check_nothing_failed(log: ClusterLog, stories: Mapping[RequestId, Story]) -> None:
    """I21: with workers that survive or come back, no patient client's request fails.

    But for those that three lost workers in a row, which had begun with them, took with them: they
    may be what kills them.
    """
    for id, story in stories.items():
        if story.settle is None or story.settle.record.outcome is Outcome.FINISHED:
            continue
        record = story.settle.record
        if record.outcome is not Outcome.FAILED or not _is_suspect(log, story):
            raise LawBroken(f"I21: {id} is {record.outcome}: {record.message}")


def check_nobody_failed_unasked(log: ClusterLog, stories: Mapping[RequestId, Story]) -> None:
    """I21, with impatient clients and short queues: who hung up or was late knows why."""
    for id, story in stories.items():
        if story.settle is None:
            continue
        record, refusal = story.settle.record, story.settle.rejected
        match record.outcome:
            case Outcome.FINISHED | Outcome.DEADLINE:
                allowed = True
            case Outcome.CANCELLED:
                allowed = bool(story.given_up)
            case Outcome.REJECTED:
                allowed = refusal is not None and refusal.reason in _TIMELY_REFUSALS
            case Outcome.FAILED:
                allowed = _is_suspect(log, story)
        if not allowed:
            raise LawBroken(f"I21: {id} is {record.outcome}: {record.message}")


_TIMELY_REFUSALS = (RejectReason.QUEUE_FULL, RejectReason.DEADLINE)


def _is_suspect(log: ClusterLog, story: Story) -> bool:
    """Were so many workers lost while it was open, and so many attempts at it begun?"""
    losses, begun = 0, set[int]()
    for at, _, what in log.entries:
        match what:
            case HealthChanged(health=Health.LOST):
                losses += story.arrived_at <= at <= story.settled_at
            case Started() | Fetched() if what.request == story.request.id:
                begun.add(what.attempt)
            case Adopt(request=request) if request.id == story.request.id:
                begun.add(request.attempt)
            case _:
                pass
    return min(losses, len(begun)) >= MAX_FRUITLESS


def check_drained(cluster: VirtualCluster) -> None:
    """I3, I4: after quiet nothing is open, leased, pulled, held or routed anywhere."""
    left = cluster.unrest()
    if left:
        raise LawBroken(f"I4: after quiet there is still {', '.join(left)}")
    for view in cluster.views().values():
        check_pages(view)


def check_index(cluster: VirtualCluster, patience_s: Seconds = 10.0) -> None:
    """I25: after quiet the router believes of each worker that it has the blocks that it has.

    Where links break their promise some wait: what was lost is asked for again after a second.
    """
    until = cluster.loop.now + patience_s
    while (wrong := cluster.misbelieved()) and cluster.loop.now < until:
        cluster.run_until(cluster.loop.now + 0.25)
    if wrong:
        raise LawBroken(f"I25: after quiet the index is wrong about {', '.join(wrong)}")


def check_faults_happened(cluster: VirtualCluster) -> None:
    """Each fault that is said to be injected has left its mark, and nothing else has."""
    counts, traffic, chances = (
        cluster.faults.counts(),
        cluster.network.traffic,
        cluster.setup.hostility,
    )
    seen = {
        "crash": sum(process.crashes for process in cluster.processes.values()),
        "stall": sum(process.stops for process in cluster.processes.values()),
        "slow": sum(process.slowdowns for process in cluster.processes.values()),
        "partition": traffic.partitions,
        "delay": traffic.late,
        "drop": traffic.dropped,
        "duplicate": traffic.repeated,
        "reorder": traffic.aside,
    }
    by_chance = {"drop": chances.drop, "duplicate": chances.duplicate, "reorder": chances.reorder}
    for what, count in seen.items():
        if count != counts[what] and not (by_chance.get(what) and count > counts[what]):
            raise LawBroken(f"{counts[what]} faults of kind {what} are injected, {count} are seen")
    if bool(counts["cut"]) != bool(traffic.cuts):
        raise LawBroken(f"{counts['cut']} cuts are injected, {traffic.cuts} streams were cut")
