"""What each client of a virtual cluster saw, told from the gateway's own commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.core.token_runs import each_token
from antiphon.types import (
    Adopt,
    Deliver,
    DeliverRun,
    Dispatch,
    EndSequence,
    FinishReason,
    Grant,
    Request,
    RequestId,
    Seconds,
    Settle,
    TokenGenerated,
    TokenId,
    TokensGenerated,
)

from ..cluster_log import Arrived, ClusterLog, GivenUp, LifeEnded
from ..cluster_setup import GATEWAY
from ..law import LawBroken


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
