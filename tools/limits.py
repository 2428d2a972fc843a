"""Checks the sizes the house keeps: files under 600 lines, functions under 60. Prints offenders, exits 1."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Prints one line per offender; 0 when there is none."""
    offenders = [line for path in _python_files() for line in _offences(path)]
    for line in offenders:
        print(line)
    return 1 if offenders else 0


def _python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for path in (ROOT / line for line in listed.stdout.splitlines()) if path.exists()]


def _offences(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{name}: {lines} lines, at most {MAX_FILE_LINES}: split along an idea"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


if __name__ == "__main__":
    sys.exit(main())
