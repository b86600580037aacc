"""`antiphon drain`: take a worker out without losing a request."""

import typer

from . import options


def drain(
    worker: options.Worker,
    timeout: options.DrainTimeout = 120.0,
    url: options.Url = None,
    token_file: options.TokenFile = None,
) -> None:
    """Give WORKER nothing new, and return when it has nothing left.

    What still runs there after --timeout goes on elsewhere, with no token lost. The worker stays
    idle until `antiphon restart WORKER`, or `antiphon role WORKER ROLE` (its own role will do).

    \b
    antiphon drain mixed-1
    antiphon drain decode-0 --timeout 10
    """
    from antiphon.live.admin.client import find_server

    find_server(url, token_file).order(worker, "drain", timeout)
    typer.echo(f"{worker} is drained: it has nothing left and gets nothing new")
