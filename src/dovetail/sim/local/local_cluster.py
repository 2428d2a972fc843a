"""The cluster in memory: objects by kind, namespace and name, changed all at once or not at all.

State in, state out: `apply` and `delete` return a new cluster and leave the old one as it was. Every object
is judged before any is stored, by the rules of the API server and by the namespaces that exist. Time comes
from the caller. Never reads a file, never allocates a device.
"""

import functools
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

import msgspec

from dovetail.admission import admit
from dovetail.kubetypes import codec, field_errors, meta, object_set, registry
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import machines
from dovetail.sim.server import merge, priority_classes

CREATED: Final = "created"
CONFIGURED: Final = "configured"
UNCHANGED: Final = "unchanged"
DEFAULT_NAMESPACE: Final = "default"

_IS_NAMESPACED: Final = {kind.name: kind.is_namespaced for kind in registry.ALL}
# Cluster-scoped kinds outside the registry; any other kind outside it counts as namespaced.
_CLUSTER_SCOPED: Final = frozenset(
    {
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "IngressClass",
        "PriorityClass",
        "RuntimeClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "VolumeAttributesClass",
    }
)

_FIRST: Final = {"Namespace": 0, priority_classes.KIND: 1}
_SERVED: Final = {kind: version for version, kind in codec.KINDS}

Tree = dict[str, Any]


class Key(msgspec.Struct, frozen=True, order=True):
    """What an object is found by. Cluster-scoped objects have an empty namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return codec.named(self.kind, self.namespace, self.name)


class Record(msgspec.Struct, frozen=True):
    """A stored object, and the manifest last applied to it; empty if nobody applies it."""

    document: msgspec.Raw
    applied: msgspec.Raw = meta.NO_RAW


class Cluster(msgspec.Struct, frozen=True):
    """Everything that exists, and the number of the last change."""

    name: str
    revision: int = 0
    records: dict[Key, Record] = {}


class Given(msgspec.Struct, frozen=True):
    """An object to apply and where it was read, for messages."""

    tree: Tree
    source: str = ""


class Change(msgspec.Struct, frozen=True):
    """What applying did to one object."""

    key: Key
    outcome: str
    api_version: str


class Problem(msgspec.Struct, frozen=True):
    """Why an object was not taken: where it came from, which one it is, which field, what was expected."""

    source: str
    subject: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(
            part for part in (self.source, self.subject, self.field, self.message) if part
        )


class Applied(msgspec.Struct, frozen=True):
    """The cluster afterwards and one change per object, in the order given."""

    cluster: Cluster
    changes: tuple[Change, ...]


class Refused(msgspec.Struct, frozen=True):
    """Nothing was changed; all problems of all objects."""

    problems: tuple[Problem, ...]


def apply(
    cluster: Cluster,
    given: Iterable[Given],
    *,
    now: str,
    check_selector: field_errors.CheckExpression,
    namespace: str = DEFAULT_NAMESPACE,
    as_manifest: bool = True,
) -> Applied | Refused:
    """Creates or changes every object, or none. `namespace` is for namespaced objects that name none."""
    draft = _Draft(cluster, now=now, check_selector=check_selector, as_manifest=as_manifest)
    placed = [_placed(one, namespace) for one in given]
    draft.namespaces |= {key.name for key, _ in placed if key.kind == "Namespace"}
    # Namespaces before what lives in them, priority classes before pods, whatever the order of the file.
    turns = sorted(
        range(len(placed)), key=lambda number: _FIRST.get(placed[number][0].kind, len(_FIRST))
    )
    for number in turns:
        draft.take(*placed[number], number=number)
    return draft.result()


def delete(cluster: Cluster, key: Key) -> Cluster | None:
    """The cluster without the object, or None if there is no such object."""
    if key not in cluster.records:
        return None
    records = {other: record for other, record in cluster.records.items() if other != key}
    return msgspec.structs.replace(cluster, revision=cluster.revision + 1, records=records)


def written(cluster: Cluster, changed: Iterable[codec.Stored], *, now: str) -> Cluster:
    """The cluster after controllers wrote whole objects, status included. What does not differ keeps its version."""
    records, revision = dict(cluster.records), cluster.revision
    for stored in changed:
        key = key_of(stored.struct)
        before = records.get(key)
        document = stored.tree
        old: Tree | None = None if before is None else msgspec.json.decode(before.document)
        if old is not None and _same(document, old):
            continue
        revision += 1
        _stamp(document, old, key=key, revision=revision, now=now)
        applied = meta.NO_RAW if before is None else before.applied
        records[key] = Record(msgspec.Raw(codec.encode_tree(document)), applied)
    return msgspec.structs.replace(cluster, revision=revision, records=records)


def key_of(struct: codec.Object) -> Key:
    """What the object is found by."""
    return Key(struct.kind, struct.metadata.namespace, struct.metadata.name)


def get(cluster: Cluster, key: Key) -> codec.Stored | None:
    """One object, decoded."""
    record = cluster.records.get(key)
    return None if record is None else decoded(record)


def listed(cluster: Cluster, kind: str, *, namespace: str | None = None) -> Iterator[codec.Stored]:
    """The objects of one kind, of one namespace or all, by namespace and name."""
    for key in sorted(cluster.records):
        if key.kind == kind and namespace in (None, key.namespace):
            yield decoded(cluster.records[key])


def decoded(record: Record) -> codec.Stored:
    """The struct of a record beside its document."""
    return codec.decode(bytes(record.document))


def objects_of(cluster: Cluster, kinds: Container[str] | None = None) -> object_set.ObjectSet:
    """The objects as a read-only set; of some kinds, or all."""
    stored = [
        decoded(record)
        for key, record in cluster.records.items()
        if kinds is None or key.kind in kinds
    ]
    return object_set.of(cluster.name, stored, revision=cluster.revision)


def is_namespaced(kind: str) -> bool:
    """Whether objects of a kind live in namespaces."""
    return _IS_NAMESPACED.get(kind, kind not in _CLUSTER_SCOPED)


def has_admin_label(cluster: Cluster, namespace: str) -> bool:
    """Whether claims in the namespace may ask for admin access."""
    found = get(cluster, Key("Namespace", "", namespace))
    return (
        found is not None
        and found.struct.metadata.labels.get(claims.ADMIN_NAMESPACE_LABEL) == "true"
    )


class _Draft:
    """Changes under way on one apply; becomes a result once every object was looked at."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        now: str,
        check_selector: field_errors.CheckExpression,
        as_manifest: bool,
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._check_selector = check_selector
        self._as_manifest = as_manifest
        self._records = dict(cluster.records)
        self._revision = cluster.revision
        self._changes: dict[int, Change] = {}
        self._problems: dict[int, list[Problem]] = {}
        self._seen: set[Key] = set()
        self.namespaces = {key.name for key in cluster.records if key.kind == "Namespace"}
        classes = (
            record for key, record in cluster.records.items() if key.kind == priority_classes.KIND
        )
        self._classes = priority_classes.Classes(_readable(classes))

    def take(self, key: Key, one: Given, *, number: int) -> None:
        """Judges one object and, if it is good, stores it in the draft."""
        problems = self._problems.setdefault(number, [])
        say = functools.partial(Problem, one.source, str(key))
        if misplaced := self._misplaced(key, one.tree):
            problems.append(say(*misplaced))
            return
        self._seen.add(key)
        before = self._records.get(key)
        tree = one.tree if before is None else _changed_tree(before, one.tree)
        tree, misfits = self._prioritised(key, tree, before)
        if misfits:
            problems += [say(*misfit) for misfit in misfits]
            return
        try:
            stored = codec.decode(tree)
        except codec.DecodeError as error:
            problems += [say(misfit.path, misfit.message) for misfit in error.misfits]
            return
        verdict = self._verdict(key, stored.struct, before)
        problems += [say(problem.field, problem.message) for problem in verdict.problems]
        if verdict.is_valid:
            whole = codec.replace(stored, verdict.object)
            self._changes[number] = self._stored(key, whole, one.tree, before=before)

    def result(self) -> Applied | Refused:
        """The changed cluster, or all that is wrong, both in the order the objects were given."""
        if problems := tuple(
            one for number in sorted(self._problems) for one in self._problems[number]
        ):
            return Refused(problems)
        cluster = msgspec.structs.replace(
            self._cluster, revision=self._revision, records=self._records
        )
        return Applied(cluster, tuple(self._changes[number] for number in sorted(self._changes)))

    def _misplaced(self, key: Key, tree: Tree) -> tuple[str, str] | None:
        """What is wrong with where an object wants to be: (field, message)."""
        if (version := _SERVED.get(key.kind)) and tree.get("apiVersion") != version:
            return "apiVersion", f'expected "{version}", got "{tree.get("apiVersion")}"'
        if key in self._seen:
            return "metadata.name", "given twice; expected each object once"
        if not key.name:
            return "metadata.name", "is required; a generated name cannot be applied"
        if key.namespace and key.namespace not in self.namespaces:
            return "metadata.namespace", f'namespace "{key.namespace}" does not exist'
        return None

    def _prioritised(
        self, key: Key, tree: Tree, before: Record | None
    ) -> tuple[Tree, list[priority_classes.Misfit]]:
        """A pod with the priority of its class, a class that others may name; and what is wrong with either."""
        old = None if before is None else msgspec.json.decode(before.document)
        if key.kind == priority_classes.KIND:
            misfits = self._classes.misfits(tree, old)
            if not misfits:
                self._classes.put(tree)
            return tree, misfits
        spec = tree.get("spec")
        if key.kind != "Pod" or not isinstance(spec, dict):
            return tree, []
        if old is not None:
            return tree, [
                (f"spec.{field}", why) for field, why in priority_classes.changed(spec, old["spec"])
            ]
        admitted = self._classes.admitted(spec)
        if isinstance(admitted, dict):
            return tree | {"spec": admitted}, []
        return tree, [(f"spec.{admitted[0]}", admitted[1])]

    def _verdict(self, key: Key, new: codec.Object, before: Record | None) -> admit.Verdict:
        draft = msgspec.structs.replace(self._cluster, records=self._records)
        terms = field_errors.Terms(
            check_selector=self._check_selector,
            namespace_has_admin_label=bool(key.namespace) and has_admin_label(draft, key.namespace),
            now=self._now,
        )
        if before is None:
            return admit.create(new, terms)
        return admit.update(new, decoded(before).struct, terms=terms)

    def _stored(
        self, key: Key, stored: codec.Stored, tree: Tree, *, before: Record | None
    ) -> Change:
        """Puts an object into the draft, stamped if it is new or differs."""
        document = stored.tree
        old: Tree | None = None if before is None else msgspec.json.decode(before.document)
        outcome = CREATED if old is None else UNCHANGED if _same(document, old) else CONFIGURED
        if old is not None and outcome == UNCHANGED:
            document = old
        else:
            self._revision += 1
            _stamp(document, old, key=key, revision=self._revision, now=self._now)
        applied = msgspec.Raw(codec.encode_tree(tree)) if self._as_manifest else meta.NO_RAW
        self._records[key] = Record(msgspec.Raw(codec.encode_tree(document)), applied)
        return Change(key, outcome, str(document["apiVersion"]))


def _placed(one: Given, namespace: str) -> tuple[Key, Given]:
    """The object with its namespace filled in, and its key. Bad metadata is left for the judge to name."""
    metadata = one.tree.get("metadata")
    fields: Tree = metadata if isinstance(metadata, dict) else {}
    kind, name = str(one.tree.get("kind") or ""), str(fields.get("name") or "")
    if not is_namespaced(kind):
        return Key(kind, "", name), one
    place = str(fields.get("namespace") or namespace)
    if isinstance(metadata, dict):
        one = Given(one.tree | {"metadata": fields | {"namespace": place}}, one.source)
    return Key(kind, place, name), one


def _readable(records: Iterable[Record]) -> Iterator[Tree]:
    """Priority classes as they are stored; one that an older version took without reading it counts for nothing."""
    for record in records:
        tree = msgspec.json.decode(record.document)
        if not priority_classes.Classes(()).misfits(tree, None):
            yield tree


def _changed_tree(before: Record, tree: Tree) -> Tree:
    """The live object after the manifest, which cannot change status nor what the server keeps."""
    live = msgspec.json.decode(before.document)
    last: Tree = msgspec.json.decode(before.applied) if bytes(before.applied) else {}
    result = merge.merged(live, _without_status(tree), before=_without_status(last))
    kept = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
    result["metadata"] |= {
        name: live["metadata"][name] for name in kept if name in live["metadata"]
    }
    return result


def _without_status(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if name != "status"}


def _same(new: Tree, old: Tree) -> bool:
    return _bare(new) == _bare(old)


def _bare(tree: Tree) -> Tree:
    """An object without what the server stamps on it."""
    metadata = {
        name: value
        for name, value in tree.get("metadata", {}).items()
        if name
        not in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
    }
    return tree | {"metadata": metadata}


def _stamp(document: Tree, old: Tree | None, *, key: Key, revision: int, now: str) -> None:
    """Writes what an API server writes on every change."""
    metadata = document.setdefault("metadata", {})
    metadata["resourceVersion"] = str(revision)
    if old is None:
        metadata["uid"] = machines.derived_uuid(
            "object", key.kind, key.namespace, key.name, revision
        )
        metadata["creationTimestamp"] = now
        metadata["generation"] = 1
        return
    were = old.get("metadata", {})
    moved = document.get("spec") != old.get("spec")
    metadata["uid"] = were.get("uid")
    metadata["creationTimestamp"] = were.get("creationTimestamp")
    metadata["generation"] = int(were.get("generation") or 1) + moved
