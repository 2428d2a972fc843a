"""Finds the process that listens on a TCP port of this machine, for the message about a port that is taken.

Given a port, reads /proc and returns words for people. A process of another user stays unnamed. Never signals anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dovetail.model import plaintext

PROC: Final = Path("/proc")
TABLES: Final = ("net/tcp", "net/tcp6")
LISTEN: Final = "0A"  # TCP_LISTEN in /proc/net/tcp
MOST_CHARACTERS: Final = 80


def holder_of(port: int) -> str:
    """`process 4711 (dovetail scheduler)`, or `another process` where it cannot be read."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in sorted(PROC.glob("[0-9]*")):
        if sockets.intersection(_open_files(process)):
            command = _command_line(process)
            return f"process {process.name} ({command})" if command else f"process {process.name}"
    return "another process"


def _listening_inodes(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on the port, on any address."""
    suffix = f":{port:04X}"
    for table in TABLES:
        for line in _text(PROC / table).splitlines()[1:]:
            row = line.split()
            if row[1].endswith(suffix) and row[3] == LISTEN:
                yield row[9]


def _open_files(process: Path) -> Iterator[str]:
    """What the descriptors of a process refer to; nothing for a process of another user."""
    try:
        links = list((process / "fd").iterdir())
    except OSError:
        return
    for link in links:
        try:
            yield str(link.readlink())
        except OSError:  # closed in between
            continue


def _command_line(process: Path) -> str:
    words = _text(process / "cmdline").replace("\0", " ").strip()
    line = plaintext.escaped(words)
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."


def _text(path: Path) -> str:
    """The content of a file of /proc; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
