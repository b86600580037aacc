"""The laws of `docs/invariants.md` that can be read off the log of a virtual cluster."""

from collections.abc import Mapping

from antiphon.core.end_marks import EndMarks
from antiphon.core.faults import (
    CopyFault,
    Corrupt,
    Crash,
    FillDisk,
    LoseBlocks,
    Node,
    Slow,
)
from antiphon.types import (
    Adopt,
    Fetched,
    FinishReason,
    Health,
    HealthChanged,
    Incarnation,
    LeaseId,
    Outcome,
    RejectReason,
    Request,
    RequestId,
    Seconds,
    Started,
    StepPlan,
    TokenId,
)

from ..cluster_log import AbortHeard, BadCopy, ClusterLog, LeaseGranted, LeaseUsed, LifeBegan
from ..cluster_setup import ClusterSetup
from ..law import LawBroken, check_pages
from ..network import Hostility
from ..scripted_engine import hashed_script
from ..virtual_cluster import VirtualCluster
from .stories import Story

MAX_FRUITLESS = 3
"""So many attempts in a row that have begun may be ended by lost workers before a request is
given up."""


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


_TIMELY_REFUSALS = (
    RejectReason.QUEUE_FULL,
    RejectReason.DEADLINE,
    RejectReason.TTFT_UNREACHABLE,
    RejectReason.TPOT_UNREACHABLE,
)


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


def check_cancels(cluster: VirtualCluster, stories: Mapping[RequestId, Story]) -> None:
    """I35: what nobody wants any more is not computed any more.

    A step that a worker begins after it has heard an abort computes nothing of that attempt. Where
    nothing held messages back, no worker computes what was settled longer ago than they take.
    """
    prompt = _is_prompt(cluster)
    unwanted: set[tuple[Node, RequestId, int, int | None]] = set()
    for at, node, what in cluster.log.entries:
        match what:
            case LifeBegan():
                unwanted = {one for one in unwanted if one[0] != node}
            case AbortHeard(request, attempt, sequence):
                unwanted.add((node, request, attempt, sequence))
            case StepPlan(chunks=chunks):
                for chunk in chunks:
                    id, attempt = chunk.request.id, chunk.request.attempt
                    if {(node, id, attempt, None), (node, id, attempt, chunk.sequence)} & unwanted:
                        raise LawBroken(f"I35: {node} computes {id}, though it was aborted")
                    if prompt and _is_long_over(cluster, stories[id], at):
                        raise LawBroken(f"I35: {node} computes {id}, which is long over")
            case _:
                pass


def _is_prompt(cluster: VirtualCluster) -> bool:
    """Did every message of the run arrive when it should?"""
    disturbed = any(
        not isinstance(one.fault.action, _DISTURBS_NO_LINK) for one in cluster.faults.injected
    )
    return cluster.setup.hostility == Hostility() and not disturbed


def _is_long_over(cluster: VirtualCluster, story: Story, at: Seconds) -> bool:
    return story.settle is not None and at > story.settled_at + cluster.setup.times.most_s


_DISTURBS_NO_LINK = (Crash, Slow, Corrupt, FillDisk, LoseBlocks)


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
        "fill-disk": cluster.store.fills,
        "lose-blocks": cluster.store.losses,
    }
    by_chance = {"drop": chances.drop, "duplicate": chances.duplicate, "reorder": chances.reorder}
    for what, count in seen.items():
        if count != counts[what] and not (by_chance.get(what) and count > counts[what]):
            raise LawBroken(f"{counts[what]} faults of kind {what} are injected, {count} are seen")
    if bool(counts["cut"]) != bool(traffic.cuts):
        raise LawBroken(f"{counts['cut']} cuts are injected, {traffic.cuts} streams were cut")
    _check_damage(cluster)


def _check_damage(cluster: VirtualCluster) -> None:
    """I19, I28: whoever copied KV that was damaged has found it, or has it lying in the store."""
    spoiled = [one.fault for one in cluster.faults.injected if isinstance(one.fault, CopyFault)]
    found = sum(1 for _ in cluster.log.of_type(BadCopy)) + cluster.store.bad
    if len(spoiled) > found + cluster.store.damaged:
        raise LawBroken(f"I19: of {len(spoiled)} damaged copies only {found} were found")
