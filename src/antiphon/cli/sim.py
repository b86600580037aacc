"""`antiphon sim`: clusters in virtual time."""

import typer

from .sim_explore import explore

sim_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run clusters in virtual time, with the live system's own decisions.",
)
sim_app.command()(explore)


@sim_app.callback()
def _root() -> None:
    """Keeps `explore` a command of its own."""
