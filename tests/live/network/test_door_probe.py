"""Doors answer probes to whoever has a certificate, to nobody else, and give no more than that."""

import asyncio
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from network_kit import address_of, gateway_on_tls, keys_of, make_keys, open_door

from antiphon.live.network import GATEWAY_NAME, dial, tls_name
from antiphon.live.network.probe import MOST_PROBE_BYTES, probe, speed
from antiphon.types import Probe
from antiphon.wire import FROM_PROBED, Ending, FrameStream, Kind


async def test_a_door_says_how_far_how_fast_and_at_what_time(tmp_path: Path) -> None:
    make_keys(tmp_path, "box1", "box2")
    keys = keys_of(tmp_path, "box2")
    async with gateway_on_tls(tmp_path, keys_of(tmp_path, "box1")) as (_, port):
        found = await probe(address_of(port, keys))
        assert found.problem == ""
        assert found.round_trip_s is not None
        assert found.round_trip_s > 0
        assert found.bytes_per_s is not None
        assert found.bytes_per_s > 0
        assert found.clock_ahead_s is not None
        assert abs(found.clock_ahead_s) < 60
        other = await probe(address_of(port, keys, tls_name("box3")))
        assert "not box3" in other.problem
        assert other.round_trip_s is None
    assert (await probe(address_of(port, keys))).problem != ""


@given(
    link=st.floats(1e5, 1e11),
    trip_s=st.floats(1e-4, 0.3),
    jitter=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_no_link_is_said_to_be_faster_than_it_is(
    link: float, trip_s: float, jitter: list[float]
) -> None:
    """Round trips vary, so that some answers come sooner than the one they'd be compared with."""
    now, turn = 0.0, 0

    async def ask(size: int) -> float:
        nonlocal now, turn
        took_s = trip_s * (0.1 + 0.9 * jitter[turn % len(jitter)]) + size / link
        now, turn = now + took_s, turn + 1
        return took_s

    found = asyncio.run(speed(ask, lambda: now))
    assert 0 < found <= link * (1 + 1e-9)
    if trip_s < 0.1 * 2**20 / link and 2**20 / link < 0.1:
        assert found > 0.5 * link, "nor much slower, where a round trip is short"


async def test_a_stranger_is_told_nothing(tmp_path: Path) -> None:
    make_keys(tmp_path / "own", "box1")
    make_keys(tmp_path / "others", "box1")
    foreign = keys_of(tmp_path / "others", "box1")
    async with open_door(keys_of(tmp_path / "own", "box1")) as (_, strangers, port):
        found = await probe(address_of(port, foreign, GATEWAY_NAME))
        assert found.problem
        assert found.clock_ahead_s is None
        assert not strangers.frames


async def test_who_probes_for_more_than_may_be_is_sent_away(tmp_path: Path) -> None:
    make_keys(tmp_path, "box1", "box2")
    over: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    async with open_door(keys_of(tmp_path, "box1")) as (_, strangers, port):
        stream = FrameStream(FROM_PROBED, clock=time.monotonic)
        stream.on_end = over.set_result
        await dial(stream, address_of(port, keys_of(tmp_path, "box2")), 5.0)
        stream.send(Kind.PROBE, Probe(MOST_PROBE_BYTES + 1), 1)
        async with asyncio.timeout(20):
            await over
        assert "at most" in strangers.endings[0].reason
