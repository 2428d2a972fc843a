"""Writes all output: data to stdout in the chosen format, messages to stderr, tiles as the terminal shows them.

Given rows or Kubernetes objects. The only module of the command line that writes, so that it can escape every control
character in foreign names, messages and files; colours of our tiles are added last. JSON and YAML keep their meaning:
there such characters are written as escapes. Never decides what to show.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final, TextIO

import click
import msgspec

from dovetail.cli import slow_notice
from dovetail.model import plaintext
from dovetail.tables import text as plain_text
from dovetail.tables import yaml_dump
from dovetail.tables.gpus import gpu_tiles

PROGRESS_WIDTH = 120  # what is blanked after messages of unknown length
MAX_LINE_CHARACTERS: Final = 16_384  # of a message; a longer foreign name adds nothing
FORMATS: Final = ("table", "wide", "json", "yaml", "name")

_LAYOUT: Final = re.compile(r"([\n\t])")
_FLUSH_EVERY = 256  # lines


class BadInput(click.ClickException):
    """What was named or given cannot be used: exit code 2, without the usage that wrong options show."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """One message, with control characters escaped."""
        say(f"error: {self.message}")


def write_lines(lines: Sequence[str]) -> None:
    """Data for people or pipes, one write for all of it."""
    text = "\n".join(map(plaintext.escaped, lines))
    if not gpu_tiles.can_show_tiles(sys.stdout):
        text = gpu_tiles.ascii_only(text)
    elif _shows_colours(sys.stdout):
        text = gpu_tiles.coloured(text)
    _echo(text + "\n", sys.stdout)


def write_text(text: str) -> None:
    """Data as a template formats it: tabs and line ends stay, other control characters are escaped.

    Nothing is added to it in a pipe; a terminal gets the end of the last line.
    """
    parts = [
        part if part in ("\n", "\t") else plaintext.escaped(part) for part in _LAYOUT.split(text)
    ]
    is_open = sys.stdout.isatty() and not text.endswith("\n")
    _echo("".join(parts) + ("\n" if is_open else ""), sys.stdout)


def write_table(lines: Sequence[str]) -> None:
    """Lines of a table; a terminal gets them cut to its width, so that no row wraps inside a word."""
    if not sys.stdout.isatty():
        write_lines(lines)
        return
    columns = shutil.get_terminal_size().columns
    write_lines([plain_text.fitted(plaintext.escaped(line), columns) for line in lines])


def write_json(value: Any) -> None:
    """A value as one JSON document, indented."""
    _echo(_json(value), sys.stdout)


def write_json_line(value: Any, *, flushed: bool = True) -> None:
    """A value as JSON on one line, visible to readers at once if it is flushed."""
    line = plaintext.escaped_json(msgspec.json.encode(value).decode())
    _echo(line + "\n", sys.stdout, flushed=flushed)


def write_json_lines(values: Iterable[Any]) -> None:
    """Each value as JSON on a line. If producing a value raises, the lines before it are written anyway."""
    try:
        for number, value in enumerate(values, start=1):
            write_json_line(value, flushed=number % _FLUSH_EVERY == 0)
    finally:
        flush()


def write_yaml(document: str, trees: Sequence[dict[str, Any]]) -> None:
    """The YAML document of these trees; if it holds control characters, the trees are dumped again with escapes."""
    if not document.replace("\n", "").isprintable():
        document = "---\n".join(["", *map(yaml_dump.text, trees)])
    _echo(document, sys.stdout)


def write_objects(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects as one List, in JSON or YAML."""
    listed = list_of(trees)
    _echo(_json(listed) if form == "json" else yaml_dump.text(listed), sys.stdout)


def list_of(trees: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Objects of any kinds as one object."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": list(trees),
    }


def write_object(tree: dict[str, Any], form: str) -> None:
    """One Kubernetes object, in JSON or YAML."""
    _echo(_json(tree) if form == "json" else yaml_dump.text(tree), sys.stdout)


def write_documents(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects as YAML documents, or as one JSON List."""
    if form == "json":
        write_objects(trees, form)
        return
    _echo("---\n".join(yaml_dump.text(tree) for tree in trees), sys.stdout)


def say(message: str) -> None:
    """A message for people, never data. It may have several lines."""
    text = "\n".join(plaintext.escaped(_cut(line)) for line in message.split("\n"))
    if not gpu_tiles.can_show_tiles(sys.stderr):
        text = gpu_tiles.ascii_only(text)
    _echo(text + "\n", sys.stderr)


def progress(message: str, *, is_last: bool = False) -> None:
    """A message that the next one overwrites in the terminal. Logs and pipes get none."""
    if not sys.stderr.isatty():
        return
    _echo("\r" + plaintext.escaped(message) + ("\n" if is_last else ""), sys.stderr)


def clear_progress(width: int) -> None:
    """Blanks a progress message of that width, so that the next message begins on an empty line."""
    if sys.stderr.isatty():
        _echo("\r" + " " * width + "\r", sys.stderr)


def show_notice(notice: str) -> None:
    """A notice on the terminal while there is nothing else to show."""
    _put(f"\r{notice}", sys.stderr)


def blank_notice(notice: str) -> None:
    """Takes it away, so that the next message begins on an empty line."""
    _put(f"\r{' ' * len(notice)}\r", sys.stderr)


def flush() -> None:
    """Flushes the data written so far."""
    sys.stdout.flush()


def next_step(command: str) -> None:
    """The last line: the next command, as the program was called: `dovetail`, or `kubectl dovetail`."""
    context = click.get_current_context(silent=True)
    root = context.find_root().info_name if context is not None else None
    program = root if root and root.endswith("dovetail") else "dovetail"
    say(f"next: {program} {command}")


def _shows_colours(stream: TextIO) -> bool:
    """Whether a person looks at a terminal that knows colours, and wants them."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and not is_dumb and not os.environ.get("NO_COLOR")


def _echo(text: str, stream: TextIO, *, flushed: bool = True) -> None:
    """Writes characters that the stream's encoding lacks as escapes instead of failing; ends the notice of a wait."""
    slow_notice.end()
    _put(text, stream, flushed=flushed)


def _put(text: str, stream: TextIO, *, flushed: bool = True) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if encoding.lower() not in ("utf-8", "utf8"):
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text)
    if flushed:
        stream.flush()


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]}... ({len(line)} characters)"


def _json(tree: Any) -> str:
    formatted = msgspec.json.format(msgspec.json.encode(tree), indent=2).decode()
    return plaintext.escaped_json(formatted) + "\n"
