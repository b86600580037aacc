"""A stream ends once, for a reason that is told, and never grows."""

import asyncio
import socket
from contextlib import suppress

import pytest
import wire_kit
from wire_kit import HELD, LEASE, half, pair, received, until

from antiphon.errors import PeerError
from antiphon.wire import (
    PROTOCOL_VERSION,
    TO_OWNER,
    Frame,
    Kind,
    OtherVersionError,
    decode,
    encode,
    owned_by_loop,
    pack_frame,
)
from antiphon.wire import stream as stream_module


async def test_messages_come_in_order_with_their_numbers(clock) -> None:
    owner, taker = await pair(clock)
    for number in range(1, 50):
        taker.stream.send(Kind.TAKE, LEASE, number)
    assert [(await owner.frame()).number for _ in range(1, 50)] == list(range(1, 50))
    owner.stream.send(Kind.LEASE_HELD, HELD, 7)
    assert decode(await taker.frame()) == HELD
    owner.stream.end("done")
    assert (await taker.ending()).reason == "the other side closed it"
    assert owner.endings == [owner.stream.ending]


async def test_half_a_message_and_then_the_end(clock) -> None:
    owner, other = await half(clock)
    other.sendall(encode(Kind.TAKE, LEASE, 1)[:-2])
    other.close()
    assert "in the middle of a message" in (await owner.ending()).reason
    assert owner.frames.empty()


@pytest.mark.parametrize("size", [1, 3, 9, 10, 11])
async def test_messages_that_come_in_crumbs(clock, size: int) -> None:
    owner, other = await half(clock)
    data = encode(Kind.TAKE, LEASE, 1) + encode(Kind.ACKNOWLEDGE, LEASE, 2)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for at in range(0, len(data), size):
        other.sendall(data[at : at + size])
        await asyncio.sleep(0)
    assert [(await owner.frame()).kind for _ in range(2)] == [Kind.TAKE, Kind.ACKNOWLEDGE]
    owner.stream.end("done")
    other.close()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "speaks protocol version"),
        (pack_frame(Frame(200, 0, b"")), "kind 200 may not come here"),
        (encode(Kind.LEASE_HELD, HELD), f"kind {int(Kind.LEASE_HELD)} may not come here"),
        (
            b"\xff\xff\xff\xff" + bytes([PROTOCOL_VERSION, Kind.TAKE, 0, 0, 0, 0]),
            "4294967295 bytes",
        ),
    ],
    ids=["garbage", "unknown kind", "wrong direction", "oversized"],
)
async def test_what_may_not_come_ends_the_stream(clock, data: bytes, problem: str) -> None:
    owner, other = await half(clock)
    other.sendall(encode(Kind.TAKE, LEASE, 1) + data)
    ending = await owner.ending()
    assert problem in ending.reason
    assert ending.failure is not None
    assert (await owner.frame()).kind == Kind.TAKE
    assert await received(other) == b""
    other.close()
    await asyncio.wait_for(owner.stream.wait_closed(), 10)
    assert len(owner.endings) == 1


async def test_what_its_handler_refuses_ends_the_stream(clock) -> None:
    owner, other = await half(clock)
    owner.stream.on_frame = lambda frame: decode(frame)
    other.sendall(pack_frame(Frame(Kind.TAKE, 1, b"\xc1")) + encode(Kind.TAKE, LEASE))
    assert "take is malformed" in (await owner.ending()).reason
    other.close()


async def test_last_words_reach_a_program_of_another_version(clock) -> None:
    owner, other = await half(clock)
    owner.stream.last_words = lambda error: repr(type(error)).encode()
    other.sendall(pack_frame(Frame(1, 0, b"hello from the future"), version=9))
    assert b"OtherVersionError" in await received(other)
    assert isinstance((await owner.ending()).failure, OtherVersionError)
    other.close()


async def test_finish_lets_what_was_sent_leave(clock) -> None:
    owner, other = await half(clock)
    for _ in range(20_000):
        owner.stream.send(Kind.LEASE_HELD, HELD)
    owner.stream.finish("no more")
    assert owner.stream.ending is not None
    with pytest.raises(PeerError, match="no more"):
        owner.stream.send(Kind.LEASE_HELD, HELD)
    assert len(await received(other)) == 20_000 * len(encode(Kind.LEASE_HELD, HELD))
    other.close()


async def test_finish_does_not_wait_for_ever(clock, monkeypatch) -> None:
    monkeypatch.setattr(stream_module, "LINGER_S", 0.01)
    owner, other = await half(clock)
    for _ in range(20_000):
        owner.stream.send(Kind.LEASE_HELD, HELD)
    owner.stream.finish("no more")
    await asyncio.wait_for(owner.stream.wait_closed(), 10)
    other.close()


async def test_a_slow_reader_makes_the_sender_wait(clock) -> None:
    owner, taker = await pair(clock)
    taker.stream.pause()
    sent = 0

    async def send_all() -> None:
        nonlocal sent
        for _ in range(100_000):
            await owner.stream.room()
            owner.stream.send(Kind.LEASE_HELD, HELD, 1)
            sent += 1

    sending = asyncio.create_task(send_all())
    await until(lambda: owner.stream.unsent_bytes > stream_module.ROOM_BYTES)
    before = sent
    for _ in range(20):
        await asyncio.sleep(0)
    assert sent == before < 100_000
    assert owner.stream.unsent_bytes < 2 * stream_module.ROOM_BYTES
    taker.stream.resume()
    await asyncio.wait_for(sending, 30)
    await until(lambda: taker.frames.qsize() == 100_000)
    owner.stream.end("done")


async def test_whoever_does_not_wait_for_room_loses_the_stream(clock, monkeypatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_UNSENT_BYTES", 300_000)
    owner, taker = await pair(clock)
    taker.stream.pause()
    with pytest.raises(PeerError, match="does not read"):
        for _ in range(100_000):
            owner.stream.send(Kind.LEASE_HELD, HELD, 1)
    assert "does not read" in (await owner.ending()).reason
    with pytest.raises(PeerError, match="does not read"):
        await owner.stream.room()


async def test_an_answer_that_ends_the_stream_is_no_accident(clock, monkeypatch) -> None:
    """Whoever asks and does not read ends his own stream, not the process."""
    monkeypatch.setattr(stream_module, "MAX_UNSENT_BYTES", 2**20)
    accidents: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: accidents.append(what))
    owner, other = await half(clock)
    owner.stream.on_frame = lambda _: owner.stream.send_frame(bytes(2**21))
    other.sendall(2 * encode(Kind.TAKE, LEASE, 1))
    assert "does not read" in (await owner.ending()).reason
    await asyncio.wait_for(owner.stream.wait_closed(), 10)
    assert len(owner.endings) == 1
    assert accidents == []
    other.close()


async def test_what_another_streams_end_does_in_a_handler_is_not_swallowed(clock) -> None:
    accidents = asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(lambda _, what: accidents.put_nowait(what))
    owner, other = await half(clock)
    another, _ = await half(clock)
    another.stream.end("done")
    owner.stream.on_frame = lambda _: another.stream.send(Kind.LEASE_HELD, HELD)
    other.sendall(encode(Kind.TAKE, LEASE, 1))
    what = await asyncio.wait_for(accidents.get(), 10)
    assert isinstance(what["exception"], PeerError)
    other.close()


async def test_whoever_does_not_read_answers_is_not_read_either(clock) -> None:
    owner, other = await half(clock, answers=True)
    asked = 0

    def answer(_: Frame) -> None:
        nonlocal asked
        asked += 1
        owner.stream.send_frame(bytes(1000))

    owner.stream.on_frame = answer
    ask, most = encode(Kind.TAKE, LEASE, 1), 50_000
    asking = asyncio.create_task(asyncio.to_thread(other.sendall, most * ask))
    await until(lambda: owner.stream.unsent_bytes > stream_module.ROOM_BYTES)
    before = asked
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked == before < most
    answers = 0
    while answers < most * 1000:
        answers += len(await asyncio.to_thread(other.recv, 2**20))
    await asyncio.wait_for(asking, 10)
    assert asked == most
    owner.stream.end("done")
    other.close()


async def test_nor_does_his_heartbeat_keep_him(clock) -> None:
    """A reader that was stopped is lost in time, whatever he has asked before."""
    owner, other = await half(clock, answers=True)
    owner.stream.on_frame = lambda _: owner.stream.send_frame(bytes(2 * stream_module.ROOM_BYTES))
    owner.stream.beat(0.001, 1.0, lambda: (Kind.LEASE_HELD, HELD))
    other.sendall(encode(Kind.TAKE, LEASE, 1))
    await until(lambda: owner.stream.unsent_bytes > stream_module.ROOM_BYTES)
    while not owner.over.is_set():
        other.sendall(encode(Kind.TAKE, LEASE, 1))
        clock.now += 0.2
        await until(lambda: owner.over.is_set() or owner.stream._ran_at == clock.now)
    assert "nothing was heard" in (await owner.ending()).reason
    other.close()


async def test_a_broken_connection_is_written_to_once(clock, caplog) -> None:
    """Thousands of messages in one pass of the loop, and not a line a message in the log."""
    owner, other = await half(clock)
    other.close()
    for _ in range(1000):
        with suppress(PeerError):
            owner.stream.send(Kind.LEASE_HELD, HELD)
    await owner.ending()
    await asyncio.wait_for(owner.stream.wait_closed(), 10)
    with pytest.raises(PeerError):
        owner.stream.send(Kind.LEASE_HELD, HELD)
    assert len(owner.endings) == 1
    assert caplog.messages == []


async def test_whoever_waits_for_room_hears_of_the_end(clock) -> None:
    owner, other = await half(clock)
    while owner.stream.unsent_bytes <= stream_module.ROOM_BYTES:
        owner.stream.send(Kind.LEASE_HELD, HELD, 1)
    waiting = asyncio.create_task(owner.stream.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    other.close()
    with pytest.raises(PeerError):
        await asyncio.wait_for(waiting, 10)


async def test_ends_are_told_once(clock) -> None:
    owner, other = await half(clock)
    owner.stream.end("first")
    owner.stream.end("second")
    owner.stream.finish("third")
    other.close()
    await asyncio.wait_for(owner.stream.wait_closed(), 10)
    assert [ending.reason for ending in owner.endings] == ["first"]


async def test_a_stream_that_ended_before_it_was_connected_stays_closed(clock) -> None:
    one, other = socket.socketpair()
    stream = stream_module.FrameStream(TO_OWNER, clock=clock)
    ear = wire_kit.Ear(stream)
    stream.end("too many")
    one.setblocking(False)
    with owned_by_loop(one):
        await asyncio.get_running_loop().create_unix_connection(lambda: stream, sock=one)
    other.settimeout(10)
    assert await received(other) == b""
    assert [ending.reason for ending in ear.endings] == ["too many"]
    other.close()
