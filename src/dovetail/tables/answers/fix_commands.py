"""The commands that carry out a fix: kubectl patch, delete and create, ready to paste, with the patch as YAML.

Given a fix. Quotes for a shell. Never runs anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from dovetail.answer.replica.patches import ObjectRef, Patch, Tree
from dovetail.answer.why.why_answer import Fix
from dovetail.tables import yaml_dump

# What an API server lets a patch change in the spec of a pod that exists (core/v1).
_MUTABLE_POD_FIELDS = frozenset({"tolerations", "schedulingGates", "activeDeadlineSeconds"})


def lines_of(fix: Fix, columns: int) -> Iterator[str]:
    """The commands, the patch of each as YAML."""
    yield from of_patches(fix.patch, columns)


def of_patches(patches: Iterable[Patch], columns: int) -> Iterator[str]:
    """The same of patches alone."""
    for patch in patches:
        yield from _command(patch, columns)


def _command(patch: Patch, columns: int) -> Iterator[str]:
    target = _target(patch.object)
    if patch.delete:
        yield f"kubectl delete {target}"
    elif patch.create is not None:
        yield "printf '%s\\n' '"
        yield from _quoted(patch.create, columns)
        yield "' | kubectl create -f -"
    elif patch.merge is not None and _needs_new_pod(patch):
        yield f"# {patch.object}: a pod cannot change so; change its template, or create it again"
        yield from yaml_dump.lines(patch.merge, columns)
    elif patch.merge is not None:
        yield f"kubectl patch {target} --type merge -p '"  # it takes YAML as well as JSON
        yield from _quoted(patch.merge, columns)
        yield "'"


def _quoted(tree: Tree, columns: int) -> Iterator[str]:
    """YAML for the inside of single quotes of a shell. All lines may be indented alike: that is YAML, too."""
    for line in yaml_dump.lines(tree, columns):
        yield line.replace("'", "'\\''")


def _target(ref: ObjectRef) -> str:
    group = ref.api_version.rpartition("/")[0]
    kind = ref.kind.lower() + (f".{group}" if group else "")
    place = f" -n {shlex.quote(ref.namespace)}" if ref.namespace else ""
    return f"{kind} {shlex.quote(ref.name)}{place}"


def _needs_new_pod(patch: Patch) -> bool:
    if patch.object.kind != "Pod" or patch.merge is None:
        return False
    return not _MUTABLE_POD_FIELDS.issuperset(patch.merge.get("spec") or {})
