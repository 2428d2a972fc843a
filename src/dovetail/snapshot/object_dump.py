"""Reads whatever objects of a cluster there are in files, as `kubectl get -o yaml` or `-o json` prints them.

Given a path, or `-` for standard input. Older API versions are converted; kinds outside the World are kept with their
identity; Secrets are dropped. What manifests leave out is filled in: uid, namespace, defaults, priority, namespaces
that objects are in. An object that cannot be read is left out and named. Never decides, never writes.
"""

from __future__ import annotations

import datetime
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors, timestamps
from dovetail.files import bounded_files
from dovetail.kubetypes import codec, object_set, registry, untyped
from dovetail.kubetypes.core import pod_limits, pods
from dovetail.manifest import manifests
from dovetail.sim.server import builtin_kinds, priority_classes
from dovetail.snapshot import (
    converted_versions,
    dump_time,
    filled_defaults,
    object_files,
    object_text,
    snapshot_kinds,
)

MAX_VERSION_DIGITS: Final = 20  # API servers count versions in 64 bits
NEWEST_TIME: Final = "the newest time in it"
FILE_TIME: Final = "when it was written; its objects record no time"
CURRENT_TIME: Final = "now; its objects record no time"
MAX_PROBLEMS: Final = 1_000  # in a summary

_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "dovetail.dev")
_KNOWN: Final = {
    (kind.group, kind.name): kind
    for kind in (
        *(row.kind for row in builtin_kinds.TABLE),  # for their scope
        *registry.ALL,
        *snapshot_kinds.EXPLAINING,
    )
}

Tree = dict[str, Any]


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a path, and what was made of it."""

    source: str
    objects: object_set.ObjectSet
    taken_at: datetime.datetime
    taken_by: str  # how that time is known
    files: int
    passed_over: int  # files that are neither YAML nor JSON by their name
    secrets: int
    versions: Mapping[str, tuple[str, ...]]  # by kind, as written
    problems: tuple[str, ...]  # files and objects that were left out
    duplicates: tuple[str, ...]
    added_namespaces: tuple[str, ...]
    added_uids: int

    @property
    def name(self) -> str:
        """How messages name it."""
        time = timestamps.to_text(self.taken_at)
        return f"objects in {self.source}, as of {time} ({self.taken_by})"


class DumpedKind(msgspec.Struct, frozen=True):
    """How many objects of a kind there are, and the versions they were written in."""

    kind: str
    count: int
    versions: tuple[str, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a dump holds, in numbers."""

    source: str
    taken_at: str
    taken_by: str
    files: int
    passed_over: int
    objects: int
    left_out: int
    given_twice: int
    secrets: int
    added_namespaces: tuple[str, ...]
    added_uids: int
    kinds: tuple[DumpedKind, ...]
    problems: tuple[str, ...]


def summary_of(dump: Dump) -> Summary:
    """What was read, kind by kind, and what was left out."""
    counts = {kind: dump.objects.count(kind) for kind in dump.versions}
    added = len(dump.added_namespaces)
    if registry.NAMESPACE.name in counts:
        counts[registry.NAMESPACE.name] -= added
    return Summary(
        source=dump.source,
        taken_at=timestamps.to_text(dump.taken_at),
        taken_by=dump.taken_by,
        files=dump.files,
        passed_over=dump.passed_over,
        objects=sum(counts.values()),
        left_out=len(dump.problems),
        given_twice=len(dump.duplicates),
        secrets=dump.secrets,
        added_namespaces=dump.added_namespaces,
        added_uids=dump.added_uids,
        kinds=tuple(
            DumpedKind(kind, counts[kind], versions)
            for kind, versions in sorted(dump.versions.items())
        ),
        problems=dump.problems[:MAX_PROBLEMS],
    )


class _Kept(NamedTuple):
    """An object and where it stood."""

    stored: codec.Stored
    place: object_text.Place


def read(path: str) -> Dump:
    """Everything that the path holds. Raises InputError where it holds no object that can be read."""
    files = object_files.ObjectFiles(path)
    reader = _Reader()
    file_times: list[datetime.datetime] = []
    for file in files.read():
        reader.read(file)
        if file.modified_at is not None:
            file_times.append(file.modified_at)
    problems = (*files.unreadable, *map(str, reader.problems))
    source = bounded_files.display_name(path)
    if not reader.kept:
        raise errors.InputError(_nothing_read(source, files, reader, problems))

    reader.set_priorities()
    added_namespaces = reader.add_namespaces()
    by_key = {key: kept.stored for key, kept in reader.kept.items()}
    stored = [*by_key.values()]
    newest_version = max(map(version_of, stored))
    taken_at, taken_by = _time_of(stored, file_times)
    return Dump(
        source=source,
        objects=object_set.of_keyed(source, by_key, revision=newest_version),
        taken_at=taken_at,
        taken_by=taken_by,
        files=reader.files,
        passed_over=files.passed_over,
        secrets=reader.secrets,
        versions={kind: tuple(sorted(each)) for kind, each in reader.versions.items()},
        problems=problems,
        duplicates=tuple(reader.duplicates),
        added_namespaces=added_namespaces,
        added_uids=reader.added_uids,
    )


def version_of(stored: codec.Stored) -> int:
    """The version of an object; 0 for one that no API server writes."""
    version = stored.struct.metadata.resource_version
    is_counted = version.isdecimal() and version.isascii() and len(version) <= MAX_VERSION_DIGITS
    return int(version) if is_counted else 0


def _nothing_read(
    source: str, files: object_files.ObjectFiles, reader: _Reader, problems: tuple[str, ...]
) -> str:
    """Why nothing could be read, with the next step."""
    if reader.secrets and not problems:
        return f"{source}: holds only Secrets, which are never read"
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        return f"{source}: no Kubernetes object could be read: {problems[0]}{more}"
    suffixes = ", ".join(object_files.TEXT_SUFFIXES)
    if reader.files == 0:
        other = files.passed_over
        seen = f"{other} other file{'s' if other > 1 else ''}" if other else "nothing"
        return f"{source}: no files to read: expected {suffixes} or archives of them, found {seen}"
    return f"{source}: holds no Kubernetes objects; expected what `kubectl get -o yaml` prints"


def _time_of(
    stored: list[codec.Stored], file_times: list[datetime.datetime]
) -> tuple[datetime.datetime, str]:
    """As of when the objects are, and how that is known."""
    newest = dump_time.newest(stored)
    if newest is not None:
        return newest, NEWEST_TIME
    if file_times:
        return max(file_times).replace(microsecond=0), FILE_TIME
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0), CURRENT_TIME


class _Reader:
    """Collects objects file by file."""

    def __init__(self) -> None:
        self.kept: dict[object_set.Key, _Kept] = {}
        self.problems: list[manifests.ManifestProblem] = []
        self.duplicates: list[str] = []
        self.versions: dict[str, set[str]] = {}
        self.secrets = 0
        self.files = 0
        self.added_uids = 0

    def read(self, file: object_files.FoundFile) -> None:
        self.files += 1
        for part in object_text.parts(file.name, file.content):
            match part:
                case object_text.WrittenObject():
                    self._read_object(part)
                case object_text.SecretSeen():
                    self.secrets += 1
                case _:
                    self.problems.append(part)

    def _read_object(self, part: object_text.WrittenObject) -> None:
        try:
            stored = self._completed(part, _decoded(part))
        except codec.DecodeError as error:
            subject = _subject(part)
            self.problems += [
                part.place.problem(subject, misfit.path, misfit.message) for misfit in error.misfits
            ]
        except converted_versions.UnreadVersion as error:
            self.problems.append(part.place.problem(_subject(part), error.field, str(error)))
        else:
            self._keep(part, stored)

    def _completed(self, part: object_text.WrittenObject, stored: codec.Stored) -> codec.Stored:
        """The object with what an API server would have added."""
        metadata, added = stored.struct.metadata, {}
        group = part.api_version.rpartition("/")[0]
        kind = _KNOWN.get((group, part.kind))
        name, namespace = metadata.name, metadata.namespace
        if not name and metadata.generate_name:
            name = metadata.generate_name + hashlib.sha256(stored.document).hexdigest()[:5]
            added["name"] = name
        if not name:
            raise codec.DecodeError("", (_UNNAMED,))
        if kind is not None and kind.is_namespaced and not namespace:
            namespace = added["namespace"] = object_set.DEFAULT_NAMESPACE
        if not metadata.uid:
            identity = f"{group}/{part.kind}/{namespace}/{name}"
            added["uid"] = str(uuid.uuid5(_UIDS, identity))
            self.added_uids += 1
        if added:
            tree = stored.tree
            tree["metadata"] = (tree.get("metadata") or {}) | added
            stored = _stored(type(stored.struct), tree)
        return filled_defaults.filled(stored)

    def _keep(self, part: object_text.WrittenObject, stored: codec.Stored) -> None:
        key = object_set.key_of(stored.struct)
        self.versions.setdefault(key.kind, set()).add(part.api_version)
        before = self.kept.get(key)
        if before is None:
            self.kept[key] = _Kept(stored, part.place)
            return
        is_newer = version_of(stored) >= version_of(before.stored)
        place = part.place if is_newer else before.place
        if is_newer:
            self.kept[key] = _Kept(stored, part.place)
        first, second = before.place.file, part.place.file
        files = f"in {first} and {second}" if first != second else f"twice in {first}"
        self.duplicates.append(
            f"{key}: is {files}; version {version_of(self.kept[key].stored)} "
            f"in document {place.document} of {place.file} counts"
        )

    def set_priorities(self) -> None:
        """Gives pods that state none the priority of their class, as an API server does when they are created."""
        classes = dict(_priorities(kept.stored for kept in self.kept.values()))
        default = next((each for each in classes.values() if each.is_default), None)
        for key, kept in self.kept.items():
            pod = kept.stored.struct
            if not isinstance(pod, pods.Pod) or pod.spec.priority is not None:
                continue
            name = pod.spec.priority_class_name
            priority = classes.get(name) if name else default
            if priority is None:
                continue
            tree = kept.stored.tree
            spec = {"preemptionPolicy": priority.policy} | (tree.get("spec") or {})
            tree["spec"] = spec | {"priority": priority.value}
            self.kept[key] = kept._replace(stored=_stored(pods.Pod, tree))

    def add_namespaces(self) -> tuple[str, ...]:
        """Adds the namespaces that objects are in and that were not dumped themselves; returns their names."""
        named = {key.namespace for key in self.kept if key.namespace}
        present = {key.name for key in self.kept if key.kind == registry.NAMESPACE.name}
        missing = sorted(named - present)
        for name in missing:
            tree = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": str(uuid.uuid5(_UIDS, f"/Namespace//{name}")),
                    "labels": {filled_defaults.NAME_LABEL: name},
                },
                "status": {"phase": "Active"},
            }
            stored = codec.decode(tree)
            place = object_text.Place("", 0, 0)
            self.kept[object_set.key_of(stored.struct)] = _Kept(stored, place)
        return tuple(missing)


class _Priority(NamedTuple):
    value: int
    policy: str
    is_default: bool = False


def _priorities(stored: Iterable[codec.Stored]) -> Iterator[tuple[str, _Priority]]:
    """The priority classes of the dump, and those that every cluster has."""
    for built_in in priority_classes.BUILT_IN:
        yield built_in.name, _Priority(built_in.value, built_in.policy)
    for each in stored:
        struct: Any = each.struct
        if isinstance(struct, pod_limits.PriorityClass):
            policy = struct.preemption_policy or priority_classes.PREEMPTS
            yield struct.metadata.name, _Priority(struct.value, policy, struct.global_default)


_UNNAMED: Final = untyped.Misfit("metadata.name", "is required")


def _decoded(part: object_text.WrittenObject) -> codec.Stored:
    """The object in the version that is read. Raises DecodeError or UnreadVersion."""
    group = part.api_version.rpartition("/")[0]
    if converted_versions.is_current(part.api_version, part.kind):
        known = _KNOWN.get((group, part.kind))
        struct_type = known.struct if known is not None else codec.Generic
        return codec.Stored(codec.decode_struct(struct_type, part.document), part.document)
    tree = converted_versions.converted(codec.parsed(part.document))
    group = tree["apiVersion"].rpartition("/")[0]
    known = _KNOWN.get((group, part.kind))
    return _stored(known.struct if known is not None else codec.Generic, tree)


def _stored(struct_type: type[Any], tree: Tree) -> codec.Stored:
    document = codec.encode_tree(tree)
    return codec.Stored(codec.decode_struct(struct_type, document), document)


def _subject(part: object_text.WrittenObject) -> str:
    """How messages name an object that does not decode."""
    metadata = codec.parsed(part.document).get("metadata")
    names: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
    namespace, name = names.get("namespace"), names.get("name") or names.get("generateName")
    return codec.named(
        part.kind,
        namespace if isinstance(namespace, str) else "",
        name if isinstance(name, str) else "",
    )
