"""`antiphon restart`: new processes for workers, one after the other, or for the KV store."""

from typing import Annotated

import typer

from antiphon.errors import UsageError

from . import options


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
    between two of them; the first that fails ends it. `store` restarts the KV store: what it would
    have given is computed meanwhile, and what it has on disk is there again.

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
    for worker in workers or known:
        started = server.order(worker, "restart", timeout)
        typer.echo(f"{worker} is back (pid {started['pid']})")
