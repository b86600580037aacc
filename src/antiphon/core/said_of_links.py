"""What processes report of whom they read KV from must at least be possible: it is shown as it is.

As in `said_by_workers`: each function returns what is wrong, as a phrase that follows "it says", or
nothing ("").
"""

from collections.abc import Sequence
from math import isfinite

from antiphon.types import (
    MOST_LINKS,
    MOST_PATHS,
    MOST_PROBLEM_CHARS,
    LinkUse,
    PathUse,
    PoolPeer,
)

from .host_names import is_host_name
from .store_pool.peer_address import MOST_PEERS

_MAX_COUNT = 2**62
_MAX_NAME_CHARS = 128
_MAX_LEVEL_CHARS = 16
_MAX_ADDRESS_CHARS = 8 * 300


def told_problem(text: str) -> str:
    """As much of it as may be reported, on one line."""
    return "".join(one if one.isprintable() else " " for one in text)[:MOST_PROBLEM_CHARS]


def wrong_in_links(links: Sequence[LinkUse]) -> str:
    """Few, with names, and counts of 0 or more."""
    if len(links) > MOST_LINKS:
        return f"it reads from {len(links)} workers, at most {MOST_LINKS} may be told"
    for link in links:
        if problem := (
            _wrong_text("a link's owner", link.owner, _MAX_NAME_CHARS)
            or _wrong_count("a link's bytes_total", link.bytes_total)
            or _wrong_in_paths(link.paths)
        ):
            return problem
    return ""


def wrong_in_pool(pool: Sequence[PoolPeer]) -> str:
    """Likewise for the stores of a pool."""
    if len(pool) > MOST_PEERS:
        return f"its pool has {len(pool)} stores"
    for peer in pool:
        if not is_host_name(peer.name):
            return f"a store is called {peer.name!r:.80}"
        if problem := (
            _wrong_text("a store's address", peer.address, _MAX_ADDRESS_CHARS)
            or _wrong_text("a store's problem", peer.problem, MOST_PROBLEM_CHARS)
            or _wrong_text("a store's level", peer.level, _MAX_LEVEL_CHARS)
            or _wrong_text("a store's level_problem", peer.level_problem, MOST_PROBLEM_CHARS)
            or _wrong_count("a store's blocks", peer.blocks)
            or _wrong_count("read_blocks_total", peer.read_blocks_total)
            or _wrong_count("read_bytes_total", peer.read_bytes_total)
            or _wrong_count("failed_reads_total", peer.failed_reads_total)
            or _wrong_speed(peer.bytes_per_s)
            or _wrong_in_paths(peer.paths)
        ):
            return problem
    return ""


def _wrong_in_paths(paths: Sequence[PathUse]) -> str:
    if len(paths) > MOST_PATHS:
        return f"a link has {len(paths)} paths, at most {MOST_PATHS} may be told"
    for path in paths:
        if problem := (
            _wrong_text("a path's address", path.address, _MAX_ADDRESS_CHARS)
            or _wrong_text("a path's problem", path.problem, MOST_PROBLEM_CHARS)
            or _wrong_count("a path's bytes_total", path.bytes_total)
            or _wrong_count("a path's failures_total", path.failures_total)
            or _wrong_count("a path's rests_total", path.rests_total)
            or _wrong_speed(path.bytes_per_s or 0.0)
        ):
            return problem
    return ""


def _wrong_text(name: str, text: str, most: int) -> str:
    return "" if len(text) <= most and text.isprintable() else f"{name} is no name: {text!r:.80}"


def _wrong_count(name: str, count: int) -> str:
    return "" if 0 <= count <= _MAX_COUNT else f"{name} is {count}"


def _wrong_speed(bytes_per_s: float) -> str:
    fine = isfinite(bytes_per_s) and bytes_per_s >= 0.0
    return "" if fine else f"a speed is {bytes_per_s}"
