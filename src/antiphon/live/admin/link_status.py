"""Who reads KV from whom, and over which paths: parts of a cluster's status."""

from collections.abc import Sequence

import msgspec

from antiphon.types import Member, PathUse, PoolPeer


class PathStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One path to whom KV is read from. `state`: unused, open, resting, on trial. `bytes_per_s`
    None: not known at present. `problem`: the last failure's."""

    address: str
    state: str
    bytes_per_s: float | None
    bytes_total: int
    failures_total: int
    rests_total: int
    problem: str


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has pulled from another one, and over what: `transport` is memory (both are on
    one host), tcp or nixl."""

    reader: str
    owner: str
    transport: str
    bytes_total: int
    paths: tuple[PathStatus, ...] = ()


class PoolPeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another store of the pool, as one of them sees it. `state`: here, away (`problem` says why),
    or resting: reads from it failed, so that it is left alone for a while. `level`: what its blocks
    are read at, "" while it is away; `level_problem`: how the two stores are set, if not alike."""

    name: str
    address: str
    state: str
    blocks: int
    read_blocks_total: int
    read_bytes_total: int
    failed_reads_total: int
    bytes_per_s: float
    problem: str
    level: str
    level_problem: str
    paths: tuple[PathStatus, ...]


def link_statuses(members: Sequence[Member]) -> tuple[LinkStatus, ...]:
    """Who has pulled KV from whom, by their names."""
    links = [
        LinkStatus(
            reader=member.info.id,
            owner=link.owner,
            transport=link.transport.value,
            bytes_total=link.bytes_total,
            paths=tuple(map(_path, link.paths)),
        )
        for member in members
        for link in member.view.links or ()
    ]
    return tuple(sorted(links, key=lambda link: (link.reader, link.owner)))


def pool_peer_status(peer: PoolPeer) -> PoolPeerStatus:
    """What it sees, in the words of a status."""
    return PoolPeerStatus(
        name=peer.name,
        address=peer.address,
        state=peer.state.value,
        blocks=peer.blocks,
        read_blocks_total=peer.read_blocks_total,
        read_bytes_total=peer.read_bytes_total,
        failed_reads_total=peer.failed_reads_total,
        bytes_per_s=peer.bytes_per_s,
        problem=peer.problem,
        level=peer.level,
        level_problem=peer.level_problem,
        paths=tuple(map(_path, peer.paths)),
    )


def _path(path: PathUse) -> PathStatus:
    return PathStatus(
        address=path.address,
        state=path.state.value,
        bytes_per_s=path.bytes_per_s,
        bytes_total=path.bytes_total,
        failures_total=path.failures_total,
        rests_total=path.rests_total,
        problem=path.problem,
    )
