"""Kubernetes manifests: text in, objects or problems out.

Given YAML or JSON text with any number of documents and lists; every problem names file, document, object, field path
and what was expected. Strict by default, as kubectl is: an unknown field of a modelled kind is a problem. Objects of
other kinds are kept with a note. The caller decides whether one problem refuses everything. Never reads files, never
checks values beyond their type.
"""

from typing import Any, Final

import msgspec

from dovetail.kubetypes import codec, registry, untyped
from dovetail.manifest import known_kinds, yaml_text

_OLD_VERSIONS: Final = frozenset(
    f"resource.k8s.io/{version}" for version in ("v1alpha3", "v1beta1", "v1beta2")
)
_READ: Final = frozenset({("scheduling.k8s.io", "PriorityClass")})
_OWNERS: Final = frozenset(
    (kind.api_version.partition("/")[0], kind.name)
    for kind in (*registry.OWNERS, *registry.PARENTS)
)
# Older versions of kinds of the World, and the newest one, which has the same fields.
_NEWEST: Final = {
    (version, kind.name): kind.api_version
    for kind in registry.WORLD
    for version in kind.older_versions
}

# API groups of other schedulers, and the name `dovetail migrate` knows each scheduler by.
CONVERTIBLE: Final = {
    "kueue.x-k8s.io": "kueue",
    "scheduling.run.ai": "kai",
    "kai.scheduler": "kai",
    "kai.resources": "kai",
}
# Kinds of which `dovetail migrate` makes objects of ours, and the scheduler they belong to.
CONVERTED: Final = {
    ("kueue.x-k8s.io", "Cohort"): "kueue",
    ("kueue.x-k8s.io", "ClusterQueue"): "kueue",
    ("kueue.x-k8s.io", "LocalQueue"): "kueue",
    ("kueue.x-k8s.io", "ResourceFlavor"): "kueue",
    ("kueue.x-k8s.io", "WorkloadPriorityClass"): "kueue",
    ("kueue.x-k8s.io", "Topology"): "kueue",
    ("scheduling.run.ai", "Queue"): "kai",
    ("kai.scheduler", "Topology"): "kai",
}


class ManifestProblem(msgspec.Struct, frozen=True):
    """One thing wrong with a manifest, and where."""

    file: str
    document: int
    subject: str
    path: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        where = self.file
        if self.document:
            line = f" (line {self.line})" if self.line else ""
            where = f"{self.file}: document {self.document}{line}"
        parts = (where, self.subject, self.path, self.message)
        return ": ".join(part for part in parts if part)


class ManifestObject(msgspec.Struct, frozen=True):
    """One object of a manifest and where it stood."""

    file: str
    document: int
    line: int
    subject: str
    stored: codec.Stored

    def problem(self, path: str, message: str) -> ManifestProblem:
        """A problem found later, such as a value validation refuses, with this object's place."""
        return ManifestProblem(self.file, self.document, self.subject, path, message, self.line)


class Manifests(msgspec.Struct, frozen=True):
    """What a text holds. With problems, the objects are only those that could be read."""

    objects: tuple[ManifestObject, ...]
    problems: tuple[ManifestProblem, ...] = ()
    notes: tuple[ManifestProblem, ...] = ()


def load(
    text: str | bytes,
    *,
    file: str = "<input>",
    strict: bool = True,
    default_namespace: str = "default",
) -> Manifests:
    """Every object of the text. Namespaced objects without a namespace get the default one."""
    reader = _Reader(file, strict=strict, default_namespace=default_namespace)
    reader.read(text)
    return Manifests(tuple(reader.objects), tuple(reader.problems), tuple(reader.notes))


class _Reader:
    def __init__(self, file: str, *, strict: bool, default_namespace: str) -> None:
        self.file = file
        self.strict = strict
        self.default_namespace = default_namespace
        self.objects: list[ManifestObject] = []
        self.problems: list[ManifestProblem] = []
        self.notes: list[ManifestProblem] = []
        self._document = 0
        self._line = 1

    def read(self, text: str | bytes) -> None:
        try:
            if isinstance(text, bytes):
                text = text.decode()
            for document in yaml_text.documents(text):
                self._document, self._line = self._document + 1, document.line
                self._read_document(document.tree)
        except UnicodeDecodeError as error:
            self._refuse("", "", f"not UTF-8 text: byte {error.start} cannot be read")
        except yaml_text.TextError as error:
            self._document, self._line = self._document + 1, error.line
            self._refuse("", "", error.message)

    def _read_document(self, tree: Any) -> None:
        if not isinstance(tree, dict):
            self._refuse(
                "", "", f"expected an object with apiVersion and kind, got {untyped.shown(tree)}"
            )
            return
        try:
            items = codec.expanded(tree)
        except codec.DecodeError as error:
            self._refuse_misfits(error.subject, error.misfits)
            return
        for item in items:
            self._read_object(item)

    def _read_object(self, tree: dict[str, Any]) -> None:
        subject = _subject(tree)
        problem = self._type_problem(tree)
        if problem is not None:
            self._refuse(subject, *problem)
            return
        written_version = tree["apiVersion"]
        newest = _NEWEST.get((written_version, tree["kind"]))
        if newest is not None:
            tree = tree | {"apiVersion": newest}
        kind = codec.KINDS.get((tree["apiVersion"], tree["kind"]), codec.Generic)
        misfits = self._misfits(kind, tree)
        if misfits:
            self._refuse_misfits(subject, tuple(misfits))
            return
        if kind in codec.NAMESPACED:
            tree = self._placed(tree)
        try:
            stored = codec.decode(tree)
        except codec.DecodeError as error:
            self._refuse_misfits(subject, error.misfits)
            return
        self._keep(stored, written_version)

    def _type_problem(self, tree: dict[str, Any]) -> tuple[str, str] | None:
        """The field and message where apiVersion and kind name nothing this package can read."""
        for name in ("apiVersion", "kind"):
            value = tree.get(name)
            if not isinstance(value, str) or not value:
                return name, f"expected text, got {untyped.shown(value)}"
        version, kind = tree["apiVersion"], tree["kind"]

        is_known = (registry.RESOURCE_V1, kind) in codec.KINDS
        is_unread = version in _OLD_VERSIONS and (version, kind) not in _NEWEST
        if is_unread and is_known:
            message = f"{version} is not supported; write it as {registry.RESOURCE_V1}"
            return "apiVersion", message

        misspelt = known_kinds.problem_of(version, kind) if self.strict else None
        return None if misspelt is None else ("kind", misspelt)

    def _misfits(self, kind: type[codec.Object], tree: dict[str, Any]) -> list[untyped.Misfit]:
        misfits = untyped.misfits(kind, tree)
        # Of other kinds only the identity is modelled, so their fields are not known.
        if self.strict and kind is not codec.Generic:
            return misfits
        return [misfit for misfit in misfits if not misfit.is_unknown_field]

    def _placed(self, tree: dict[str, Any]) -> dict[str, Any]:
        metadata = tree.get("metadata") or {}
        if metadata.get("namespace"):
            return tree
        return tree | {"metadata": metadata | {"namespace": self.default_namespace}}

    def _keep(self, stored: codec.Stored, written_version: str) -> None:
        subject = codec.subject_of(stored.struct)
        metadata = stored.struct.metadata
        if not metadata.name and not metadata.generate_name:
            self._refuse(subject, "metadata.name", "name or generateName is required")
            return
        entry = ManifestObject(self.file, self._document, self._line, subject, stored)
        self.objects.append(entry)
        version, kind = stored.struct.api_version, stored.struct.kind
        if isinstance(stored.struct, codec.Generic):
            use = _use_of(version.partition("/")[0], kind)
            self.notes.append(entry.problem("", f"{version}: {use}"))
        elif version != written_version:
            self.notes.append(entry.problem("", f"{written_version}: kept as {version}"))

    def _refuse_misfits(self, subject: str, misfits: tuple[untyped.Misfit, ...]) -> None:
        for misfit in misfits:
            self._refuse(subject, misfit.path, misfit.message)

    def _refuse(self, subject: str, path: str, message: str) -> None:
        self.problems.append(
            ManifestProblem(self.file, self._document, subject, path, message, self._line)
        )


def _use_of(group: str, kind: str) -> str:
    """How an object of a kind outside the World is used."""
    if (group, kind) in _OWNERS:
        return "kept, read for gangs; makes no pods"
    if (group, kind) in _READ:
        return "kept, read when pods are created"
    scheduler = CONVERTED.get((group, kind))
    if scheduler is None:
        return "kept, not used"
    return f"kept, not used; `dovetail migrate {scheduler}` converts it"


def _subject(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    kind, namespace, name = (
        value if isinstance(value, str) else ""
        for value in (
            tree.get("kind"),
            metadata.get("namespace"),
            metadata.get("name") or metadata.get("generateName"),
        )
    )
    return codec.named(kind, namespace, name)
