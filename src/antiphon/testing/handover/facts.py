"""What the processes of the model say to each other, beyond commands and events."""

from dataclasses import dataclass

from antiphon.core.handover import Acknowledge, RenewTaken, Take
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    ModelInfo,
    Renew,
    RequestId,
    Role,
    Seconds,
    WorkerId,
    WorkerInfo,
)

TTL_S: Seconds = 3.0
ANSWER_S: Seconds = 2.0
PROMPT = (1, 1)
OUTPUT_TOKENS = 2
"""One that prefill draws, one that decode draws."""
GATEWAY = WorkerId("gateway")
MODEL = ModelInfo(
    name="small",
    identity=bytes(32),
    numerics="small",
    vocab_size=1000,
    context_len=16,
    eos_token_ids=(),
    kv_bytes_per_token=1,
)
KV = KvShape(layout="small", page_tokens=1, block_tokens=1, page_bytes=1, pages=9)


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The last thing to come from a dead worker."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class GrantTo:
    """`Grant`, with the life of the taker that is meant."""

    request: RequestId
    attempt: int
    lease: LeaseId
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Ask:
    """A taker's word to an owner."""

    command: Take | RenewTaken | Acknowledge
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Answer:
    """An owner's word to a taker."""

    to: Take | RenewTaken
    answers: tuple[LeaseHeld | LeaseRefused, ...]


def incarnation_of(worker: WorkerId) -> Incarnation:
    """Nobody comes back in this model, so a worker has one life."""
    return Incarnation(f"{worker}#1")


def token_of(request: RequestId, index: int) -> int:
    """No two tokens of the model are alike."""
    return 100 * int(request[1:]) + index


def info_of(worker: WorkerId, role: Role) -> WorkerInfo:
    """What a worker joins with."""
    return WorkerInfo(
        id=worker,
        incarnation=incarnation_of(worker),
        model=MODEL,
        max_model_len=16,
        role=role,
        kv=KV,
    )


def arrives_at_once(target: WorkerId, message: object) -> bool:
    """Words whose time on the way makes no difference that another move does not make.

    What a worker says to the gateway might as well have been said later, or before the worker
    died. Renewals and answers matter only by time passing, and that may pass before or after.
    """
    match message:
        case StreamEnded():
            return False
        case Renew() | Answer() | Ask(RenewTaken()):
            return True
        case _:
            return target == GATEWAY
