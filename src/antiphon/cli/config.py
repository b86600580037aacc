"""`antiphon config show`: the whole effective configuration, with each key's meaning."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from antiphon.core.config import Entry, as_mapping, entries, format_size
from antiphon.types import Config

from .settings import load

config_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at the configuration."
)


@config_app.callback()
def _root() -> None:
    """Keeps `show` a command of its own, though it is the only one yet."""


@config_app.command("show")
def show(
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file to start from.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of TOML.")] = False,
) -> None:
    """Print the whole effective configuration, with the meaning of each key.

    The output is valid TOML: save it, change it, use it.

    \b
    antiphon config show > antiphon.toml
    antiphon serve --config antiphon.toml
    """
    effective = load(config, reaches_hosts=False)
    typer.echo(json.dumps(as_mapping(effective), indent=2) if as_json else as_toml(effective))


def as_toml(config: Config) -> str:
    """The configuration as TOML with comments. `core.config.build` of it is `config` again."""
    return "\n".join(_lines(config))


def _lines(config: Config) -> Iterator[str]:
    values = as_mapping(config)
    table = ""
    for entry in entries():
        if entry.table != table:
            yield from ([""] if table else [])
            table = entry.table
            yield f"# {type(getattr(config, table)).__doc__}"
            yield f"[{table}]"
        meaning = f"{entry.key.meaning} {entry.allowed[0].upper()}{entry.allowed[1:]}."
        yield from textwrap.wrap(meaning, 96, initial_indent="# ", subsequent_indent="#   ")
        if entry.name in values[table]:
            yield f"{entry.name} = {_toml(entry, values[table][entry.name])}"
        else:
            yield f"# {entry.name} ="


def _toml(entry: Entry, value: Any) -> str:
    """A TOML value. JSON's strings, numbers and lists are TOML's too; its DEL must be escaped."""
    if entry.key.size:
        value = format_size(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
