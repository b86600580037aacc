"""Doors answer probes to whoever has a certificate, to nobody else, and give no more than that."""

import asyncio
import time
from pathlib import Path

from network_kit import address_of, gateway_on_tls, keys_of, make_keys, open_door

from antiphon.live.network import GATEWAY_NAME, dial, tls_name
from antiphon.live.network.probe import MOST_PROBE_BYTES, probe
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
