"""Who reads KV from whom, as `antiphon status` shows it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .kv_tables import size_text

_UNKNOWN = "–"


def link_parts(status: Mapping[str, Any]) -> Sequence[Any]:
    """A table of what workers pulled from each other; nothing if they did not."""
    links = status.get("links", ())
    if not links:
        return ()
    table = _table("reader", "from", "over", "path", "state", right=("pulled", "speed"))
    for link in links:
        first = [link["reader"], link["owner"], link["transport"]]
        pulled = size_text(link["bytes_total"])
        for path in link["paths"] or [None]:
            table.add_row(*first, *_path_cells(path), pulled, _speed(path))
            first, pulled = ["", "", ""], ""
    return ("KV that workers pulled:", table)


def pool_parts(status: Mapping[str, Any]) -> Sequence[Any]:
    """A table of what each store of a pool thinks of the others; nothing if there is no pool."""
    rows = [(store["id"], peer) for store in _stores(status) for peer in store.get("pool", ())]
    if not rows:
        return ()
    table = _table(
        "store",
        "peer",
        "state",
        right=("has blocks", "read", "failed", "speed", "level"),
        last="paths",
    )
    for store, peer in rows:
        state = f"{peer['state']}: {peer['problem']}" if peer["problem"] else peer["state"]
        table.add_row(
            store,
            peer["name"],
            state,
            f"{peer['blocks']:,}",
            f"{peer['read_blocks_total']:,} ({size_text(peer['read_bytes_total'])})",
            f"{peer['failed_reads_total']:,}",
            _speed(peer) if peer["read_blocks_total"] else _UNKNOWN,
            peer["level"] or _UNKNOWN,
            ", ".join(_short(path) for path in peer["paths"]) or _UNKNOWN,
        )
    notes = [
        f"{store} reads {peer['name']} at {peer['level']}: {peer['level_problem']}"
        for store, peer in rows
        if peer["level_problem"]
    ]
    return ("Pool of stores:", table, *notes)


def _stores(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if status.get("store"):
        yield status["store"]
    yield from status.get("host_stores", ())


def _path_cells(path: Mapping[str, Any] | None) -> tuple[str, str]:
    if path is None:
        return _UNKNOWN, _UNKNOWN
    failed = path["state"] in ("resting", "on trial")
    why = f": {path['problem']}" if failed and path["problem"] else ""
    return path["address"], path["state"] + why


def _short(path: Mapping[str, Any]) -> str:
    state = "" if path["state"] == "open" else f" {path['state']}"
    return f"{path['address']}{state}"


def _speed(one: Mapping[str, Any] | None) -> str:
    rate = None if one is None else one["bytes_per_s"]
    return _UNKNOWN if not rate else f"{size_text(int(rate))}/s"


def _table(*left: str, right: Sequence[str] = (), last: str | None = None) -> Any:
    from antiphon.report import empty_table

    return empty_table(*left, right=right, last=last)
