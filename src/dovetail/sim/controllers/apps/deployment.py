"""Reconciles a Deployment: one ReplicaSet per template, scaled so that pods move from old templates to the newest.

Given a Deployment, its ReplicaSets and their pods; yields actions. One reconciliation takes one step: the ReplicaSets
change, report, and the next step follows. Never touches a pod.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable
from typing import Any, Final

from dovetail.kubetypes import names
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_states,
    pod_templates,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.apps import deployment_scaling as scaling
from dovetail.sim.controllers.apps import deployment_status
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import APPS, ObjectIndex, uid_of

Tree = dict[str, Any]

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
HISTORY_LENGTH: Final = 2000  # characters of the history annotation
# Annotations of a Deployment that its ReplicaSets do not inherit.
PRIVATE_ANNOTATIONS: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        scaling.DESIRED_REPLICAS,
        scaling.MAX_REPLICAS,
        "deprecated.deployment.rollback.to",
    }
)


class Rollout:
    """One reconciliation under way: the Deployment with the status it will have, its ReplicaSets, the time."""

    def __init__(self, situation: Situation, replica_sets: list[Tree]) -> None:
        self.deployment = situation.owner
        self.objects: ObjectIndex = situation.objects
        self.now: datetime.datetime = situation.now
        self.status: Tree = dict(tree_fields.mapping(situation.owner, "status"))
        self.new = _newest(self.deployment, replica_sets)
        self.old = [each for each in replica_sets if each is not self.new]

    @property
    def spec(self) -> Tree:
        """Of the Deployment."""
        spec: Tree = self.deployment["spec"]
        return spec

    @property
    def desired(self) -> int:
        """The replicas of the Deployment."""
        return int(self.spec["replicas"])

    @property
    def all(self) -> list[Tree]:
        """Old ReplicaSets, then the newest."""
        return [*self.old, *([] if self.new is None else [self.new])]

    def replace(self, replica_set: Tree) -> None:
        """Takes a ReplicaSet as it was stored."""
        uid = uid_of(replica_set)
        if self.new is not None and uid_of(self.new) == uid:
            self.new = replica_set
        self.old = [replica_set if uid_of(each) == uid else each for each in self.old]

    def set_progress(self, status: str, reason: str, message: str) -> None:
        """Sets the condition Progressing, if progress is watched."""
        if deployment_status.has_deadline(self.deployment):
            deployment_status.set_progressing(self.status, status, reason, message, self.now)


def reconcile(situation: Situation) -> Steps:
    """Takes the next step of the rollout, and updates the status."""
    owner, objects = situation.owner, situation.objects
    orphans = objects.orphans(APPS, "ReplicaSet", owner["metadata"].get("namespace", ""))
    children = objects.controlled(owner, "ReplicaSet")
    replica_sets = yield from owner_references.claimed(owner, children, orphans)
    rollout = Rollout(situation, replica_sets)
    if owner_references.is_deleted(owner):
        yield from _write_status(rollout, deployment_status.counted(rollout))
        return

    _note_pause(rollout)
    yield from _sync_newest(rollout)
    if owner["spec"].get("paused") or _is_being_scaled(rollout):
        yield from _scale(rollout)
        if owner["spec"].get("paused"):
            yield from _clean_up(rollout)
        yield from _write_status(rollout, deployment_status.counted(rollout))
    elif scaling.is_rolling(owner):
        yield from _roll(rollout)
    else:
        yield from _recreate(rollout)


def _roll(rollout: Rollout) -> Steps:
    """Grows the newest ReplicaSet, or shrinks old ones, within surge and unavailability."""
    if rollout.new is None:
        yield from _create_newest(rollout)
    has_grown = yield from _scale_newest(rollout)
    has_shrunk = False
    if not has_grown:
        has_shrunk = yield from _shrink_old(rollout)
    if not has_grown and not has_shrunk and deployment_status.is_complete(rollout):
        yield from _clean_up(rollout)
    yield from _report(rollout)


def _recreate(rollout: Rollout) -> Steps:
    """Ends all pods of old templates before the first of the newest starts."""
    has_shrunk = False
    for replica_set in scaling.active(rollout.old):
        has_shrunk |= yield from _resize(rollout, replica_set, 0)
    if has_shrunk or _old_pods_run(rollout):
        yield from _report(rollout)
        return

    if rollout.new is None:
        yield from _create_newest(rollout)
    assert rollout.new is not None
    yield from _resize(rollout, rollout.new, rollout.desired)
    if deployment_status.is_complete(rollout):
        yield from _clean_up(rollout)
    yield from _report(rollout)


def _old_pods_run(rollout: Rollout) -> bool:
    if scaling.counted(rollout.old, "replicas"):
        return True
    for replica_set in rollout.old:
        pods = rollout.objects.controlled(replica_set, "Pod")
        if not all(map(pod_states.is_finished, pods)):
            return True
    return False


# The newest ReplicaSet


def _newest(deployment: Tree, replica_sets: Iterable[Tree]) -> Tree | None:
    """The oldest ReplicaSet with the Deployment's template.

    Its hash is accepted, too: a server may have filled defaults into one of the two templates and not the other.
    """
    template = deployment["spec"]["template"]
    wanted = _comparable(template)
    wanted_hash = _hash(deployment)
    for replica_set in scaling.oldest_first(replica_sets):
        has_hash = owner_references.labels_of(replica_set).get(HASH_LABEL) == wanted_hash
        if has_hash or _comparable(replica_set["spec"]["template"]) == wanted:
            return replica_set
    return None


def _comparable(template: Tree) -> Any:
    metadata = dict(tree_fields.mapping(template, "metadata"))
    labels = owner_references.labels_of(template)
    metadata["labels"] = {name: labels[name] for name in labels if name != HASH_LABEL}
    return pod_templates.normal_form(template | {"metadata": metadata})


def _hash(deployment: Tree) -> str:
    collisions = tree_fields.number(deployment, "status", "collisionCount")
    return pod_templates.template_hash(deployment["spec"]["template"], collisions)


def _sync_newest(rollout: Rollout) -> Steps:
    """Keeps the annotations of the newest ReplicaSet, and the revision of the Deployment, up to date."""
    new = rollout.new
    if new is None:
        return
    annotations = _annotations(rollout, new)
    patch: Tree = {}
    if annotations != owner_references.annotations_of(new):
        patch["metadata"] = {"annotations": annotations}
    min_ready = tree_fields.number(rollout.spec, "minReadySeconds")
    if tree_fields.number(new["spec"], "minReadySeconds") != min_ready:
        patch["spec"] = {"minReadySeconds": min_ready}
    if patch:
        rollout.replace((yield from controller_actions.written(new, patch)))

    yield from _set_revision(rollout, annotations[REVISION])
    if workload_conditions.condition_of(rollout.status, "Progressing") is None:
        message = f'Found new replica set "{new["metadata"]["name"]}"'
        rollout.set_progress("True", "FoundNewReplicaSet", message)


def _annotations(rollout: Rollout, new: Tree) -> dict[str, str]:
    """The annotations of a newest ReplicaSet: inherited ones, and a revision above those of all others."""
    inherited = {
        name: value
        for name, value in owner_references.annotations_of(rollout.deployment).items()
        if name not in PRIVATE_ANNOTATIONS
    }
    annotations = owner_references.annotations_of(new) | inherited
    current_text = annotations.get(REVISION, "")
    revision = max(map(_revision, rollout.old), default=0) + 1
    if _revision(new) >= revision:
        return annotations
    if current_text:
        annotations[REVISION_HISTORY] = _history(annotations.get(REVISION_HISTORY), current_text)
    return annotations | {REVISION: str(revision)}


def _history(past: str | None, revision: str) -> str:
    """The revisions that a ReplicaSet had before, oldest first, as many as the annotation may hold."""
    revisions = [*(past.split(",") if past else []), revision]
    while len(",".join(revisions)) > HISTORY_LENGTH:
        revisions = revisions[1:]
    return ",".join(revisions)


def _revision(replica_set: Tree) -> int:
    text = owner_references.annotations_of(replica_set).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _set_revision(rollout: Rollout, revision: str) -> Steps:
    if owner_references.annotations_of(rollout.deployment).get(REVISION) != revision:
        patch = {"metadata": {"annotations": {REVISION: revision}}}
        yield from controller_actions.written(rollout.deployment, patch)


def _create_newest(rollout: Rollout) -> Steps:
    tree = _replica_set(rollout)
    name = tree["metadata"]["name"]
    outcome = yield controller_actions.Create(tree)
    if isinstance(outcome, failures.AlreadyThere):
        yield from _note_collision(rollout)
        raise outcome
    if isinstance(outcome, failures.ApiFailure):
        message = f'Failed to create new replica set "{name}": {outcome}'
        rollout.set_progress("False", "ReplicaSetCreateError", message)
        yield controller_actions.SetStatus(rollout.deployment, rollout.status)
        yield controller_actions.warning(rollout.deployment, "ReplicaSetCreateError", message)
        raise outcome

    rollout.new = controller_actions.stored(outcome)
    count = scaling.replicas_of(rollout.new)
    if count:
        message = f"Scaled up replica set {name} from 0 to {count}"
        yield controller_actions.normal(rollout.deployment, "ScalingReplicaSet", message)
    yield from _set_revision(rollout, tree["metadata"]["annotations"][REVISION])
    rollout.set_progress("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')


def _note_collision(rollout: Rollout) -> Steps:
    """Another object has the name of the newest ReplicaSet: the next attempt uses another hash."""
    count = tree_fields.number(rollout.status, "collisionCount") + 1
    yield controller_actions.SetStatus(
        rollout.deployment, rollout.status | {"collisionCount": count}
    )


def _replica_set(rollout: Rollout) -> Tree:
    """The ReplicaSet of the Deployment's template, with as many replicas as it may start with."""
    deployment, spec = rollout.deployment, rollout.spec
    hash_text = _hash(deployment)
    template = spec["template"]
    labels = owner_references.labels_of(template) | {HASH_LABEL: hash_text}
    selector = tree_fields.mapping(spec, "selector")
    match_labels = tree_fields.mapping(selector, "matchLabels") | {HASH_LABEL: hash_text}
    base = deployment["metadata"]["name"][: names.MAX_SUBDOMAIN - len(hash_text) - 1]
    tree: Tree = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{base}-{hash_text}",
            "namespace": deployment["metadata"].get("namespace", ""),
            "labels": labels,
            "ownerReferences": [owner_references.reference_to(deployment)],
        },
        "spec": {
            "replicas": 0,
            "selector": selector | {"matchLabels": match_labels},
            "template": template
            | {"metadata": tree_fields.mapping(template, "metadata") | {"labels": labels}},
        },
    }
    if spec.get("minReadySeconds"):
        tree["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    tree["spec"]["replicas"] = scaling.replicas_of_new(deployment, tree, [*rollout.old, tree])
    tree["metadata"]["annotations"] = _annotations(rollout, tree) | _sizes(rollout)
    return tree


# Sizes


def _sizes(rollout: Rollout) -> dict[str, str]:
    """The annotations by which a later reconciliation recognises that the Deployment was scaled."""
    limit = rollout.desired + scaling.max_surge(rollout.deployment)
    return {scaling.DESIRED_REPLICAS: str(rollout.desired), scaling.MAX_REPLICAS: str(limit)}


def _resize(
    rollout: Rollout, replica_set: Tree, size: int, *, annotates: bool = False
) -> Generator[Action, Outcome, bool]:
    """Sets the size of a ReplicaSet; returns whether it changed. With `annotates`, the annotations are enough."""
    before = scaling.replicas_of(replica_set)
    sizes = _sizes(rollout)
    annotations = owner_references.annotations_of(replica_set)
    has_sizes = sizes.items() <= annotations.items()
    if before == size and (has_sizes or not annotates):
        return False
    patch = {"spec": {"replicas": size}, "metadata": {"annotations": annotations | sizes}}
    rollout.replace((yield from controller_actions.written(replica_set, patch)))
    if before == size:
        return False
    direction = "up" if size > before else "down"
    name = replica_set["metadata"]["name"]
    message = f"Scaled {direction} replica set {name} from {before} to {size}"
    yield controller_actions.normal(rollout.deployment, "ScalingReplicaSet", message)
    return True


def _scale_newest(rollout: Rollout) -> Generator[Action, Outcome, bool]:
    new = rollout.new
    assert new is not None
    current = scaling.replicas_of(new)
    if current >= rollout.desired:
        size = rollout.desired
    else:
        size = scaling.replicas_of_new(rollout.deployment, new, rollout.all)
    has_changed = yield from _resize(rollout, new, size)
    return has_changed


def _shrink_old(rollout: Rollout) -> Generator[Action, Outcome, bool]:
    """Takes away old replicas: first those that are not available anyway, then those that can be spared."""
    new = rollout.new
    assert new is not None
    if not scaling.total(rollout.old):
        return False
    minimum = rollout.desired - scaling.max_unavailable(rollout.deployment)
    new_unavailable = scaling.replicas_of(new) - scaling.counted([new], "availableReplicas")
    room = scaling.total(rollout.all) - minimum - new_unavailable
    if room <= 0:
        return False

    removed = 0
    for replica_set in scaling.oldest_first(scaling.active(rollout.old)):
        size = scaling.replicas_of(replica_set)
        unhealthy = size - scaling.counted([replica_set], "availableReplicas")
        count = min(room - removed, unhealthy)
        if count > 0:
            yield from _resize(rollout, replica_set, size - count)
            removed += count

    spare = scaling.counted(rollout.all, "availableReplicas") - minimum
    for replica_set in scaling.oldest_first(scaling.active(rollout.old)):
        size = scaling.replicas_of(replica_set)
        count = min(size, spare)
        if count > 0:
            yield from _resize(rollout, replica_set, size - count)
            spare -= count
            removed += count
    return removed > 0


def _is_being_scaled(rollout: Rollout) -> bool:
    """Whether the Deployment has another size than when its ReplicaSets were last sized."""
    for replica_set in scaling.active(rollout.all):
        annotation = owner_references.annotations_of(replica_set).get(scaling.DESIRED_REPLICAS)
        if annotation is not None and annotation != str(rollout.desired):
            return True
    return False


def _scale(rollout: Rollout) -> Steps:
    """Follows a change of the Deployment's size without hastening or delaying a rollout."""
    only = _active_or_latest(rollout)
    if only is not None:
        yield from _resize(rollout, only, rollout.desired)
    elif scaling.is_saturated(rollout.deployment, rollout.new):
        for replica_set in scaling.active(rollout.old):
            yield from _resize(rollout, replica_set, 0)
    elif scaling.is_rolling(rollout.deployment):
        replica_sets = scaling.active(rollout.all)
        sizes = scaling.proportional_sizes(rollout.deployment, replica_sets)
        for replica_set in replica_sets:
            size = sizes[replica_set["metadata"]["name"]]
            yield from _resize(rollout, replica_set, size, annotates=True)


def _active_or_latest(rollout: Rollout) -> Tree | None:
    """The only ReplicaSet with replicas; if none has any, the newest; None if several have."""
    active = scaling.active(rollout.all)
    if len(active) > 1:
        return None
    if active:
        return active[0]
    if rollout.new is not None:
        return rollout.new
    latest = scaling.oldest_first(rollout.old)
    return latest[-1] if latest else None


# Pauses, history, status


def _note_pause(rollout: Rollout) -> None:
    """Stops the clock of progress while the Deployment is paused."""
    progress = workload_conditions.condition_of(rollout.status, "Progressing") or {}
    reason = progress.get("reason")
    is_paused = bool(rollout.spec.get("paused"))
    if reason == deployment_status.TIMED_OUT:
        return
    if is_paused and reason != "DeploymentPaused":
        rollout.set_progress("Unknown", "DeploymentPaused", "Deployment is paused")
    elif not is_paused and reason == "DeploymentPaused":
        rollout.set_progress("Unknown", "DeploymentResumed", "Deployment is resumed")


def _clean_up(rollout: Rollout) -> Steps:
    """Deletes the oldest ReplicaSets beyond the history that is kept, if they have no pods."""
    cleanable = [each for each in rollout.old if not owner_references.is_deleted(each)]
    surplus = len(cleanable) - rollout.spec["revisionHistoryLimit"]
    by_age = scaling.oldest_first(cleanable)
    for replica_set in sorted(by_age, key=_revision)[: max(surplus, 0)]:
        status = tree_fields.mapping(replica_set, "status")
        generation = replica_set["metadata"].get("generation", 0)
        has_pods = scaling.replicas_of(replica_set) or status.get("replicas")
        if not has_pods and generation <= status.get("observedGeneration", 0):
            yield from controller_actions.deleted(replica_set)


def _report(rollout: Rollout) -> Steps:
    """Writes the status of a rollout, and asks to be woken when its deadline passes."""
    status = deployment_status.reported(rollout)
    yield from _write_status(rollout, status)
    deadline = deployment_status.deadline(rollout, status)
    if deadline is not None:
        yield controller_actions.WakeAt(deadline)


def _write_status(rollout: Rollout, status: Tree) -> Steps:
    if status != rollout.deployment.get("status"):
        yield controller_actions.SetStatus(rollout.deployment, status)
