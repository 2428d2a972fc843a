"""Manifests that people name: files, directories, standard input; their objects, or all that is wrong with them.

Given names or contents. Addresses are refused. Never connects, never prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.files import bounded_files
from dovetail.manifest import manifests

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
ADDRESSES: Final = ("http://", "https://")


def read(
    given: Iterable[tuple[str, bytes]], *, namespace: str | None, default_namespace: str
) -> tuple[list[manifests.ManifestObject], list[str]]:
    """All objects of these contents, by name, and every problem with them. `namespace` is the only one allowed."""
    loaded = [
        manifests.load(content, file=name, default_namespace=namespace or default_namespace)
        for name, content in given
    ]
    objects = [item for manifest in loaded for item in manifest.objects]
    problems = [problem for manifest in loaded for problem in manifest.problems]
    problems += _namespace_problems(objects, namespace)
    problems += _repeated(objects)
    return objects, [str(problem) for problem in problems]


def contents(files: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Every file to read with its content. Raises InputError for a file that cannot be read."""
    for name in files:
        path = Path(name)
        if name.startswith(ADDRESSES):
            raise errors.InputError(
                f"{name}: addresses are not read; curl -fsSL {name} | dovetail apply -f -"
            )
        if name == STDIN or not path.is_dir():
            yield bounded_files.display_name(name), bounded_files.content(name)
            continue
        yield from _directory_contents(path, name)


def _directory_contents(directory: Path, name: str) -> Iterator[tuple[str, bytes]]:
    candidates = [file for file in directory.iterdir() if file.suffix in SUFFIXES]
    manifest_files = sorted(file for file in candidates if file.is_file())
    if not manifest_files:
        raise errors.InputError(f"{name}: no {', '.join(SUFFIXES)} files in this directory")
    for file in manifest_files:
        yield str(file), bounded_files.content(file)


def _namespace_problems(
    objects: Sequence[manifests.ManifestObject], namespace: str | None
) -> Iterator[manifests.ManifestProblem]:
    """Objects that name another namespace than the command."""
    for item in objects:
        stated = item.stored.struct.metadata.namespace
        if namespace and stated and stated != namespace:
            yield item.problem("metadata.namespace", f'is "{stated}", but -n says "{namespace}"')


def _repeated(
    objects: Sequence[manifests.ManifestObject],
) -> Iterator[manifests.ManifestProblem]:
    """Objects that are given twice."""
    seen: set[tuple[str, str, str, str]] = set()
    for item in objects:
        struct = item.stored.struct
        group = struct.api_version.rpartition("/")[0]
        key = (group, struct.kind, struct.metadata.namespace, struct.metadata.name)
        if struct.metadata.name and key in seen:
            yield item.problem("metadata.name", "given twice; expected each object once")
        seen.add(key)
