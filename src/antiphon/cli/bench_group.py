"""`antiphon bench URL`: a command that also has sub-commands."""

from typing import Any

from typer.core import TyperGroup

DEFAULT = "run"


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
