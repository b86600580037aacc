"""`antiphon restart`: new processes for workers, one after the other, or for the KV store."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from antiphon.core.host_names import is_worker_on
from antiphon.errors import UsageError

from . import options
from .progress import tell


def restart(
    workers: Annotated[
        list[str] | None,
        typer.Argument(help="Ids, as `antiphon status` shows them; or store.", show_default="all"),
    ] = None,
    timeout: options.DrainTimeout = 120.0,
    url: options.Url = None,
    token_file: options.TokenFile = None,
) -> None:
    """Restart WORKERS one after the other, without losing a request.

    Each is drained, gets a new process, and has joined before the next one's turn. Ctrl-C stops
    between two of them; the first that fails ends it. Those of other hosts are left out: restart
    them there. `store` restarts the KV store: what it would have given is computed meanwhile, and
    what it has on disk is there again.

    \b
    antiphon restart
    antiphon restart decode-0 decode-1 --timeout 10
    antiphon restart store
    """
    from antiphon.live.admin.client import find_server

    server = find_server(url, token_file)
    status = server.get("/admin/status")
    known = [row["id"] for row in status["workers"]]
    for worker in workers or ():
        if worker not in known and not (worker == "store" and status.get("store")):
            raise UsageError(f"there is no worker {worker}: there are {', '.join(known)}")
    elsewhere = {row["id"]: row["host"] for row in status["workers"] if _is_remote(row)}
    for worker in workers or ():
        if worker in elsewhere:
            raise UsageError(_where(worker, elsewhere[worker]))
    for worker in workers or known:
        if worker in elsewhere:
            tell(_where(worker, elsewhere[worker]))
            continue
        started = server.order(worker, "restart", timeout)
        typer.echo(f"{worker} is back (pid {started['pid']})")


def _is_remote(row: Mapping[str, Any]) -> bool:
    """Whether another host starts that worker: it is called after it."""
    host = row.get("host")
    return bool(host) and is_worker_on(host, row["id"])


def _where(worker: str, host: str) -> str:
    return f"{worker} runs on host {host}: restart it there"
