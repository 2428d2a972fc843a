"""Reads manifests named by -f for `apply`, `create` and `delete`: files, directories, standard input.

Every problem of every file is collected before any object is sent. Given names; returns objects with their places, or
says all problems and ends the command with exit code 1. Never connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.tables import text
from dovetail.files import bounded_files
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.manifest import manifests
from dovetail.model import gpu_annotations, workload_annotations

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
ADDRESSES = ("http://", "https://")
REFUSED = 1


def load(
    files: Sequence[str], *, namespace: str | None, default_namespace: str, did: str
) -> list[manifests.ManifestObject]:
    """All objects of the files. `did` ends "nothing was ..." where there is a problem."""
    loaded = [
        manifests.load(content, file=name, default_namespace=namespace or default_namespace)
        for name, content in contents(files)
    ]
    objects = [item for manifest in loaded for item in manifest.objects]
    problems = [problem for manifest in loaded for problem in manifest.problems]
    problems += _namespace_problems(objects, namespace)
    problems += _repeated(objects)
    if problems:
        refuse([str(problem) for problem in problems], did=did)
    if not objects:
        names = ", ".join(files)
        refuse([f"{names}: no objects found; expected at least one Kubernetes object"], did=did)
    return objects


def say_annotation_problems(objects: Sequence[manifests.ManifestObject]) -> None:
    """Annotations of ours that cannot be read. They stop nothing, so an object with them is taken."""
    for item in objects:
        annotated = workload_annotations.labels_and_annotations(item.stored.struct.metadata)
        for problem in workload_annotations.read(annotated).problems:
            output.say(str(item.problem("", problem)))
        for message in _notes_on_gpus(item.stored.struct):
            output.say(str(item.problem("", message)))


def _notes_on_gpus(struct: codec.Object) -> Iterator[str]:
    """Annotations about GPUs that keep a pod pending, and those without an effect."""
    if isinstance(struct, pods.Pod):
        for refusal in gpu_annotations.malformed(struct):
            yield f"{refusal.subject}: {refusal.detail}"
        yield from gpu_annotations.notes(struct)


def refuse(problems: Sequence[str], *, did: str, hint: str = "") -> NoReturn:
    """Says every problem, maybe what to do, and ends the command."""
    for problem in problems:
        output.say(f"error: {problem}")
    output.say(f"nothing was {did}: {text.counted(len(problems), 'problem')}")
    if hint:
        output.say(hint)
    raise click.exceptions.Exit(REFUSED)


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
