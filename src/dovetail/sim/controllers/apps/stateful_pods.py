"""The identity of a StatefulSet's pods: ordinal, name, labels, and the volume claims that belong to them.

Given a StatefulSet and an ordinal; returns trees. Says which owners a claim should have under the set's retention
policy. Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dovetail.sim.controllers import owner_references, pod_states, pod_templates, tree_fields
from dovetail.sim.controllers.apps import controller_revisions
from dovetail.sim.controllers.object_index import CORE, Key, ObjectIndex, uid_of

Tree = dict[str, Any]

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_NAME: Final = re.compile(r"(.*)-([0-9]+)")


def ordinal_of(pod: Tree) -> int:
    """The number at the end of a pod's name; -1 if there is none."""
    match = _NAME.fullmatch(pod["metadata"]["name"])
    return int(match[2]) if match else -1


def is_member(owner: Tree, pod: Tree) -> bool:
    """Whether a pod has a name that the set gives."""
    match = _NAME.fullmatch(pod["metadata"]["name"])
    return match is not None and match[1] == owner["metadata"]["name"]


def first_ordinal(owner: Tree) -> int:
    """The ordinal of the first replica."""
    return tree_fields.number(owner["spec"], "ordinals", "start")


def ordinals(owner: Tree) -> range:
    """The ordinals that the set should have."""
    start = first_ordinal(owner)
    return range(start, start + owner["spec"]["replicas"])


def revision_of(pod: Tree) -> str:
    """The name of the revision a pod was created from."""
    return owner_references.labels_of(pod).get(controller_revisions.POD_LABEL, "")


def new_pod(owner: Tree, revision: Tree, ordinal: int) -> Tree:
    """The pod of an ordinal, made from a revision of the template; not stored yet, so it has no phase."""
    template = controller_revisions.template_of(revision)
    pod = pod_templates.pod_from_template(template, owner)
    name = f"{owner['metadata']['name']}-{ordinal}"
    metadata = pod["metadata"] | {"name": name}
    metadata["labels"] = metadata["labels"] | {
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
        controller_revisions.POD_LABEL: revision["metadata"]["name"],
    }
    spec = pod["spec"] | {"hostname": name, "volumes": _volumes(owner, pod["spec"], ordinal)}
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    if not spec["volumes"]:
        del spec["volumes"]
    return pod | {"metadata": metadata, "spec": spec}


def revision_for(owner: Tree, ordinal: int, *, current: Tree, update: Tree) -> Tree:
    """The revision that a new pod of this ordinal gets: the current one below the partition."""
    strategy = owner["spec"]["updateStrategy"]
    limits = strategy.get("rollingUpdate")
    if limits is not None:
        old_count = tree_fields.number(limits, "partition")
    elif strategy["type"] == "RollingUpdate":
        old_count = tree_fields.number(owner, "status", "currentReplicas")
    else:
        old_count = 0
    return current if ordinal < first_ordinal(owner) + old_count else update


def claims_of(owner: Tree, ordinal: int) -> Iterator[Tree]:
    """The volume claims of a pod."""
    selector = tree_fields.mapping(owner["spec"], "selector")
    for template in tree_fields.entries(owner["spec"], "volumeClaimTemplates"):
        metadata = dict(tree_fields.mapping(template, "metadata"))
        labels = tree_fields.mapping(metadata, "labels") | tree_fields.mapping(
            selector, "matchLabels"
        )
        metadata |= {
            "name": claim_name(owner, template, ordinal),
            "namespace": owner["metadata"].get("namespace", ""),
            "labels": labels,
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": tree_fields.mapping(template, "spec"),
        }


def claim_name(owner: Tree, template: Tree, ordinal: int) -> str:
    """The name of the claim that a template makes for an ordinal."""
    return f"{template['metadata']['name']}-{owner['metadata']['name']}-{ordinal}"


def stored_claim(claim: Tree, objects: ObjectIndex) -> Tree | None:
    """The claim of that name, if there is one."""
    metadata = claim["metadata"]
    key = Key(CORE, "PersistentVolumeClaim", metadata["namespace"], metadata["name"])
    return objects.find(key)


def claim_owners(owner: Tree, pod: Tree, claim: Tree) -> list[Tree]:
    """The owner references a claim should have: the set's if it goes with the set, the pod's once it is scaled away."""
    policy = owner["spec"]["persistentVolumeClaimRetentionPolicy"]
    is_scaled_away = ordinal_of(pod) not in ordinals(owner)
    present: Iterable[Tree] = tree_fields.entries(claim["metadata"], "ownerReferences")
    ours = {uid_of(owner), pod["metadata"].get("uid")}
    references = [reference for reference in present if reference.get("uid") not in ours]
    if policy["whenScaled"] == "Delete" and is_scaled_away:
        return [*references, owner_references.reference_to(pod)]
    if policy["whenDeleted"] == "Delete":
        return [*references, owner_references.reference_to(owner)]
    return references


def is_created(pod: Tree) -> bool:
    """Whether the pod is stored."""
    return bool(pod_states.phase_of(pod))


def _volumes(owner: Tree, spec: Tree, ordinal: int) -> list[Tree]:
    claimed = [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(owner, template, ordinal)},
        }
        for template in tree_fields.entries(owner["spec"], "volumeClaimTemplates")
    ]
    replaced = {volume["name"] for volume in claimed}
    others = [
        volume for volume in tree_fields.entries(spec, "volumes") if volume["name"] not in replaced
    ]
    return [*claimed, *others]
