"""A command group that imports a command only when it is run, so that help and the first output come at once.

Given names, places and one line of help each, and what to say of commands people look for in vain. Never imports a
command to list it.
"""

import difflib
import importlib
from typing import Any

import click

from dovetail import errors

REFUSED = 1


class LazyGroup(click.Group):
    """Commands by name: ("module:attribute", "one line of help")."""

    def __init__(
        self, *arguments: Any, places: dict[str, tuple[str, str]], hints: dict[str, str], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._places = places
        self._hints = hints

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order they were given."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """The words of the command line, read. What is wrong with them is quoted without its power."""
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            raise _plain(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command meant; of one there is not, the nearest is told, or what does its work here."""
        if args and args[0] not in self._places and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._places, n=1)
            hint = self._hints.get(args[0]) or (f"did you mean {near[0]}?" if near else "")
            ctx.fail(f'"{args[0]}" is no command' + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. What Dovetail refuses is told in one message and ends with exit code 1."""
        try:
            return super().invoke(ctx)
        except errors.DovetailError as error:
            from dovetail.cli import output  # nothing of it is needed for help

            output.say(f"error: {error}")
            ctx.exit(REFUSED)
        except click.UsageError as error:
            raise _plain(error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._places.items()])


def _plain(error: click.UsageError) -> click.UsageError:
    """The same complaint, with the words it repeats made safe to show."""
    from dovetail.model import plaintext  # not needed for help

    return click.UsageError(plaintext.escaped_lines(error.format_message()), error.ctx)
