"""`antiphon status`: a running server, its workers, its KV store and its planner."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from antiphon.core.number_text import plural

from . import options
from .kv_tables import size_text
from .status_links import link_parts, pool_parts


def status(
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    url: options.Url = None,
    token_file: options.TokenFile = None,
) -> None:
    """Show a running server, its workers, its KV store and its planner.

    \b
    antiphon status
    antiphon status --url http://127.0.0.1:9000
    antiphon status --url https://gpu-box:8000 --token-file admin.token
    antiphon status --json | jq '.workers[] | select(.health != "joined")'
    antiphon status --json | jq .planner.decisions
    antiphon status --json | jq '.links[].paths[] | select(.state == "resting")'

    A worker's health is joined, suspect (silent for a moment) or draining; what has not joined is
    starting, waiting (to be started again after it died), stopping, or lost; expected is one that
    is to join from another host. A cluster of several hosts shows each worker's host, and what
    carries its stream: unix, or tls. The store's is ready,
    or one of these; of one that was started elsewhere ready or away.

    Below are who pulled KV from whom: over memory (both are on one host) or tcp, with each path's
    speed and state (unused, open, resting after failures, on trial); and what each store of a pool
    thinks of the others (here, away, resting) and has read from them.
    """
    from antiphon.live.admin.client import find_server

    answer = find_server(url, token_file).get("/admin/status")
    typer.echo(json.dumps(answer, indent=2) if as_json else as_table(answer))


def as_table(status: dict[str, Any]) -> str:
    """Several lines of text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    hosts = any(worker.get("host") for worker in status["workers"])
    for name in ("worker", "role", "health", *(("host", "stream") if hosts else ())):
        table.add_column(name)
    for name in ("pid", "cores", "running", "waiting", "KV", "lives"):
        table.add_column(name, justify="right")
    table.add_column("last problem")
    for worker in status["workers"]:
        used = worker["kv_used"]
        table.add_row(
            worker["id"],
            worker["role"],
            worker["health"],
            *((_or_dash(worker["host"]), _or_dash(worker["transport"])) if hosts else ()),
            _or_dash(worker["pid"]),
            ",".join(map(str, worker["cores"])) or "all",
            _or_dash(worker["running"]),
            _or_dash(worker["waiting"]),
            "–" if used is None else f"{used:.0%}",
            str(worker["life"]),
            worker["problem"],
        )
    console = Console(width=120, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(
            f"{status['model']}: {status['state']}, {status['open_requests']} open requests "
            f"(Antiphon {status['version']}, gateway pid {status['gateway_pid']})"
        )
        console.print(table)
        for store in filter(None, (status.get("store"), *status.get("host_stores", ()))):
            console.print(_store_line(store))
        for part in (*link_parts(status), *pool_parts(status)):
            console.print(part)
        if planner := status.get("planner"):
            for line in _planner_lines(planner):
                console.print(line)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip()


def _store_line(store: dict[str, Any]) -> str:
    problem = f", last problem: {store['problem']}" if store["problem"] else ""
    at = f" at {store['socket']}" if store["socket"] else ""
    lives = "" if store["life"] is None else f", lives {store['life']}"
    tiers = "".join(f"; {_tier_use(tier)}" for tier in store["tiers"])
    pid = _or_dash(store["pid"])
    return f"{store.get('id', 'store')}{at}: {store['health']} (pid {pid}{lives}{problem}){tiers}"


def _planner_lines(planner: dict[str, Any]) -> Iterator[str]:
    """What it wants now and why; then the last moves."""
    limit = f"{planner['mode']}, at most {plural(planner['budget'], 'worker')}"
    newest, *earlier = planner["decisions"] or [None]
    if newest is None:
        yield f"planner ({limit}): it has decided nothing yet"
        return
    yield f"planner ({limit}) wants {_sizes(newest['target'])}: {newest['reason']}"
    if planner["withheld"]:
        yield f"  not added: {planner['withheld']}"
    verb = "" if planner["mode"] == "act" else "would "
    for decision in [newest, *earlier]:
        if decision["moves"]:
            moves = ", ".join(decision["moves"])
            yield f"  {decision['ago_s']:.0f} s ago: {verb}{moves} ({decision['reason']})"


def _sizes(target: dict[str, int]) -> str:
    return " and ".join(f"{workers} {role}" for role, workers in target.items())


def _tier_use(tier: dict[str, Any]) -> str:
    if not tier["limit_bytes"]:
        return f"{tier['tier']}: {plural(tier['blocks'], 'block')}"
    return f"{tier['tier']}: {size_text(tier['used_bytes'])} of {size_text(tier['limit_bytes'])}"


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)
