"""What the supervisor and its children say to each other: one JSON object a line.

Nothing here is on a command line, where others could read it.
"""

from typing import Any, TypeAlias

import msgspec

from antiphon.errors import PeerError
from antiphon.types import Role

MAX_LINE_BYTES = 256 * 1024
"""A longer line breaks the channel: no message comes near."""


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first word to a child: who it is and what it works with.

    `config` is what `core.config.build` takes. `sockets` is the folder of the cluster's sockets,
    `listener` the inherited descriptor that HTTP is served on, if any. `life` counts from 1.
    `drained`, for a gateway: workers that are to get nothing new, as an earlier one was told.
    """

    name: str
    config: dict[str, dict[str, Any]]
    sockets: str
    role: Role = Role.MIXED
    cores: tuple[int, ...] = ()
    listener: int | None = None
    life: int = 1
    drained: tuple[str, ...] = ()


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To the gateway: refuse what is new, finish what runs within `timeout_s`, say `Drained`."""

    timeout_s: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Exit with 0, soon: nothing is waited for any more."""


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor knows of a worker or the store. `state`: starting, ready, stopping or
    waiting.

    A waiting one died, `problem` says how, and is started again soon.
    """

    name: str
    role: Role
    cores: tuple[int, ...]
    state: str
    pid: int | None
    life: int
    problem: str = ""
    pinned: bool = False
    """An operator gave it its role: it is not for a planner to move."""


class Children(msgspec.Struct, frozen=True, tag=True):
    """To the gateway, whenever the process of a worker or of the store has changed.

    `store` None: the server has no store's process of its own.
    """

    workers: tuple[ChildState, ...]
    store: ChildState | None = None


class Say(msgspec.Struct, frozen=True, tag=True):
    """What the child is doing from now on, for a person who waits."""

    line: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The child can do its work. `serves`: the model's name in the API, from the gateway."""

    serves: str = ""
    needs_key: bool = False


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A command, a file or the machine is not right (`UsageError`): the child ends with 2."""

    message: str


class Drained(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: nothing runs any more, and nothing new will."""


class Restart(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: start the process of this worker, which has been drained, or of the store
    anew. Another life of it is not meant: that one is new already."""

    worker: str
    life: int


class KeepRole(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: this worker has another role now, and keeps it over restarts. `pinned`: an
    operator wants it so."""

    worker: str
    role: Role
    pinned: bool = True


class AddWorker(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: start one more worker, of that name and role, where there is room. It is
    in the next `Children`, or `NotAdded` says why not, with this `order`'s number."""

    worker: str
    role: Role
    order: int = 0


class EndWorker(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: end this worker, which has been drained, for good. Another life of it is
    not meant: it may have been given work."""

    worker: str
    life: int


class NotAdded(msgspec.Struct, frozen=True, tag=True):
    """To the gateway: this worker, which it asked for, is not there and will not be. `order`: which
    of this life's orders that was; 0: one of an earlier life."""

    worker: str
    why: str
    order: int = 0


class KeepDrained(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: this worker gets nothing new (`on`), or does again. It holds for later
    lives of the gateway, until the worker's own process is another one."""

    worker: str
    on: bool


class Alive(msgspec.Struct, frozen=True, tag=True):
    """From the gateway, each `cluster.heartbeat_s` from `Ready` on: its event loop runs."""


class Present(msgspec.Struct, frozen=True, tag=True):
    """From the gateway, when it is ready and at each change: who has joined and is not lost.

    `store`: whether the KV store answers; None: nobody looks yet.
    """

    workers: tuple[str, ...]
    store: bool | None = None


ToRunning: TypeAlias = Drain | Stop | Children | NotAdded
"""What a child may hear after its `Launch`."""
ToChild: TypeAlias = Launch | ToRunning
FromChild: TypeAlias = (
    Say
    | Ready
    | Refused
    | Drained
    | Restart
    | KeepRole
    | KeepDrained
    | AddWorker
    | EndWorker
    | Alive
    | Present
)

_encoder = msgspec.json.Encoder()
_to_child = msgspec.json.Decoder(ToChild)
_from_child = msgspec.json.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    """One line."""
    return _encoder.encode(message) + b"\n"


def decode_to_child(line: bytes) -> ToChild:
    """Raises `PeerError` for anything else."""
    return _decode(_to_child, line)


def decode_from_child(line: bytes) -> FromChild:
    """Raises `PeerError` for anything else."""
    return _decode(_from_child, line)


def _decode(decoder: "msgspec.json.Decoder[Any]", line: bytes) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise PeerError(f"a message between supervisor and child can't be read: {error}") from None
