"""What `antiphon kv` prints for people."""

from collections.abc import Sequence
from typing import Any

from antiphon.core.number_text import plural

_WIDTH = 120


def lookup_text(answer: dict[str, Any]) -> str:
    """Where a prompt is, holder by holder."""
    whole = answer["tokens"]
    table = _table(
        *(["tenant"] if _several(answer["places"]) else []),
        "holder",
        "tier",
        right=("tokens", "of it"),
    )
    for place in answer["places"]:
        table.add_row(
            *([_or_dash(place["tenant"])] if _several(answer["places"]) else []),
            place["holder"],
            place["tier"],
            _number(place["tokens"]),
            f"{place['tokens'] / whole:.0%}",
        )
    kept = answer["blocks"] * answer["block_tokens"]
    return _printed(
        f"The prompt has {plural(whole, 'token')}; {_number(kept)} of them, "
        f"{plural(answer['blocks'], 'block')} of {answer['block_tokens']}, can be kept.",
        *_store_line(answer["store"]),
        table,
    )


def stats_text(answer: dict[str, Any]) -> str:
    """All tiers, workers, and what the router knows."""
    index = answer["index"]
    return _printed(
        *(_store_line(answer["store"]) or ["The KV store is there."]),
        *([_tier_table(answer["tiers"])] if answer["tiers"] else []),
        *(part for host in answer.get("hosts", ()) for part in _host_parts(host)),
        "Workers' own memory, in tokens:",
        _worker_table(answer["workers"]),
        f"The router knows {plural(index['blocks'], 'different block')} of "
        f"{plural(index['holders'], 'holder')}; {index['behind']} of these are behind.",
    )


def _host_parts(host: dict[str, Any]) -> list[Any]:
    """The store of another host."""
    return [
        f"The store of host {host['host']}: {host['store']}.",
        *([_tier_table(host["tiers"])] if host["tiers"] else []),
    ]


def _tier_table(tiers: Sequence[dict[str, Any]]) -> Any:
    table = _table(
        "tier",
        right=("blocks", "used", "limit", "pinned", "leases", "put", "hit", "missed", "evicted"),
        last="dropped",
    )
    for tier in tiers:
        table.add_row(
            tier["tier"],
            _number(tier["blocks"]),
            size_text(tier["used_bytes"]),
            size_text(tier["limit_bytes"]),
            _number(tier["pinned_blocks"]),
            _number(tier["leases"]),
            _number(tier["put_blocks_total"]),
            _number(tier["hit_blocks_total"]),
            _number(tier["missed_blocks_total"]),
            _number(tier["evicted_blocks_total"]),
            ", ".join(f"{why} {_number(n)}" for why, n in tier["dropped"].items() if n) or "–",
        )
    return table


def _worker_table(workers: Sequence[dict[str, Any]]) -> Any:
    table = _table("worker", "role", right=("in use", "cached", "limit", "hit", "fetched"))
    for worker in workers:
        asked = worker["queried_tokens_total"]
        table.add_row(
            worker["worker"],
            worker["role"],
            _number(worker["held_tokens"]),
            _number(worker["cached_tokens"]),
            _number(worker["limit_tokens"]),
            f"{worker['hit_tokens_total'] / asked:.0%}" if asked else "–",
            _number(worker["fetched_tokens_total"]),
        )
    return table


def _store_line(state: str) -> list[str]:
    match state:
        case "off":
            return ["This server runs without a KV store (--store off)."]
        case "starting":
            return ["The KV store is starting: requests go on without it until it is there."]
        case "away":
            return ["The KV store is away: requests go on without it. The server's log says why."]
        case _:
            return []


def _table(*left: str, right: Sequence[str] = (), last: str | None = None) -> Any:
    from antiphon.report import empty_table

    return empty_table(*left, right=right, last=last)


def _printed(*parts: Any) -> str:
    from antiphon.report import printed

    return printed(*parts, width=_WIDTH).rstrip("\n")


def _several(places: Sequence[dict[str, Any]]) -> bool:
    return any(place["tenant"] is not None for place in places)


def _number(value: int) -> str:
    return f"{value:,}"


def size_text(size_bytes: int) -> str:
    """One decimal in the largest binary unit that leaves at least one."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)
