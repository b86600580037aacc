"""What each kind of frame holds: the type of its payload, its limit, and who may receive it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from antiphon import types

from .frame import MAX_NUMBER, Frame, FrameError, pack_frame

_SMALL = 64 * 2**10
_LISTS = 2**20
_LARGE = 32 * 2**20
"""A prompt of six million tokens, or the offer of half a million pages."""


class Kind(IntEnum):
    """The number in a frame's header. Numbers are never used again for something else."""

    HELLO = 1
    WELCOME = 2
    JOIN_REFUSED = 3
    HEARTBEAT = 4
    REPORT = 5
    EVENTS = 6
    KV_EVENTS = 7
    KV_DUMP = 8
    DISPATCH = 10
    ADOPT = 11
    ABORT = 12
    GRANT = 13
    RENEW = 14
    RELEASE = 15
    SET_ROLE = 16
    KV_REPLAY = 17
    LEFT = 18
    ADMITTED = 20
    REJECTED = 21
    ABORTED = 22
    UNKNOWN = 23
    LEASE_HELD = 24
    LEASE_REFUSED = 25
    DONE = 26
    LEAVE = 27
    PEER_HELLO = 40
    PEER_WELCOME = 41
    PEER_REFUSED = 42
    TAKE = 43
    RENEW_TAKEN = 44
    ACKNOWLEDGE = 45
    RENEW_ANSWERED = 46
    STORE_HELLO = 60
    STORE_WELCOME = 61
    STORE_REFUSED = 62
    PUT = 63
    LOCATE = 64
    LOCATED = 65
    STORE_WATCH = 66
    STORE_ASK = 67
    STORE_ANSWER = 68
    FORGET = 69
    POOL_HELLO = 80
    POOL_WELCOME = 81
    POOL_READ = 82
    POOL_LENT = 83
    POOL_PLACE = 84
    POOL_CLEAR = 85
    PROBE = 100
    PROBED = 101


@dataclass(frozen=True, slots=True)
class _Entry:
    decoder: msgspec.msgpack.Decoder[Any]
    max_bytes: int


def _entry(payload: Any, max_bytes: int = _SMALL) -> _Entry:
    return _Entry(msgspec.msgpack.Decoder(payload), max_bytes)


_ENTRIES: dict[int, _Entry] = {
    Kind.HELLO: _entry(types.Hello),
    Kind.WELCOME: _entry(types.Welcome),
    Kind.JOIN_REFUSED: _entry(types.JoinRefused),
    Kind.HEARTBEAT: _entry(None, 1),
    Kind.REPORT: _entry(types.WorkerView),
    Kind.EVENTS: _entry(types.EventBatch, _LARGE),
    Kind.DISPATCH: _entry(types.Dispatch, _LARGE),
    Kind.ADOPT: _entry(types.Adopt, 2 * _LARGE),
    Kind.ABORT: _entry(types.Abort),
    Kind.GRANT: _entry(types.GrantTo),
    Kind.RENEW: _entry(types.Renew, _LISTS),
    Kind.RELEASE: _entry(types.Release),
    Kind.SET_ROLE: _entry(types.RoleChanged),
    Kind.ADMITTED: _entry(types.Admitted),
    Kind.REJECTED: _entry(types.Rejected),
    Kind.ABORTED: _entry(types.Aborted),
    Kind.UNKNOWN: _entry(types.Unknown),
    Kind.LEASE_HELD: _entry(types.LeaseHeld),
    Kind.LEASE_REFUSED: _entry(types.LeaseRefused),
    Kind.DONE: _entry(None, 1),
    Kind.LEAVE: _entry(types.Leave),
    Kind.LEFT: _entry(None, 1),
    Kind.PEER_HELLO: _entry(types.PeerHello),
    Kind.PEER_WELCOME: _entry(types.PeerWelcome),
    Kind.PEER_REFUSED: _entry(types.PeerRefused),
    Kind.TAKE: _entry(types.TakenLease),
    Kind.RENEW_TAKEN: _entry(types.RenewTaken, _LISTS),
    Kind.ACKNOWLEDGE: _entry(types.TakenLease),
    Kind.RENEW_ANSWERED: _entry(types.RenewAnswered, _LISTS),
    Kind.KV_EVENTS: _entry(types.KvEvents, _LARGE),
    Kind.KV_DUMP: _entry(types.KvDump, _LARGE),
    Kind.KV_REPLAY: _entry(types.KvReplay),
    Kind.STORE_HELLO: _entry(types.StoreHello),
    Kind.STORE_WELCOME: _entry(types.StoreWelcome),
    Kind.STORE_REFUSED: _entry(types.StoreRefused),
    Kind.PUT: _entry(types.Put, _LARGE),
    Kind.LOCATE: _entry(types.Locate, _LARGE),
    Kind.LOCATED: _entry(types.Located, _LARGE),
    Kind.STORE_WATCH: _entry(types.StoreWatch),
    Kind.STORE_ASK: _entry(types.StoreAsk, _LARGE),
    Kind.STORE_ANSWER: _entry(types.StoreAnswer, _LARGE),
    Kind.FORGET: _entry(types.Forget, _LARGE),
    Kind.POOL_HELLO: _entry(types.PoolHello),
    Kind.POOL_WELCOME: _entry(types.PoolWelcome),
    Kind.POOL_READ: _entry(types.PoolRead, _LISTS),
    Kind.POOL_LENT: _entry(types.PoolLent, _LARGE),
    Kind.POOL_PLACE: _entry(types.PoolPlace, _LISTS),
    Kind.POOL_CLEAR: _entry(types.PoolClear, _LARGE),
    Kind.PROBE: _entry(types.Probe),
    Kind.PROBED: _entry(types.Probed, 2 * _LISTS),
}


def _limits(*kinds: Kind) -> dict[int, int]:
    return {int(kind): _ENTRIES[kind].max_bytes for kind in kinds}


TO_GATEWAY = _limits(
    Kind.HELLO,
    Kind.REPORT,
    Kind.EVENTS,
    Kind.KV_EVENTS,
    Kind.KV_DUMP,
    Kind.ADMITTED,
    Kind.REJECTED,
    Kind.ABORTED,
    Kind.UNKNOWN,
    Kind.LEASE_HELD,
    Kind.LEASE_REFUSED,
    Kind.DONE,
    Kind.LEAVE,
)
"""What a gateway may receive, each with its longest payload; likewise the others."""
TO_WORKER = _limits(
    Kind.WELCOME,
    Kind.JOIN_REFUSED,
    Kind.HEARTBEAT,
    Kind.DISPATCH,
    Kind.ADOPT,
    Kind.ABORT,
    Kind.GRANT,
    Kind.RENEW,
    Kind.RELEASE,
    Kind.SET_ROLE,
    Kind.KV_REPLAY,
    Kind.LEFT,
)
TO_OWNER = _limits(Kind.PEER_HELLO, Kind.TAKE, Kind.RENEW_TAKEN, Kind.ACKNOWLEDGE)
TO_TAKER = _limits(
    Kind.PEER_WELCOME,
    Kind.PEER_REFUSED,
    Kind.LEASE_HELD,
    Kind.LEASE_REFUSED,
    Kind.RENEW_ANSWERED,
)

TO_STORE = _limits(
    Kind.STORE_HELLO,
    Kind.STORE_WATCH,
    Kind.HEARTBEAT,
    Kind.PUT,
    Kind.FORGET,
    Kind.LOCATE,
    Kind.RELEASE,
    Kind.KV_REPLAY,
    Kind.STORE_ASK,
)
FROM_STORE = _limits(
    Kind.STORE_WELCOME,
    Kind.STORE_REFUSED,
    Kind.HEARTBEAT,
    Kind.LOCATED,
    Kind.KV_EVENTS,
    Kind.KV_DUMP,
    Kind.STORE_ANSWER,
)
TO_POOLED_STORE = _limits(
    Kind.HEARTBEAT,
    Kind.KV_REPLAY,
    Kind.POOL_READ,
    Kind.POOL_PLACE,
    Kind.POOL_CLEAR,
    Kind.FORGET,
    Kind.RELEASE,
)
"""What a store of a pool may receive from another one that has called it; and from one that it has
called itself."""
TO_WATCHED_STORE = _limits(Kind.HEARTBEAT, Kind.KV_REPLAY, Kind.STORE_ASK)
"""Likewise from the gateway of another host."""
FROM_POOLED_STORE = _limits(
    Kind.POOL_WELCOME,
    Kind.STORE_REFUSED,
    Kind.HEARTBEAT,
    Kind.KV_EVENTS,
    Kind.KV_DUMP,
    Kind.POOL_LENT,
    Kind.STORE_ANSWER,
)

FROM_STRANGERS = _limits(Kind.HELLO)
"""What a gateway may receive from a worker that it has not taken in."""
FROM_STRANGE_TAKERS = _limits(Kind.PEER_HELLO)
"""Likewise an owner."""
FROM_STRANGE_CALLERS = _limits(Kind.STORE_HELLO, Kind.STORE_WATCH)
"""Likewise a store."""
FROM_STRANGE_STORES = _limits(Kind.POOL_HELLO, Kind.STORE_WATCH)
"""Likewise a store of a pool, from others and from a gateway."""

PROBES = _limits(Kind.PROBE)
"""What a door may receive besides, from anybody with a certificate of the cluster."""
FROM_PROBED = _limits(Kind.PROBED)

_encoder = msgspec.msgpack.Encoder()


class MessageTooLongError(FrameError):
    """The message can't be sent: its receiver would refuse it. Nothing was written."""


def encode(kind: Kind, message: object, number: int = 0) -> bytes:
    """The frame of a message. Raises `MessageTooLongError`; mutates nothing."""
    payload = _encoder.encode(message)
    most = _ENTRIES[kind].max_bytes
    if len(payload) > most:
        raise MessageTooLongError(
            f"a message of kind {kind.name.lower()} would have {len(payload)} bytes, "
            f"at most {most} may be"
        )
    return pack_frame(Frame(kind, number & MAX_NUMBER, payload))


def decode(frame: Frame) -> Any:
    """The message of a frame, of the type that its kind names. Raises `FrameError`."""
    try:
        return _ENTRIES[frame.kind].decoder.decode(frame.payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        kind = Kind(frame.kind).name.lower()
        raise FrameError(f"a message of kind {kind} is malformed: {error}") from None
