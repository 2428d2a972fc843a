"""Finds the files of which the image is made, and names their state.

Given the checkout; which files count is read from .containerignore, which lets through what the Containerfile copies.
Never follows a link out of the checkout.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONTAINERFILE: Final = ROOT / "Containerfile"
IGNORE_FILE: Final = ROOT / ".containerignore"


def fingerprint() -> str:
    """A name that changes with every file that may reach the image, and with how it is built."""
    digest = hashlib.sha256()
    builder = sorted(Path(__file__).parent.glob("*.py"))
    for path in [CONTAINERFILE, IGNORE_FILE, *builder, *sorted(files())]:
        content = path.read_bytes()
        mode = path.stat().st_mode & 0o111
        digest.update(f"{path.relative_to(ROOT)} {mode} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:20]


def files() -> Iterator[Path]:
    """The files of the build's context."""
    lines = IGNORE_FILE.read_text(encoding="utf-8").splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    ignored = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for name in allowed:
        place = ROOT / name
        paths = place.rglob("*") if place.is_dir() else [place]
        for path in paths:
            if path.is_file() and not _is_ignored(path, ignored):
                yield path


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    names = path.relative_to(ROOT).parts
    return any(fnmatch.filter(names, pattern) for pattern in patterns)
