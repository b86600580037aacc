"""The vocabulary of faults: where something goes wrong, and what.

A fault is a trigger (a point in time, or the n-th message of a kind), somebody or something that
it hits, and an action. The simulator carries out all of them; on live processes a drill carries
out what it can: `Crash` is SIGKILL, `Stall` is SIGSTOP and SIGCONT.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from antiphon.types import Seconds

Node: TypeAlias = str
"""The name of a process: a worker's id, or the gateway's name. It outlives restarts."""


class Boundary(StrEnum):
    """A place where one process hands something to another: the kinds of messages, and reads."""

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    ADD = "add"
    ANSWER = "answer"
    """A worker says whether it took a request."""
    TOKEN = "token"
    END = "end"
    OFFER = "offer"
    GRANT = "grant"
    GRANT_ANSWER = "grant-answer"
    ADOPT = "adopt"
    TAKE = "take"
    TAKE_ANSWER = "take-answer"
    """Also the answers to a taker's renewals."""
    READ = "read"
    """A taker copies offered pages: no message, but a moment like one."""
    ACKNOWLEDGE = "acknowledge"
    PULLED = "pulled"
    RENEW = "renew"
    RELEASE = "release"
    ABORT = "abort"
    KV = "kv"
    """A worker tells which blocks it has, or is asked to tell it again."""
    PUT = "put"
    """A worker copies a block into the store: no message, like `READ`."""
    FETCH = "fetch"
    """A worker copies a block out of the store: no message, like `READ`."""


COPIES = (Boundary.READ, Boundary.PUT, Boundary.FETCH)
"""Where KV is copied, by somebody who can't trust what he gets."""
WITHOUT_STORE = tuple(one for one in Boundary if one not in (Boundary.PUT, Boundary.FETCH))
"""What is crossed in a cluster that has no store."""


class Party(StrEnum):
    """Who is hit, when a message sets the fault off."""

    SENDER = "sender"
    RECEIVER = "receiver"


@dataclass(frozen=True, slots=True)
class At:
    """So many seconds after the run began."""

    seconds: Seconds


@dataclass(frozen=True, slots=True)
class When:
    """When something crosses a boundary for the `occurrence`-th time (from 1), whoever sends it."""

    boundary: Boundary
    occurrence: int


Trigger: TypeAlias = At | When


@dataclass(frozen=True, slots=True)
class Crash:
    """The process ends without a word. A new life begins later; None: never."""

    restart_after_s: Seconds | None


@dataclass(frozen=True, slots=True)
class Stall:
    """The process stops, keeps all it has, and goes on later as if nothing had happened."""

    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Slow:
    """Everything that the process computes takes `factor` times as long for a while."""

    factor: float
    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing passes between two processes for a while; what is sent arrives afterwards."""

    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Cut:
    """The streams between two processes break; what is on its way is lost; both sides notice."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A message, and what follows it on its stream, arrives later."""

    by_s: Seconds


@dataclass(frozen=True, slots=True)
class Drop:
    """A message vanishes from a stream that goes on: the stream's promise is broken."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A message arrives a second time, that much later: the stream's promise is broken."""

    after_s: Seconds


@dataclass(frozen=True, slots=True)
class Reorder:
    """A message arrives after what follows it: the stream's promise is broken."""

    by_s: Seconds


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Some bytes of KV are changed: where they lie, or while they are copied."""


@dataclass(frozen=True, slots=True)
class PartialWrite:
    """A copy of KV ends in the middle: what comes after is whatever was there before."""


@dataclass(frozen=True, slots=True)
class StaleGeneration:
    """What is copied was used anew meanwhile: it is of another generation, and says so."""


@dataclass(frozen=True, slots=True)
class FillDisk:
    """For a while, nothing more can be written to the store."""

    for_s: Seconds


@dataclass(frozen=True, slots=True)
class LoseBlocks:
    """The store forgets all that it has, as one that begins a new life without a disk does."""


Damage: TypeAlias = Corrupt | PartialWrite | StaleGeneration
Action: TypeAlias = (
    Crash
    | Stall
    | Slow
    | Partition
    | Cut
    | Delay
    | Drop
    | Duplicate
    | Reorder
    | Damage
    | FillDisk
    | LoseBlocks
)


def action_name(action: Action) -> str:
    """What reports call it: `PartialWrite` is partial-write."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(action).__name__).lower()


@dataclass(frozen=True, slots=True)
class ProcessFault:
    """Something happens to a process. A `Party` needs a `When`."""

    trigger: Trigger
    whom: Node | Party
    action: Crash | Stall | Slow


@dataclass(frozen=True, slots=True)
class LinkFault:
    """Something happens between two processes. `link=None`: those of the message of a `When`."""

    trigger: Trigger
    link: tuple[Node, Node] | None
    action: Partition | Cut


@dataclass(frozen=True, slots=True)
class MessageFault:
    """Something happens to the message that sets the fault off."""

    trigger: When
    action: Delay | Drop | Duplicate | Reorder


@dataclass(frozen=True, slots=True)
class CopyFault:
    """Something happens to the KV that is copied when this is set off: at one of `COPIES`."""

    trigger: When
    action: Damage


@dataclass(frozen=True, slots=True)
class StoreFault:
    """Something happens to the store, whoever uses it then."""

    trigger: Trigger
    action: FillDisk | LoseBlocks


Fault: TypeAlias = ProcessFault | LinkFault | MessageFault | CopyFault | StoreFault


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All that goes wrong in one run, in no particular order. `seed` says where it comes from.

    What befalls a `Party` that is `spared` does not happen.
    """

    seed: int
    faults: tuple[Fault, ...] = ()
    spared: tuple[Node, ...] = ()
