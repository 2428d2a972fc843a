"""Reads the documents: their console blocks, the files they ask to be written, their links.

A console block is fenced as ```console. A line that starts with `$ ` is a command; a trailing `# exit N` names
its exit code, 0 otherwise. The lines up to the next command are what it prints, stdout and stderr together. `...`
stands for anything: text inside a line, any number of lines on a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ALIASES = {"make run": "dovetail up"}  # what the target does once the environment is there
PROGRAMS = ("dovetail", "python")  # python: with this package, for documents about it
ELSEWHERE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "tools/oracle/README.md",
    "requirements/README.md",
)

_FENCE = re.compile(
    r"^(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE
)
_TITLE = re.compile(r'title="(?P<name>[^"]+)"')
_EXIT = re.compile(r"\s+# exit (?P<code>\d+)$")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: what follows the fence, the text, and the line it starts on."""

    info: str
    body: str
    line: int


class Command(NamedTuple):
    """One command of a document, and what the document says about it."""

    text: str
    code: int
    shown: tuple[str, ...]
    line: int

    @property
    def is_ours(self) -> bool:
        return self.text.split()[0] in PROGRAMS or self.text in ALIASES


def documents() -> list[Path]:
    """Every Markdown file of the project."""
    return [ROOT / name for name in ELSEWHERE] + sorted((ROOT / "docs").rglob("*.md"))


def blocks(text: str) -> Iterator[Block]:
    for result in _FENCE.finditer(text):
        yield Block(result["info"].strip(), result["body"], text.count("\n", 0, result.start()) + 1)


def commands(text: str) -> list[Command]:
    """The commands of all console blocks, in order."""
    return [
        command for block in blocks(text) if block.info == "console" for command in _commands(block)
    ]


def files(text: str) -> dict[str, str]:
    """The files a document asks its reader to save: blocks with title="name"."""
    titled = ((_TITLE.search(block.info), block.body) for block in blocks(text))
    return {title["name"]: body for title, body in titled if title}


def pattern(shown: tuple[str, ...]) -> re.Pattern[str]:
    """Matches output that is what was shown, `...` standing for anything."""
    lines = ["(?:.*\n)*?" if line.strip() == "..." else _line_pattern(line) for line in shown]
    return re.compile("".join(lines))


def links(text: str) -> list[str]:
    """Targets of all links outside code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [result["target"] for result in _LINK.finditer(prose)]


def anchors(text: str) -> set[str]:
    """The names headings can be linked by, as GitHub and MkDocs make them."""
    headings = (result["text"].lower() for result in _HEADING.finditer(_FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def _commands(block: Block) -> Iterator[Command]:
    lines = block.body.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        first = start + 1
        text = lines[start][2:]
        while text.endswith("\\"):
            text, first = f"{text[:-1]}{lines[first].strip()}", first + 1
        messages = _EXIT.search(text)
        shown = tuple(line for line in lines[first:end])
        yield Command(
            _EXIT.sub("", text),
            int(messages["code"]) if messages else 0,
            shown,
            block.line + start + 1,
        )


def _line_pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ \t]*\n"
