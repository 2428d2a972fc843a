"""Writes the table of modules in docs/architecture.md from their docstrings; `--check` only compares.

Given nothing. The table stands between two marks; the rest of the page is left as it is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "dovetail"
PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- modules: made by tools/architecture.py, do not edit -->"
END: Final = "<!-- end of modules -->"


def main() -> int:
    """Rewrites the page, or with `--check` says whether it is as it should be; 1 if not."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, after = page.partition(BEGIN)
    tail = after.partition(END)[2]
    wanted = f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"
    if page == wanted:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.relative_to(ROOT)}: the table of modules is not what the docstrings say")
        print("next: .venv/bin/python tools/architecture.py")
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def table() -> str:
    """One section per room, one row per module, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        modules = sorted(path for path in folder.glob("*.py") if not _is_left_out(path))
        room = folder.relative_to(PACKAGE)
        if folder != PACKAGE:
            yield f"### {room}/"
            yield ""
            yield sentence(folder / "__init__.py")
            yield ""
        if modules:
            yield "| module | |"
            yield "|---|---|"
            for path in modules:
                yield f"| `{path.relative_to(PACKAGE)}` | {sentence(path).replace('|', chr(92) + '|')} |"
            yield ""


def _is_left_out(path: Path) -> bool:
    """The folder's own docstring stands above its table; generated modules have none."""
    return path.name == "__init__.py" or path.name.endswith("_pb2.py")


def sentence(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


if __name__ == "__main__":
    sys.exit(main())
