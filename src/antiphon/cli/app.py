"""`antiphon`: the list of commands, and what every command does with an error.

    UsageError          one line on stderr, exit code 2     (the operator can mend it)
    PeerError           one line on stderr, exit code 1     (a server is not there, or failed)
    Ctrl-C, SIGTERM     exit code 130, 143
    a full disk         one line on stderr, exit code 1     (where the output goes)
    anything else       its traceback                       (it is a bug: we want to see it)

A command's heavy modules are imported inside it, so that `--help` and `--version` are quick.
"""

import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from antiphon import __version__
from antiphon.errors import PeerError, UsageError

from .bench import bench_app
from .cluster import cluster_app
from .config import config_app
from .drain import drain
from .drill import drill
from .interrupted import code_of
from .kv import kv_app
from .models import models_app
from .plan import plan
from .profile import profile
from .replay import replay
from .restart import restart
from .role import role
from .serve import serve
from .sim import sim_app
from .status import status
from .store import store
from .worker import worker

_NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT)
_RENAMED = {"--dtype": "is called --quantize now: int8 stays, fp32 is none"}
"""Options of earlier versions that a command has no more, and what to write instead."""
_CommandLineError: Any = typer.BadParameter.__bases__[0]
"""What is wrong with a command line, in the parser that typer brings along."""


class Commands(TyperGroup):
    """Runs a command and turns its expected errors into an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """See the top of this file."""
        try:
            return super().invoke(ctx)
        except (UsageError, PeerError) as error:
            typer.echo("antiphon: " + " ".join(str(error).split()), err=True)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except _CommandLineError as error:
            name = getattr(error, "option_name", None)
            if name not in _RENAMED or type(error).__name__ != "NoSuchOption":
                raise
            typer.echo(f"antiphon: {name} {_RENAMED[name]}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as error:
            raise typer.Exit(code_of(error)) from None
        except OSError as error:
            if error.errno not in _NOWHERE_TO_WRITE:
                raise
            typer.echo(f"antiphon: can't write: {error.strerror}", err=True)
            raise typer.Exit(1) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve large language models with an OpenAI-compatible API.",
    epilog="Start with: antiphon serve smollm2-135m",
)
app.command()(serve)
app.command()(status)
app.command()(drain)
app.command()(drill)
app.command()(role)
app.command()(restart)
app.command()(store)
app.command()(worker)
app.command()(profile)
app.command()(plan)
app.command()(replay)
app.add_typer(bench_app, name="bench")
app.add_typer(cluster_app, name="cluster")
app.add_typer(config_app, name="config")
app.add_typer(kv_app, name="kv")
app.add_typer(models_app, name="models")
app.add_typer(sim_app, name="sim")


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Entry point of the `antiphon` script."""
    try:
        app(prog_name="antiphon")
    except KeyboardInterrupt as error:  # before a command began
        sys.exit(code_of(error))
