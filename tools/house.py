"""Measures how readable the package is. Two laws fail the check; the rest are signposts, printed only.

Laws: a folder holds at most 22 modules, and at most 15 module names stand in more than one folder.
Signposts: long files and functions, functions with many arguments, branches per line, and variables
whose name says nothing. A limit met by packing lines is worse than one exceeded.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "dovetail"

MAX_MODULES: Final = 22
MAX_REPEATED_NAMES: Final = 15
LONG_FILE_LINES: Final = 600
LONG_FUNCTION_LINES: Final = 60
MANY_ARGUMENTS: Final = 8
COUNTED_FROM_LINES: Final = 5  # shorter functions have no room for a density
EMPTY_NAMES: Final = frozenset(
    [
        "one",
        "found",
        "known",
        "told",
        "made",
        "given",
        "left",
        "wanted",
        "kept",
        "taken",
        "asked",
        "named",
        "held",
        "said",
        "seen",
        "begun",
        "judged",
        "noted",
        "id_",
        "it",
        "thing",
        "other",
        "others",
        "these",
        "those",
        "here",
        "there",
        "rest",
        "more",
        "such",
    ]
)
BRANCHES: Final = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.IfExp,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
    ast.Assert,
)


class Function(NamedTuple):
    """One function and what is counted about it."""

    place: str
    lines: int
    arguments: int
    branches: int


def main() -> int:
    """Prints signposts and broken laws; 1 if a law is broken."""
    generated = set(PACKAGE.rglob("*_pb2.py"))
    files = sorted(set(PACKAGE.rglob("*.py")) - generated)
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    functions = [function for path in files for function in _functions(path, trees[path])]

    for line in (*_long_files(files), *_long_functions(functions), _figures(functions, trees)):
        print(line)
    broken = [*_wide_folders(files), *_repeated_names(files)]
    for line in broken:
        print(f"error: {line}")
    return 1 if broken else 0


def _wide_folders(files: list[Path]) -> Iterator[str]:
    widths = Counter(path.parent for path in files if path.name != "__init__.py")
    for folder, width in widths.items():
        if width > MAX_MODULES:
            name = folder.relative_to(ROOT)
            yield f"{name}: {width} modules, at most {MAX_MODULES}: make rooms by topic"


def _repeated_names(files: list[Path]) -> Iterator[str]:
    names = Counter(path.stem for path in files if not path.stem.startswith("__"))
    repeated = sorted(name for name, count in names.items() if count > 1)
    if len(repeated) > MAX_REPEATED_NAMES:
        limit = f"{len(repeated)} module names repeat, at most {MAX_REPEATED_NAMES}"
        yield f"{limit}: {', '.join(repeated)}"


def _long_files(files: list[Path]) -> Iterator[str]:
    for path in files:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > LONG_FILE_LINES:
            yield f"signpost: {path.relative_to(ROOT)} has {lines} lines: is there a second idea?"


def _long_functions(functions: list[Function]) -> Iterator[str]:
    for function in functions:
        if function.lines > LONG_FUNCTION_LINES:
            yield f"signpost: {function.place} has {function.lines} lines"
        if function.arguments > MANY_ARGUMENTS:
            yield f"signpost: {function.place} takes {function.arguments} arguments"


def _figures(functions: list[Function], trees: dict[Path, ast.Module]) -> str:
    counted = [function for function in functions if function.lines >= COUNTED_FROM_LINES]
    branches = sum(function.branches for function in counted)
    density = branches / sum(function.lines for function in counted)
    names = [
        node.id
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    empty = sum(name in EMPTY_NAMES for name in names) / len(names)
    return (
        f"{len(trees)} files, {len(functions)} functions, {density:.3f} branches per function line, "
        f"{empty:.1%} of variables named after nothing"
    )


def _functions(path: Path, tree: ast.Module) -> Iterator[Function]:
    name = path.relative_to(ROOT)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = len(node.args.args) + len(node.args.kwonlyargs)
            place = f"{name}:{node.lineno}: {node.name}"
            yield Function(place, lines, arguments, _branches(node))


def _branches(function: ast.AST) -> int:
    count = 0
    for node in ast.walk(function):
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


if __name__ == "__main__":
    sys.exit(main())
