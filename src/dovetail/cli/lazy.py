"""A command group that imports a command only when it runs, so that help and the first output come at once.

Given names, modules and one line of help each, and hints for commands of other tools. Never imports a command to list
it.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from dovetail import errors

REFUSED = 1


class LazyGroup(click.Group):
    """Commands by name: ("module:attribute", "one line of help")."""

    def __init__(
        self,
        *arguments: Any,
        places: dict[str, tuple[str, str]],
        hints: dict[str, str],
        topics: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._places = places
        self._hints = hints
        self._topics = topics or {}
        # Called with the name of every command that is imported; completion adds to its parameters.
        self.prepare: Callable[[str, click.Command], None] = lambda name, command: None

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
        self.prepare(cmd_name, command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The names that begin so, with their lines of help; else the options."""
        names = [name for name in self._places if name.startswith(incomplete)]
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=self._places[name][1]) for name in names]

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parses the command line. Errors quote it with control characters escaped."""
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            raise _plain(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command to run. For an unknown one, the error suggests another."""
        if args and args[0] not in self._places and not args[0].startswith("-"):
            hint = self._hint(args[0])
            problem = f'"{args[0]}" is not a command'
            ctx.fail(f"{problem}; {hint}" if hint else problem)
        return super().resolve_command(ctx, args)

    def _hint(self, name: str) -> str:
        if name in self._hints:
            return self._hints[name]
        near = difflib.get_close_matches(name, self._places, n=1)
        return f"did you mean {near[0]}?" if near else ""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. An error of Dovetail is one message and exit code 1."""
        try:
            return super().invoke(ctx)
        except errors.DovetailError as error:
            from dovetail.cli import output  # nothing of it is needed for help

            output.say(f"error: {error}")
            ctx.exit(REFUSED)
        except click.UsageError as error:
            raise _plain(error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text by topic, without importing anything. A command of no topic comes last."""
        named = {name for names in self._topics.values() for name in names}
        unnamed = [name for name in self._places if name not in named]
        width = max(map(len, self._places))
        for topic, names in (
            *self._topics.items(),
            ("Commands" if not named else "Other", unnamed),
        ):
            lines = [
                (name.ljust(width), self._places[name][1]) for name in names if name in self._places
            ]
            if lines:
                with formatter.section(topic):
                    formatter.write_dl(lines)


def _plain(error: click.UsageError) -> click.UsageError:
    """The same error, with the words it quotes made safe to show."""
    from dovetail.model import plaintext  # not needed for help

    return click.UsageError(plaintext.escaped_lines(error.format_message()), error.ctx)
