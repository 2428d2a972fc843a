"""The controllers that every cluster needs, in memory: creates claims, releases devices, collects orphans.

Given the object store, acts until nothing is left to do. Stands in for the claim controller of kube-controller-manager,
in the parts a scheduler depends on, and runs the volume controllers and the garbage collector. `releases` and
`owner_pod` work on single objects, for callers that store claims elsewhere. Never allocates, never binds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from dovetail.kubetypes import codec, meta, names, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.registry import Kind
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, reservations
from dovetail.model.workloads import owner_gangs
from dovetail.sim.server import (
    budget_controller,
    builtin_kinds,
    claim_refusals,
    garbage_collector,
    namespace_controller,
    object_store,
    service_accounts,
    volume_controllers,
    watchers,
    write_rules,
)
from dovetail.sim.server.object_store import Change, ObjectStore, Record
from dovetail.sim.server.quotas.quota_ledger import QuotaLedger
from dovetail.sim.server.served_kinds import TableKey, table_key
from dovetail.world.events import ObjectKey, key_of

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
VOLUME_KINDS: Final = {
    kind.name: kind
    for kind in (*registry.STORAGE, registry.POD)
    if kind.name in volume_controllers.KINDS
}
_VOLUME_TABLES: Final = frozenset(
    table_key(kind) for name, kind in VOLUME_KINDS.items() if name != registry.POD.name
)
_POD: Final = table_key(registry.POD)
_CLAIM: Final = table_key(registry.CLAIM)
_GROUP: Final = table_key(registry.POD_GROUP)
_TEMPLATE: Final = table_key(registry.TEMPLATE)
_BUDGET: Final = table_key(registry.BUDGET)
_NAMESPACE: Final = table_key(registry.NAMESPACE)
_ACCOUNT: Final = table_key(builtin_kinds.SERVICE_ACCOUNT)

Tree = dict[str, Any]


def settle(shelf: ObjectStore) -> int:
    """Acts on everything in the store until nothing is left to do; returns how many revisions that took."""
    return Controllers(shelf).settle()


class Controllers:
    """The controllers of one store. They look only at objects that changed, and at those that depend on them."""

    def __init__(
        self,
        shelf: ObjectStore,
        *,
        owner_kind: garbage_collector.OwnerKind = garbage_collector.collected_kind,
        quotas: QuotaLedger | None = None,
        has_service_accounts: bool = False,
    ) -> None:
        self._shelf = shelf
        self._quotas = QuotaLedger(shelf) if quotas is None else quotas
        self._has_service_accounts = has_service_accounts
        self._namespaces: set[str] = set()  # in which the default service account may be missing
        self._pause_at: int | None = None  # a revision
        self._pods: set[ObjectKey] = set()  # to look at
        self._claims: set[ObjectKey] = set()
        self._groups: set[ObjectKey] = set()
        self._waiting_pods: set[ObjectKey] = set()  # for a template, or for their group's claim
        self._waiting_groups: set[ObjectKey] = set()
        self._pods_naming: dict[ObjectKey, set[ObjectKey]] = {}  # by claim
        self._claims_held_by: dict[ObjectKey, set[ObjectKey]] = {}  # by pod or group
        self._volume_pods: dict[ObjectKey, Record] = {}
        self._are_volumes_new = False
        self._budgets_in: set[str] = set()  # namespaces with budgets
        self._uncounted: set[str] = set()  # of those, the ones in which pods or budgets changed
        self._collector = garbage_collector.GarbageCollector(shelf, owner_kind)
        self._namespace_controller = namespace_controller.NamespaceController(shelf)
        shelf.listen(self._note)
        for key, table in shelf.tables():
            for record in table.all():
                self._note_object(key, record, None, is_deleted=False)

    def settle(self, most_writes: int | None = None) -> int:
        """Acts until nothing is left to do; returns how many revisions that took.

        With `most_writes` it pauses after about that many, and goes on when it is called again.
        """
        shelf = self._shelf
        before = shelf.revision
        self._pause_at = None if most_writes is None else before + most_writes
        while True:
            start = shelf.revision
            if self._has_service_accounts:
                service_accounts.ensure(shelf, self._namespaces)
            self._namespaces.clear()
            self._retry_where_quotas_eased()
            for record in self._taken(registry.POD_GROUP, self._groups):
                self._look_at_group(record)
            for record in self._taken(registry.POD, self._pods):
                self._look_at_pod(record)
            for record in self._taken(registry.CLAIM, self._claims):
                _release(shelf, record)
            if self._are_volumes_new:
                self._are_volumes_new = False
                self._run_volume_controllers()
            for namespace in sorted(self._uncounted):
                budget_controller.count(shelf, namespace)
            self._uncounted.clear()
            self._collector.collect()
            self._namespace_controller.empty()
            self._quotas.write_statuses()
            if shelf.revision == start or self._is_pausing:
                return shelf.revision - before

    @property
    def _is_pausing(self) -> bool:
        return self._pause_at is not None and self._shelf.revision >= self._pause_at

    def _taken(self, kind: Kind, keys: set[ObjectKey]) -> Iterator[Record]:
        """The objects to look at, by name. What changes meanwhile is looked at in the next round."""
        ordered = sorted(keys)
        keys.clear()
        for place, key in enumerate(ordered):
            if self._is_pausing:
                keys.update(ordered[place:])
                return
            record = self._shelf.find(kind, key)
            if record is not None:
                yield record

    def _retry_where_quotas_eased(self) -> None:
        """Looks again at what a quota may have refused a claim."""
        eased = self._quotas.eased_namespaces()
        if not eased:
            return
        self._pods |= {key for key in self._waiting_pods if key[0] in eased}
        self._groups |= {key for key in self._waiting_groups if key[0] in eased}
        self._are_volumes_new |= any(key[0] in eased for key in self._volume_pods)

    def _look_at_group(self, record: Record) -> None:
        is_complete = _make_group_claims(self._shelf, record, self._quotas)
        _keep(self._waiting_groups, record.key, is_in=not is_complete)

    def _look_at_pod(self, record: Record) -> None:
        is_complete = _make_claims(self._shelf, record, self._quotas)
        _keep(self._waiting_pods, record.key, is_in=not is_complete)
        _reserve_claims(self._shelf, record.struct)

    def _run_volume_controllers(self) -> None:
        listed = {
            name: [record.tree for record in self._shelf.all(kind)]
            for name, kind in VOLUME_KINDS.items()
            if name != registry.POD.name
        }
        pods_by_name = sorted(self._volume_pods.items())
        listed[registry.POD.name] = [record.tree for _, record in pods_by_name]
        for tree in volume_controllers.changes(listed):
            kind = VOLUME_KINDS[tree["kind"]]
            if not _quota_refusal(self._shelf, self._quotas, kind, tree):
                self._shelf.put(kind, tree)

    # What changed

    def _note(self, change: Change) -> None:
        is_deleted = change.event == watchers.DELETED
        self._note_object(table_key(change.kind), change.record, change.old, is_deleted=is_deleted)

    def _note_object(
        self, table: TableKey, record: Record, old: Record | None, *, is_deleted: bool
    ) -> None:
        if table == _POD:
            self._note_pod(record, old, is_deleted=is_deleted)
        elif table == _CLAIM:
            self._note_claim(record, old, is_deleted=is_deleted)
        elif table == _GROUP:
            self._groups.add(record.key)
            self._pods |= self._waiting_pods
            self._claims |= self._claims_held_by.get(record.key, set())
        elif table == _TEMPLATE:
            self._pods |= self._waiting_pods
            self._groups |= self._waiting_groups
        elif table == _BUDGET:
            self._budgets_in.add(record.metadata.namespace)
            self._uncounted.add(record.metadata.namespace)
        elif table == _NAMESPACE:
            self._namespaces.add(record.metadata.name)
        elif table == _ACCOUNT:
            self._namespaces.add(record.metadata.namespace)
        elif table in _VOLUME_TABLES:
            self._are_volumes_new = True

    def _note_pod(self, record: Record, old: Record | None, *, is_deleted: bool) -> None:
        key = record.key
        self._pods.add(key)
        old_names = set() if old is None else set(reservations.named_claims(old.struct))
        names_ = set() if is_deleted else set(reservations.named_claims(record.struct))
        _reindex(self._pods_naming, key, old_names, names_)
        self._claims |= old_names | names_ | self._claims_held_by.get(key, set())
        if is_deleted:
            self._waiting_pods.discard(key)
        if key[0] in self._budgets_in:
            self._uncounted.add(key[0])

        has_volumes = bool(record.struct.spec.volumes)
        if has_volumes and not is_deleted:
            self._volume_pods[key] = record
        else:
            self._volume_pods.pop(key, None)
        self._are_volumes_new |= has_volumes

    def _note_claim(self, record: Record, old: Record | None, *, is_deleted: bool) -> None:
        key = record.key
        self._claims.add(key)
        self._pods |= self._pods_naming.get(key, set())
        old_holders = set() if old is None else _holders(old.struct)
        holders = set() if is_deleted else _holders(record.struct)
        _reindex(self._claims_held_by, key, old_holders, holders)


def _keep(keys: set[ObjectKey], key: ObjectKey, *, is_in: bool) -> None:
    if is_in:
        keys.add(key)
    else:
        keys.discard(key)


def _reindex(
    index: dict[ObjectKey, set[ObjectKey]],
    key: ObjectKey,
    old: Collection[ObjectKey],
    new: Collection[ObjectKey],
) -> None:
    """Moves a key of an index from its old entries to its new ones."""
    for entry in old:
        keys = index.get(entry)
        if keys is not None and entry not in new:
            keys.discard(key)
            if not keys:
                del index[entry]
    for entry in new:
        index.setdefault(entry, set()).add(key)


def _holders(claim: claims.ResourceClaim) -> set[ObjectKey]:
    """The pods and groups a claim is reserved for or belongs to, by name."""
    namespace = claim.metadata.namespace
    users = {(namespace, user.name) for user in claim.status.reserved_for}
    owner_names = {(namespace, owner.name) for owner in claim.metadata.owner_references}
    return users | owner_names


def releases(tree: Tree, staying: Collection[str]) -> Iterator[Tree]:
    """A claim after each write that removes all users but those of the given uids.

    With the last user, the devices are deallocated and then the finalizer is removed. An allocation without our
    finalizer belongs to another controller and stays.
    """
    status = dict(tree.get("status") or {})
    users = [user for user in status.pop("reservedFor", ()) if user.get("uid") in staying]
    metadata = dict(tree["metadata"])
    finalizers = metadata.pop("finalizers", [])
    if users:
        yield tree | {"status": status | {"reservedFor": users}}
    elif claims.DELETE_PROTECTION_FINALIZER not in finalizers:
        yield tree | {"status": status}
    else:
        status.pop("allocation", None)
        status.pop("devices", None)
        yield tree | {"status": dict(status)}

        ours = claims.DELETE_PROTECTION_FINALIZER
        other_finalizers = [finalizer for finalizer in finalizers if finalizer != ours]
        if other_finalizers:
            metadata["finalizers"] = other_finalizers
        yield tree | {"metadata": metadata, "status": status}


def owner_pod(claim: claims.ResourceClaim) -> meta.OwnerReference | None:
    """The pod for which a claim was created and with which it ends; None for a claim that any pod may use."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.kind == "Pod":
            return owner
    return None


def _quota_refusal(shelf: ObjectStore, quotas: QuotaLedger, kind: Kind, tree: Tree) -> str:
    """Why a quota forbids an object that a controller creates; empty if none does, or if it is there already."""
    metadata = tree["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    if not quotas.has_quotas(namespace) or shelf.find(kind, (namespace, name)) is not None:
        return ""
    refusal = quotas.refusal(table_key(kind), object_store.encoded(kind, tree))
    return str(write_rules.forbidden(kind, name, refusal)) if refusal else ""


def _make_claims(shelf: ObjectStore, record: Record, quotas: QuotaLedger) -> bool:
    """Creates a claim for each template that a pod names, and records its name in the pod's status.

    Returns whether the pod now has all of them. A claim that a quota forbids is recorded as an event on the pod.
    """
    pod: pods.Pod = record.struct
    if _is_over(pod) or pod.metadata.deletion_timestamp is not None:
        return True

    recorded_names = {status.name for status in pod.status.resource_claim_statuses}
    new_statuses = []
    for entry in pod.spec.resource_claims:
        template = _template(shelf, entry, namespace=pod.metadata.namespace)
        if entry.name in recorded_names or template is None:
            continue

        group = _group_of(shelf, pod)
        if group is not None and entry in group.claims:
            claim_name = _group_claims(shelf, pod).get(entry.name)
            if claim_name is None:
                continue  # the group's claim has to be created first
        else:
            claim = _from_template(
                "v1", "Pod", pod.metadata, entry=entry.name, template=template.tree
            )
            refusal = _quota_refusal(shelf, quotas, registry.CLAIM, claim)
            if refusal:
                claim_refusals.record(shelf, pod, entry.name, refusal)
                continue
            shelf.put(registry.CLAIM, claim)
            claim_name = claim["metadata"]["name"]
        new_statuses.append({"name": entry.name, "resourceClaimName": claim_name})

    if new_statuses:
        status: Tree = record.tree.get("status") or {}
        statuses = [*status.get("resourceClaimStatuses", ()), *new_statuses]
        shelf.put(
            registry.POD, record.tree | {"status": status | {"resourceClaimStatuses": statuses}}
        )
    recorded_names |= {status["name"] for status in new_statuses}
    return _has_all(pod.spec.resource_claims, recorded_names)


def _has_all(entries: Iterable[pods.PodResourceClaim], recorded_names: Collection[str]) -> bool:
    """Whether every entry with a template has its claim."""
    return all(
        entry.name in recorded_names or not entry.resource_claim_template_name for entry in entries
    )


def _make_group_claims(shelf: ObjectStore, record: Record, quotas: QuotaLedger) -> bool:
    """Creates a claim for each template that a PodGroup names, and records its name in the group's status.

    Returns whether the group now has all of them.
    """
    group: owners.PodGroup = record.struct
    if group.metadata.deletion_timestamp is not None:
        return True
    status: Tree = record.tree.get("status") or {}
    statuses = list(status.get("resourceClaimStatuses", ()))
    recorded_names = {claim_status["name"] for claim_status in statuses}
    for entry in group.spec.resource_claims:
        template = _template(shelf, entry, namespace=group.metadata.namespace)
        if entry.name in recorded_names or template is None:
            continue
        version = registry.POD_GROUP.api_version
        claim = _from_template(
            version, "PodGroup", group.metadata, entry=entry.name, template=template.tree
        )
        if _quota_refusal(shelf, quotas, registry.CLAIM, claim):
            continue
        shelf.put(registry.CLAIM, claim)
        statuses.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})

    if len(statuses) > len(recorded_names):
        shelf.put(
            registry.POD_GROUP,
            record.tree | {"status": status | {"resourceClaimStatuses": statuses}},
        )
    recorded_names = {claim_status["name"] for claim_status in statuses}
    return _has_all(group.spec.resource_claims, recorded_names)


def _template(shelf: ObjectStore, entry: pods.PodResourceClaim, *, namespace: str) -> Record | None:
    name = entry.resource_claim_template_name
    return shelf.find(registry.TEMPLATE, (namespace, name)) if name else None


def _group_of(shelf: ObjectStore, pod: pods.Pod) -> gangs.Gang | None:
    """The gang described by the PodGroup of a pod."""
    native = pod.spec.scheduling_group
    if native is None or not native.pod_group_name:
        return None
    record = shelf.find(registry.POD_GROUP, (pod.metadata.namespace, native.pod_group_name))
    return None if record is None else owner_gangs.gang_of(record.struct)


def _group_claims(shelf: ObjectStore, pod: pods.Pod) -> dict[str, str]:
    """The names of the claims created for the PodGroup of a pod, by entry."""
    native = pod.spec.scheduling_group
    name = native.pod_group_name if native is not None else None
    record = shelf.find(registry.POD_GROUP, (pod.metadata.namespace, name or ""))
    if record is None:
        return {}
    statuses = (record.tree.get("status") or {}).get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


def _from_template(
    version: str, kind: str, of: meta.ObjectMeta, *, entry: str, template: Tree
) -> Tree:
    claim_template = template["spec"]
    base = f"{of.name}-{entry}-"[: names.MAX_GENERATED_BASE]
    metadata = claim_template.get("metadata") or {}
    owner = {
        "apiVersion": version,
        "kind": kind,
        "name": of.name,
        "uid": of.uid,
        "controller": True,
    }
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {
            "name": base + hashlib.sha256(f"{of.uid}/{entry}".encode()).hexdigest()[:5],
            "generateName": base,
            "namespace": of.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": (metadata.get("annotations") or {}) | {POD_CLAIM_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": claim_template["spec"],
    }


def _reserve_claims(shelf: ObjectStore, pod: pods.Pod) -> None:
    """Reserves allocated claims for a bound pod, in case its binder did not."""
    if not pod.spec.node_name or _is_over(pod):
        return
    for key in reservations.named_claims(pod):
        record = shelf.find(registry.CLAIM, key)
        if record is None or record.metadata.deletion_timestamp is not None:
            continue
        if record.struct.status.allocation is None:
            continue
        if reservations.reserves(record.struct, pod):
            continue
        status = record.tree["status"]
        user = reservations.user_of(pod, key[1], _group_of(shelf, pod))
        users = [*status.get("reservedFor", ()), codec.tree_of(user)]
        shelf.put(registry.CLAIM, record.tree | {"status": status | {"reservedFor": users}})


def _release(shelf: ObjectStore, record: Record) -> None:
    """Removes users that are gone from a claim, and deletes a claim created for one of them."""
    claim: claims.ResourceClaim = record.struct
    users = claim.status.reserved_for
    staying = {user.uid for user in users if _is_user(shelf, claim, user)}
    is_deleted = claim.metadata.deletion_timestamp is not None
    is_protected = claims.DELETE_PROTECTION_FINALIZER in claim.metadata.finalizers
    is_unused = not users and is_deleted and is_protected
    if len(staying) < len(users) or is_unused:
        for tree in releases(record.tree, staying):
            record = shelf.put(registry.CLAIM, tree)
    if not staying:
        _retire(shelf, record.struct)


def _retire(shelf: ObjectStore, claim: claims.ResourceClaim) -> None:
    """Deletes a claim that was created for a pod, once the pod has ended."""
    owner = owner_pod(claim)
    if owner is None:
        return
    pod = shelf.find(registry.POD, (claim.metadata.namespace, owner.name))
    if pod is None or pod.metadata.uid != owner.uid:
        return  # the garbage collector deletes it
    if _is_over(pod.struct):
        shelf.delete(registry.CLAIM, key_of(claim))


def _is_user(
    shelf: ObjectStore, claim: claims.ResourceClaim, user: claims.ResourceClaimConsumerReference
) -> bool:
    """Whether a user still needs the claim: a pod until it ends, a PodGroup until it is deleted, others always."""
    if reservations.is_group(user):
        group = shelf.find(registry.POD_GROUP, (claim.metadata.namespace, user.name))
        return group is not None and group.metadata.uid == user.uid
    if user.resource != "pods":
        return True
    pod = shelf.find(registry.POD, (claim.metadata.namespace, user.name))
    if pod is None or pod.metadata.uid != user.uid:
        return False
    return not _is_over(pod.struct)


def _is_over(pod: pods.Pod) -> bool:
    """Whether a pod has ended, or was deleted before it was bound."""
    is_dropped = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase in pods.TERMINAL_PHASES or is_dropped
