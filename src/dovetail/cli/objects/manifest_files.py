"""Reads manifests named by -f for `apply`, `create` and `delete`: files, directories, standard input.

Every problem of every file is collected before any object is sent. Given names; returns objects with their places, or
says all problems and ends the command with exit code 1. Never connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from dovetail.ask import given_manifests
from dovetail.cli import output
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.manifest import manifests
from dovetail.model import gpu_annotations, workload_annotations
from dovetail.tables import text

REFUSED = 1


def load(
    files: Sequence[str], *, namespace: str | None, default_namespace: str, did: str
) -> list[manifests.ManifestObject]:
    """All objects of the files. `did` ends "nothing was ..." where there is a problem."""
    contents = given_manifests.contents(files)
    objects, problems = given_manifests.read(
        contents, namespace=namespace, default_namespace=default_namespace
    )
    if problems:
        refuse(problems, did=did)
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
