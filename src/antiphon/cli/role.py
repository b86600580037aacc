"""`antiphon role`: flip a live worker."""

from typing import Annotated

import typer

from antiphon.types import Role

from . import options


def role(
    worker: options.Worker,
    role: Annotated[Role, typer.Argument(help="Its new role.", show_default=False)],
    timeout: options.DrainTimeout = 120.0,
    url: options.Url = None,
    token_file: options.TokenFile = None,
) -> None:
    """Give WORKER another role: it is drained, flipped, and takes requests again.

    Its process lives on, with model and prefix cache. A worker keeps its id, and its new role over
    restarts of its process, but not of the server.

    \b
    antiphon role decode-1 prefill
    antiphon role mixed-0 decode --timeout 10
    """
    from antiphon.live.admin.client import find_server

    find_server(url, token_file).order(worker, "role", timeout, role=role.value)
    typer.echo(f"{worker} is a {role.value} worker")
