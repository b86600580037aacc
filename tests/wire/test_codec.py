"""Each kind holds its type, whole and unchanged, within its limit; nothing else decodes."""

import tracemalloc
from dataclasses import asdict, is_dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import types
from antiphon.testing.typed_values import values
from antiphon.wire import (
    FROM_POOLED_STORE,
    FROM_PROBED,
    FROM_STORE,
    FROM_STRANGE_STORES,
    PROBES,
    TO_GATEWAY,
    TO_OWNER,
    TO_POOLED_STORE,
    TO_STORE,
    TO_TAKER,
    TO_WORKER,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    MessageTooLongError,
    decode,
    encode,
)

PAYLOADS: dict[Kind, Any] = {
    Kind.HELLO: types.Hello,
    Kind.WELCOME: types.Welcome,
    Kind.JOIN_REFUSED: types.JoinRefused,
    Kind.HEARTBEAT: None,
    Kind.REPORT: types.WorkerView,
    Kind.EVENTS: types.EventBatch,
    Kind.DISPATCH: types.Dispatch,
    Kind.ADOPT: types.Adopt,
    Kind.ABORT: types.Abort,
    Kind.GRANT: types.GrantTo,
    Kind.RENEW: types.Renew,
    Kind.RELEASE: types.Release,
    Kind.SET_ROLE: types.RoleChanged,
    Kind.ADMITTED: types.Admitted,
    Kind.REJECTED: types.Rejected,
    Kind.ABORTED: types.Aborted,
    Kind.UNKNOWN: types.Unknown,
    Kind.LEASE_HELD: types.LeaseHeld,
    Kind.LEASE_REFUSED: types.LeaseRefused,
    Kind.DONE: None,
    Kind.LEAVE: types.Leave,
    Kind.LEFT: None,
    Kind.PEER_HELLO: types.PeerHello,
    Kind.PEER_WELCOME: types.PeerWelcome,
    Kind.PEER_REFUSED: types.PeerRefused,
    Kind.TAKE: types.TakenLease,
    Kind.RENEW_TAKEN: types.RenewTaken,
    Kind.ACKNOWLEDGE: types.TakenLease,
    Kind.RENEW_ANSWERED: types.RenewAnswered,
    Kind.KV_EVENTS: types.KvEvents,
    Kind.KV_DUMP: types.KvDump,
    Kind.KV_REPLAY: types.KvReplay,
    Kind.STORE_HELLO: types.StoreHello,
    Kind.STORE_WELCOME: types.StoreWelcome,
    Kind.STORE_REFUSED: types.StoreRefused,
    Kind.PUT: types.Put,
    Kind.LOCATE: types.Locate,
    Kind.LOCATED: types.Located,
    Kind.STORE_WATCH: types.StoreWatch,
    Kind.STORE_ASK: types.StoreAsk,
    Kind.STORE_ANSWER: types.StoreAnswer,
    Kind.FORGET: types.Forget,
    Kind.POOL_HELLO: types.PoolHello,
    Kind.POOL_WELCOME: types.PoolWelcome,
    Kind.POOL_READ: types.PoolRead,
    Kind.POOL_LENT: types.PoolLent,
    Kind.POOL_PLACE: types.PoolPlace,
    Kind.POOL_CLEAR: types.PoolClear,
    Kind.PROBE: types.Probe,
    Kind.PROBED: types.Probed,
}
OF_POOLS = FROM_STRANGE_STORES | TO_POOLED_STORE | FROM_POOLED_STORE | PROBES | FROM_PROBED
EVERY_KIND = TO_GATEWAY | TO_WORKER | TO_OWNER | TO_TAKER | TO_STORE | FROM_STORE | OF_POOLS


def plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def only_frame(data: bytes) -> Frame:
    frame = FrameReader(EVERY_KIND).feed_one(data)
    assert frame is not None
    return frame


def test_every_kind_has_a_payload_and_a_receiver() -> None:
    assert set(PAYLOADS) == set(Kind) == set(EVERY_KIND)


@pytest.mark.parametrize("kind", Kind)
@settings(deadline=None, max_examples=20)
@given(data=st.data(), number=st.integers(0, 2**32 - 1))
def test_what_is_sent_is_what_comes(kind: Kind, data: st.DataObject, number: int) -> None:
    message = data.draw(values(PAYLOADS[kind]))
    frame = only_frame(encode(kind, message, number))
    assert (frame.kind, frame.number) == (kind, number)
    got = decode(frame)
    assert type(got) is type(message)
    assert plain(got) == plain(message)


@pytest.mark.parametrize("kind", Kind)
@settings(deadline=None, max_examples=60)
@given(payload=st.binary(max_size=200))
def test_no_bytes_bring_another_exception(kind: Kind, payload: bytes) -> None:
    try:
        got = decode(Frame(kind, 1, payload))
    except FrameError:
        return
    assert isinstance(got, PAYLOADS[kind] or type(None))


@pytest.mark.parametrize("kind", [Kind.EVENTS, Kind.DISPATCH, Kind.ADOPT, Kind.HELLO])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_nor_do_messages_with_something_changed(kind: Kind, data: st.DataObject) -> None:
    payload = bytearray(only_frame(encode(kind, data.draw(values(PAYLOADS[kind])))).payload)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        decode(Frame(kind, 1, bytes(payload)))
    except FrameError as error:
        assert kind.name.lower() in str(error)


@pytest.mark.parametrize("kind", Kind)
def test_a_claimed_length_allocates_nothing(kind: Kind) -> None:
    """A few bytes that announce four billion items, at the top and where a field is unknown."""
    bombs = (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\xa1x\xdd\xff\xff\xff\xff",
        b"\x81\xa6leases\xdd\xff\xff\xff\xff",
        b"\x81\xa6tokens\xdd\xff\xff\xff\xff",
        b"\x81\xa1x" + b"\x91" * 5000,
        b"\x91" * 5000,
    )
    tracemalloc.start()
    try:
        for bomb in bombs:
            with pytest.raises(FrameError):
                decode(Frame(kind, 1, bomb))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_a_message_that_its_receiver_would_refuse_is_not_sent() -> None:
    worker = types.WorkerId("w")
    leases = tuple(types.LeaseId(f"{number:064}") for number in range(20_000))
    with pytest.raises(MessageTooLongError, match="renew would have"):
        encode(Kind.RENEW, types.Renew(owner=worker, leases=leases))


def test_a_field_of_a_later_program_is_passed_over() -> None:
    """Within one protocol version fields with defaults may be added."""
    payload = msgspec.msgpack.encode({"request": "r", "ahead": 3, "mood": [1, {"a": 2}]})
    assert decode(Frame(Kind.ADMITTED, 1, payload)) == types.Admitted(
        request=types.RequestId("r"), ahead=3
    )


def test_directions_are_apart() -> None:
    """Nobody takes orders from whom it gives them to."""
    assert not TO_GATEWAY.keys() & TO_WORKER.keys()
    assert not TO_OWNER.keys() & TO_TAKER.keys()
    assert TO_GATEWAY.keys() & TO_TAKER.keys() == {Kind.LEASE_HELD, Kind.LEASE_REFUSED}
