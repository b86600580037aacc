"""Commands in the process of the tests: a new one would take longer to start than most of them."""

from subprocess import CompletedProcess

from typer.testing import CliRunner

from antiphon.cli.app import app


def run_here(*arguments: str) -> CompletedProcess[str]:
    """`antiphon` with these arguments. Raises what a process would end with a traceback of."""
    done = CliRunner().invoke(app, list(arguments), prog_name="antiphon", catch_exceptions=False)
    return CompletedProcess(["antiphon", *arguments], done.exit_code, done.stdout, done.stderr)
