"""Where output goes: data to stdout in the form asked for, talk to stderr, tiles as the terminal shows them.

Given rows or Kubernetes objects. The only module of the command line that writes: whatever names, messages or files of
others hold, no sign that steers a terminal passes it; the colours of our own tiles are added last. JSON and YAML keep
what they mean: there such signs are written as escapes. Never decides what to show.
"""

import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

import msgspec

from dovetail.cli import picture
from dovetail.model import plaintext

MAX_LINE_CHARACTERS: Final = 16_384  # of talk; a name of a megabyte says nothing more than its beginning
FORMATS: Final = ("table", "wide", "json", "yaml", "name")

_NUMBER_LIKE: Final = re.compile(r"[-+.]?[0-9][0-9_.,:eExXoOa-fA-F+-]*")


def write_lines(lines: Sequence[str]) -> None:
    """Data for people or pipes, one write for all of it."""
    text = "\n".join(map(plaintext.escaped, lines))
    if not picture.can_show_tiles(sys.stdout):
        text = picture.ascii_only(text)
    elif sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = picture.coloured(text)
    _echo(text + "\n", sys.stdout)


def write_json(value: Any) -> None:
    """A value as one JSON document, indented."""
    _echo(_json(value), sys.stdout)


def write_json_line(value: Any, *, flushed: bool = True) -> None:
    """A value as JSON on one line; whoever reads along sees each at once, unless it is not flushed."""
    _echo(plaintext.escaped_json(msgspec.json.encode(value).decode()) + "\n", sys.stdout, flushed=flushed)


def write_yaml(document: str, trees: Sequence[dict[str, Any]]) -> None:
    """YAML that was made elsewhere of these trees; written our own way where it holds what steers a terminal."""
    is_plain = document.replace("\n", "").isprintable()
    _echo(document if is_plain else "---\n".join(["", *map(_yaml, trees)]), sys.stdout)


def write_objects(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects as one List, in JSON or YAML."""
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(trees)}
    _echo(_json(listed) if form == "json" else _yaml(listed), sys.stdout)


def write_documents(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects one after the other: documents of YAML, or lines of JSON that belong together as a List."""
    if form == "json":
        write_objects(trees, form)
        return
    _echo("---\n".join(_yaml(tree) for tree in trees), sys.stdout)


def say(message: str) -> None:
    """Talk, never data. A message may have several lines."""
    text = "\n".join(plaintext.escaped(_cut(line)) for line in message.split("\n"))
    _echo((text if picture.can_show_tiles(sys.stderr) else picture.ascii_only(text)) + "\n", sys.stderr)


def progress(message: str, *, is_last: bool = False) -> None:
    """Talk that stands in one line of a terminal and is written over by the next."""
    _echo("\r" + plaintext.escaped(message) + ("\n" if is_last else ""), sys.stderr)


def flush() -> None:
    """What was written before is on its way."""
    sys.stdout.flush()


def next_step(command: str) -> None:
    """The last line: what to try now."""
    say(f"next: dovetail {command}")


def _echo(text: str, stream: TextIO, *, flushed: bool = True) -> None:
    """Signs the stream's encoding lacks are written as escapes, instead of ending in an error."""
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


def _yaml(tree: Any) -> str:
    import yaml

    class Dumper(yaml.CSafeDumper):
        """Quotes text that some YAML reader would take for a number."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        is_quoted = _NUMBER_LIKE.fullmatch(value) or not value.replace("\n", "").isprintable()
        style = '"' if is_quoted else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return plaintext.escaped_json(dumped)  # what it changes stands in double quotes, see above
