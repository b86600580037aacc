"""`antiphon bench URL`: a command that also has sub-commands."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

DEFAULT = "run"


class _AsGroup(typer.Context):
    """Messages on how a default command is used name it as it is typed: by its group alone."""

    @property
    def command_path(self) -> str:
        """See above."""
        return super().command_path if self.parent is None else self.parent.command_path


class DefaultCommand(TyperCommand):
    """The command of a `UrlOrCommand` that needs no name."""

    context_class = _AsGroup


class UrlOrCommand(TyperGroup):
    """What begins with none of the group's commands is what the default command is given.

    So `antiphon bench URL` is `antiphon bench run URL`; the group's help is that of the default
    command, with the other ones below.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See above."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See above."""
        self.commands[DEFAULT].format_help(ctx, formatter)
        self.format_commands(ctx, formatter)
