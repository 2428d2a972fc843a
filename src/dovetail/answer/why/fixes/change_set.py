"""Turns changes into the patches a person applies, and into the objects as they are once controllers acted on those.

Given a replica, the authors of its pods and the pods of the gang in question. A patch is a merge where the field can be
changed in place, else a deletion and a creation. Refuses (None) what no patch could bring about, such as a change of a
pod whose controller would revert it. Never asks the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.replica import patches, replica
from dovetail.answer.why.fixes import owner_patches, recreated, tree_paths
from dovetail.answer.why.fixes.owner_patches import Author, Way
from dovetail.answer.why.fixes.proposals import Change, Edit, ObjectChange, PodChange
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.world import events

_POD: Final = registry.POD.unique_name
_CLAIM: Final = registry.CLAIM.unique_name
_TEMPLATE: Final = registry.TEMPLATE.unique_name
_NODE: Final = registry.NODE.unique_name
_STATEFUL_SET: Final = registry.STATEFUL_SET.unique_name
_PRIORITY_CLASS: Final = "PriorityClass"
# What makes room for every pod that waits, not for those of the gang alone; pods here are those of others.
_SHARED: Final = frozenset(
    {_NODE, _POD, registry.QUEUE.unique_name, registry.TAINT_RULE.unique_name}
)
_PREEMPTS: Final = "PreemptLowerPriority"


class ChangeSet(NamedTuple):
    """What a person applies, what comes of it, and under which id the pods are found then."""

    patches: tuple[patches.Patch, ...]
    edits: tuple[replica.Edit, ...]
    new_ids: dict[str, str]  # of pods that are created again: old id -> new id
    restarted: tuple[str, ...]  # running pods that start again, by namespace and name


class Workshop:
    """Makes change sets for the pods of one gang."""

    def __init__(self, replica_: replica.Replica, members: Iterable[str]) -> None:
        self.replica = replica_
        self.authors = owner_patches.Authors(replica_)
        self.members = tuple(members)
        self._priorities = _priorities(replica_)

    def change_set(self, changes: Iterable[Change]) -> ChangeSet | None:
        """The changes together; None where they change nothing, or cannot be made."""
        draft = _Draft(self)
        try:
            for change in changes:
                draft.add(change)
            return draft.finish()
        except errors.InputError:  # what comes of it is no such object any more
            return None

    @property
    def priorities(self) -> dict[str, recreated.Priority]:
        """By the name of the PriorityClass."""
        return self._priorities


class _Impossible(errors.InputError):
    """A change that a controller would revert."""


class _Draft:
    """Collects changes, object by object."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._replica = workshop.replica
        self._after: dict[object_set.Key, Tree | None] = {}  # objects other than pods
        self._pods: dict[object_set.Key, Tree] = {}  # pods that a person changes
        self._roles: dict[object_set.Key, tuple[Author, set[str] | None]] = {}  # None: every role
        self._restarted: set[object_set.Key] = set()  # pods that need other claims
        self._pod_edits: dict[object_set.Key, list[Edit]] = {}  # by pod of a controller

    def add(self, change: Change) -> None:
        """One more change."""
        if isinstance(change, ObjectChange):
            self._add_object(change)
        else:
            self._add_pods(change)

    def _add_object(self, change: ObjectChange) -> None:
        key = change.object.key
        if key.kind == _POD:
            if change.edit is None:
                self._after[key] = None
            else:
                self._pods[key] = change.edit(self._pod_tree(key))
            return
        tree = self._tree(key)
        self._after[key] = None if change.edit is None else change.edit(tree)
        if key.kind == _TEMPLATE:
            for member in self._members():
                entries = member.spec.resource_claims
                if any(entry.resource_claim_template_name == key.name for entry in entries):
                    self._restarted.add(object_set.key_of(member))

    def _add_pods(self, change: PodChange) -> None:
        world = self._replica.world
        member = world.pods[change.member]
        author = self._workshop.authors.of(member)
        if author.key is None:
            for pod in self._members():
                if self._workshop.authors.of(pod).way is author.way:
                    key = object_set.key_of(pod)
                    self._pods[key] = change.edit(self._pod_tree(key))
            return
        role = owner_patches.role_of(member)
        paths = self._paths(author, None if change.of_all_roles else role)
        if not paths:
            raise _Impossible("the template of this role is not known")
        tree = self._tree(author.key)
        for path in paths:
            tree = tree_paths.with_value(tree, path, _edited_part(change.edit, tree, path))
        self._after[author.key] = tree
        if author.also is not None:
            self._add_cron_job(author.also, change.edit)
        self._note_roles(author, None if change.of_all_roles else {role})
        for pod in self._workshop.authors.pods_of(author, member.metadata.namespace):
            if change.of_all_roles or owner_patches.role_of(pod) == role:
                self._pod_edits.setdefault(object_set.key_of(pod), []).append(change.edit)

    def _add_cron_job(self, also: tuple[object_set.Key, Path], edit: Edit) -> None:
        key, path = also
        tree = self._tree(key)
        self._after[key] = tree_paths.with_value(tree, path, _edited_part(edit, tree, path))

    def _paths(self, author: Author, role: str | None) -> list[Path]:
        if role is None:
            return list(dict.fromkeys(path for _, path in author.templates))
        path = author.path_of(role)
        return [] if path is None else [path]

    def _note_roles(self, author: Author, roles: set[str] | None) -> None:
        assert author.key is not None
        known = self._roles.get(author.key, (author, set()))[1]
        both = None if known is None or roles is None else known | roles
        self._roles[author.key] = (author, both)

    def _members(self) -> list[pods.Pod]:
        """The pods of the gang that have no node."""
        world = self._replica.world
        ids = [pod_id for pod_id in self._workshop.members if pod_id in world.pods]
        return [world.pods[pod_id] for pod_id in ids]

    def _tree(self, key: object_set.Key) -> Tree:
        if key in self._after:
            tree = self._after[key]
        else:
            stored = self._replica.get(key)
            tree = None if stored is None else tree_paths.tree_of(stored)
        if tree is None:
            raise _Impossible(f"{key} is gone")
        return tree

    def _pod_tree(self, key: object_set.Key) -> Tree:
        if key in self._pods:
            return self._pods[key]
        stored = self._replica.get(key)
        if stored is None:
            raise _Impossible(f"{key} is gone")
        return tree_paths.tree_of(stored)

    # What comes of it

    def finish(self) -> ChangeSet | None:
        """The patches and the objects afterwards."""
        result = _Result(self._replica)
        self._add_restarted_owners()
        # Owners after the rest: their controllers make pods at once, and claims from the templates that are there.
        ordered = sorted(self._after, key=lambda key: key in self._roles)
        shared = [key for key in ordered if key.kind in _SHARED]
        for key in ordered:
            if key not in shared:
                self._finish_object(result, key, self._after[key])
        for key, tree in self._pods.items():
            self._finish_pod(result, key, tree)
        for key in sorted(self._restarted):
            self._finish_restart(result, key)
        # What makes room for everyone comes last: between two commands another pod may take it.
        for key in shared:
            self._finish_object(result, key, self._after[key])
        if not result.patches:
            return None
        return result.change_set(self._workshop.priorities, self._pods.keys())

    def _add_restarted_owners(self) -> None:
        """Owners whose pods need other claims, and whose pods do not come back one by one."""
        for key in self._restarted:
            pod = self._replica.pod(key.namespace, key.name)
            author = None if pod is None else self._workshop.authors.of(pod)
            if author is None or author.way is not Way.RECREATED or author.key is None:
                continue
            self._after.setdefault(author.key, self._tree(author.key))
            self._note_roles(author, None)

    def _finish_object(self, result: _Result, key: object_set.Key, after: Tree | None) -> None:
        stored = self._replica.get(key)
        assert stored is not None
        before, ref = tree_paths.tree_of(stored), patches.ref_of(stored.struct)
        if after is None:
            result.delete(key, ref)
            return
        author, roles = self._roles.get(key, (None, None))
        is_restarted = author is not None and author.way is Way.RECREATED and before == after
        if before == after and not is_restarted:
            return
        if not is_restarted and owner_patches.is_mutable(key, before, after):
            result.merge(key, ref, before, after)
        else:
            result.create_again(key, ref, after)
        if author is None:
            return
        is_whole = author.way is Way.RECREATED
        for pod in self._workshop.authors.pods_of(author, key.namespace):
            is_meant = roles is None or owner_patches.role_of(pod) in roles
            if is_whole or (is_meant and not pod.spec.node_name):
                self._finish_controlled_pod(result, pod, author.way)
            elif is_meant and (author.way is Way.ROLLOUT or key.kind == _STATEFUL_SET):
                # One after the other: what they hold is not free for the pods that wait.
                result.rolled_out.append(f"{pod.metadata.namespace}/{pod.metadata.name}")

    def _finish_controlled_pod(self, result: _Result, pod: pods.Pod, way: Way) -> None:
        key = object_set.key_of(pod)
        if key in self._pods:
            raise _Impossible(f"{key}: its controller makes it again, without this change")
        tree = self._pod_tree(key)
        for edit in self._pod_edits.get(key, ()):
            tree = edit(tree)
        if way is Way.PODS_DELETED:
            result.delete_pod(key, pod)
        result.pods_again[key] = tree
        self._restarted.discard(key)

    def _finish_pod(self, result: _Result, key: object_set.Key, tree: Tree) -> None:
        """A pod that a person changes."""
        stored = self._replica.get(key)
        assert stored is not None
        before = tree_paths.tree_of(stored)
        is_changed = before != tree
        if key not in self._restarted and not is_changed:
            return
        if key not in self._restarted and owner_patches.is_mutable(key, before, tree):
            result.merge(key, patches.ref_of(stored.struct), before, tree)
            return
        assert isinstance(stored.struct, pods.Pod)
        if self._workshop.authors.of(stored.struct).way is not Way.POD and is_changed:
            raise _Impossible(f"{key}: its controller makes it from another object")
        self._restarted.discard(key)
        self._recreate_pod(result, key, stored.struct, tree)

    def _finish_restart(self, result: _Result, key: object_set.Key) -> None:
        """A pod that is unchanged but needs claims from a template that changed."""
        stored = self._replica.get(key)
        assert stored is not None
        assert isinstance(stored.struct, pods.Pod)
        self._recreate_pod(result, key, stored.struct, tree_paths.tree_of(stored))

    def _recreate_pod(
        self, result: _Result, key: object_set.Key, pod: pods.Pod, tree: Tree
    ) -> None:
        if self._workshop.authors.of(pod).way is Way.POD:
            result.create_pod_again(key, pod, tree)
        else:
            result.delete_pod(key, pod)
            result.pods_again[key] = tree


def _edited_part(edit: Edit, tree: Tree, path: Path) -> Tree:
    part = tree_paths.at(tree, path)
    return edit(part if isinstance(part, dict) else {})


class _Result:
    """The patches, in the order to apply them, and the objects afterwards."""

    def __init__(self, replica_: replica.Replica) -> None:
        self._replica = replica_
        self.patches: list[patches.Patch] = []
        self._edits: dict[object_set.Key, Tree | None] = {}
        self.pods_again: dict[object_set.Key, Tree] = {}
        self.rolled_out: list[str] = []  # pods that run, and are replaced later

    def delete(self, key: object_set.Key, ref: patches.ObjectRef) -> None:
        """An object goes."""
        self.patches.append(patches.Patch(object=ref, delete=True))
        self._edits[key] = None

    def merge(self, key: object_set.Key, ref: patches.ObjectRef, before: Tree, after: Tree) -> None:
        """An object changes in place."""
        self.patches.append(patches.Patch(object=ref, merge=patches.difference(before, after)))
        self._edits[key] = recreated.uncordoned(after) if key.kind == _NODE else after

    def create_again(self, key: object_set.Key, ref: patches.ObjectRef, after: Tree) -> None:
        """An object is deleted, and created with the change."""
        self.patches += [
            patches.Patch(object=ref, delete=True),
            patches.Patch(object=ref, create=recreated.manifest(after)),
        ]
        self._edits[key] = recreated.again(after, self._replica.now)

    def create_pod_again(self, key: object_set.Key, pod: pods.Pod, tree: Tree) -> None:
        """A pod without a controller is deleted, and created with the change."""
        ref = patches.ref_of(pod)
        self.patches += [
            patches.Patch(object=ref, delete=True),
            patches.Patch(object=ref, create=recreated.manifest(tree)),
        ]
        self.pods_again[key] = tree

    def delete_pod(self, key: object_set.Key, pod: pods.Pod) -> None:
        """A pod is deleted, and its controller recreates it."""
        self.patches.append(patches.Patch(object=patches.ref_of(pod), delete=True))

    def change_set(
        self, priorities: dict[str, recreated.Priority], bare: Collection[object_set.Key]
    ) -> ChangeSet:
        """Everything, with the claims of pods that are created again."""
        new_ids: dict[str, str] = {}
        restarted = list(self.rolled_out)
        edits = self._edits
        removed: set[str] = set()
        for key, tree in edits.items():
            if tree is None and key.kind == _POD:
                pod = self._replica.pod(key.namespace, key.name)
                removed |= set() if pod is None else {events.pod_id(pod)}
        for key, tree in self.pods_again.items():
            pod = self._replica.pod(key.namespace, key.name)
            assert pod is not None
            if pod.spec.node_name in self._replica.world.nodes:
                restarted.append(f"{key.namespace}/{key.name}")
            new = recreated.pod_again(
                tree,
                self._replica.now,
                template_of=self._template,
                shared_claims=self._shared_claims(pod),
                priorities=priorities,
                keeps_node=key in bare and pod.spec.node_name not in self._replica.world.nodes,
            )
            edits[key] = new.tree
            new_ids[events.pod_id(pod)] = new.tree["metadata"]["uid"]
            for claim in new.claims:
                metadata = claim["metadata"]
                edits[object_set.Key(_CLAIM, metadata["namespace"], metadata["name"])] = claim
        self._release(removed | new_ids.keys())
        return ChangeSet(tuple(self.patches), _decoded(edits), new_ids, tuple(sorted(restarted)))

    def _template(self, namespace: str, name: str) -> Tree | None:
        key = object_set.Key(_TEMPLATE, namespace, name)
        if key in self._edits:
            return self._edits[key]
        stored = self._replica.get(key)
        return None if stored is None else tree_paths.tree_of(stored)

    def _shared_claims(self, pod: pods.Pod) -> dict[str, str]:
        """The claims of the pod's group, by entry."""
        shared: dict[str, str] = {}
        for status in pod.status.resource_claim_statuses:
            key = (pod.metadata.namespace, status.resource_claim_name or "")
            claim = self._replica.world.claims.get(key)
            owners = claim.metadata.owner_references if claim is not None else ()
            if any(owner.controller and owner.kind != "Pod" for owner in owners):
                shared[status.name] = key[1]
        return shared

    def _release(self, gone: Collection[str]) -> None:
        """The claims of pods that are gone, and reservations for them."""
        if not gone:
            return
        for claim in list(self._replica.world.claims.values()):
            users = {user.uid for user in claim.status.reserved_for}
            owners = {owner.uid for owner in claim.metadata.owner_references}
            if not (users | owners) & set(gone):
                continue
            key = object_set.key_of(claim)
            if key in self._edits:
                continue
            stored = self._replica.get(key)
            if stored is not None:
                self._edits[key] = recreated.released(tree_paths.tree_of(stored), gone)


def _decoded(edits: dict[object_set.Key, Tree | None]) -> tuple[replica.Edit, ...]:
    """Deletions of claims first, then all in order: a pod must not see the claims of its predecessor."""
    return tuple(
        replica.Edit(key, None if tree is None else codec.decode(tree))
        for key, tree in edits.items()
    )


def _priorities(replica_: replica.Replica) -> dict[str, recreated.Priority]:
    priorities: dict[str, recreated.Priority] = {}
    for stored in replica_.listed(_PRIORITY_CLASS):
        tree = tree_paths.tree_of(stored)
        value = tree.get("value")
        policy = tree.get("preemptionPolicy") or _PREEMPTS
        priorities[stored.struct.metadata.name] = recreated.Priority(
            value if isinstance(value, int) else 0, str(policy)
        )
    return priorities
