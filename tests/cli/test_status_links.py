"""What `antiphon status` shows of stores that read from each other."""

from typing import Any

from antiphon.cli.status_links import pool_parts
from antiphon.live.admin.link_status import pool_peer_status
from antiphon.report import printed
from antiphon.types import PeerState, PoolPeer, StoreName


def shown(*peers: PoolPeer) -> str:
    told = [pool_peer_status(peer) for peer in peers]
    pool: list[dict[str, Any]] = [
        {name: getattr(one, name) for name in one.__struct_fields__} for one in told
    ]
    return printed(*pool_parts({"store": {"id": "store", "pool": pool}}), width=120)


def test_the_level_that_is_really_used_and_why() -> None:
    here = PoolPeer(
        name=StoreName("box2"),
        address="box2@10.0.0.2:7420",
        state=PeerState.HERE,
        level="raw",
        level_problem="store_pool.level is int8 here and raw there: set the same on both",
    )
    away = PoolPeer(name=StoreName("box3"), address="box3@10.0.0.3:7420", state=PeerState.AWAY)
    lines = shown(here, away).splitlines()
    assert "level" in lines[1] or "level" in lines[2]
    assert any("box2" in line and " raw " in line for line in lines)
    assert lines[-1] == f"store reads box2 at raw: {here.level_problem}"


def test_nothing_is_said_of_stores_that_are_set_alike() -> None:
    peer = PoolPeer(
        name=StoreName("box2"), address="box2@10.0.0.2:7420", state=PeerState.HERE, level="int8"
    )
    assert " reads " not in shown(peer)
