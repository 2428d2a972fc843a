"""`dovetail completion`: the script that lets a shell complete commands, options, kinds, names and namespaces.

Also what kubectl calls to complete `kubectl dovetail`: the program `kubectl_complete-dovetail`.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final

import click
from click import shell_completion

from dovetail.cli import output
from dovetail.cli.work import shell_scripts

SHELLS: Final = ("bash", "zsh", "fish")
USAGE: Final = 2
PROGRAM: Final = "dovetail"
VARIABLE: Final = "_DOVETAIL_COMPLETE"  # what the scripts set when they ask
# Of cobra's shell completion, which kubectl asks plugins to speak.
NO_FILES: Final = ":4"
FILES: Final = ":0"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: source <(dovetail completion bash)      in ~/.bashrc
    zsh:  source <(dovetail completion zsh)       in ~/.zshrc, after compinit
    fish: dovetail completion fish | source       in ~/.config/fish/config.fish
    """
    completer = shell_scripts.COMPLETERS[shell](click.Command(PROGRAM), {}, PROGRAM, VARIABLE)
    output.write_text(completer.source())


def complete(instruction: str) -> int:
    """Answers a script, which asks with an instruction such as `zsh_complete`."""
    from dovetail.cli import main
    from dovetail.cli.work import completion_values

    completer_class = shell_scripts.COMPLETERS.get(instruction.partition("_")[0])
    if completer_class is None:
        return USAGE
    main.cli.prepare = completion_values.complete_values
    completer = completer_class(main.cli, {}, PROGRAM, VARIABLE)
    with contextlib.suppress(Exception):  # a shell shows nothing rather than a traceback
        sys.stdout.write(completer.complete() + "\n")
    return 0


def kubectl_complete() -> int:
    """Prints completions for `kubectl dovetail`, given the words after it; the last one is incomplete."""
    from dovetail.cli import main
    from dovetail.cli.work import completion_values

    words = sys.argv[1:]
    *before, incomplete = words or [""]
    main.cli.prepare = completion_values.complete_values
    completer = shell_completion.ShellComplete(main.cli, {}, PROGRAM, VARIABLE)
    try:
        completions = completer.get_completions(before, incomplete)
    except Exception:  # a shell shows nothing rather than a traceback
        completions = []
    is_file = any(item.type != "plain" for item in completions)
    lines = [
        f"{item.value}\t{item.help}" if item.help else str(item.value)
        for item in completions
        if item.type == "plain"
    ]
    sys.stdout.write("\n".join([*lines, FILES if is_file else NO_FILES]) + "\n")
    return 0
