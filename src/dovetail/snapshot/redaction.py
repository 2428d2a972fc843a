"""Redacts the names in the documents of a snapshot, so that it can be given to people outside.

Every document is read twice: first to collect all names, then to replace them. Names become numbers in the order of the
originals, the same everywhere, so that references and every order by name survive and the engine decides the same. Only
fields of the structs are kept, and of their texts only those listed here. Never reads or writes a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.storage import volumes
from dovetail.model import gangs, gpu_annotations, gpu_shares, workload_annotations
from dovetail.quantity import durations
from dovetail.snapshot import snapshot_kinds

Tree = dict[str, Any]
Rename = Callable[[str], str]
# An expression with its text literals renamed and its comments left out.
Rewrite = Callable[[str, Rename], str]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Categories of names, numbered separately. Pools count as nodes: most drivers name a pool after its node.
_NODE: Final = "node"
_POD: Final = "pod"
_CLAIM: Final = "claim"
_TEMPLATE: Final = "template"
_NAMESPACE: Final = "namespace"
_VALUE: Final = "value"
_CONTAINER: Final = "container"
_OWNER: Final = "owner"
_GROUP: Final = "group"
_ADDRESS: Final = "address"
_UID: Final = "uid"
_ID: Final = "id"
_VOLUME: Final = "persistent-volume"
_VOLUME_CLAIM: Final = "volume-claim"
_STORAGE_CLASS: Final = "storage-class"
_PRIORITY: Final = "priority"

_CATEGORY_OF_KIND: Final = {
    kind.name: kind.redacted_as for kind in (*registry.ALL, *snapshot_kinds.EXPLAINING)
}
# Texts by the field they stand in, or by that and the field around it.
_RENAMED: Final = {
    "nodeName": _NODE,
    "nominatedNodeName": _NODE,
    "pool": _NODE,
    "pool.name": _NODE,
    "matchFields.values": _NODE,
    "metadata.namespace": _NAMESPACE,
    "namespaces": _NAMESPACE,
    "resourceClaimName": _CLAIM,
    "resourceClaimTemplateName": _TEMPLATE,
    "claimName": _VOLUME_CLAIM,
    "claimRef.name": _VOLUME_CLAIM,
    "claimRef.namespace": _NAMESPACE,
    "volumeName": _VOLUME,
    "persistentVolumeName": _VOLUME,
    "volumeHandle": "handle",
    "storageClassName": _STORAGE_CLASS,
    "volumeAttributesClassName": "attributes-class",
    "pdName": "disk",
    "volumeID": "disk",
    "diskURI": "disk",
    "iqn": "disk",
    "monitors": "monitor",
    "volumes.name": "volume",
    "volumeMounts.name": "volume",
    "image": "image",
    "images.names": "image",
    "containers": _CONTAINER,
    "containers.name": _CONTAINER,
    "initContainers.name": _CONTAINER,
    "containerName": _CONTAINER,
    "podGroupName": _GROUP,
    "parentCompositePodGroupName": _GROUP,
    "priorityClassName": _PRIORITY,
    "regarding.namespace": _NAMESPACE,
    "related.namespace": _NAMESPACE,
    "podSets.name": _CONTAINER,
    "members.pod": _POD,
    "seats.pod": _POD,
    "slot.pod": _POD,
    "quarantine.pod": _POD,
    "members.node": _NODE,
    "seats.node": _NODE,
    "slot.node": _NODE,
    "quarantine.node": _NODE,
    "members.claims": _CLAIM,
    "seats.claims": _CLAIM,
    "slot.owner": _UID,
    "runtimeClassName": "runtime",
    "schedulingGates.name": "gate",
    "spec.parent": _VALUE,
    "uid": _UID,
    "shareID": _UID,
}
_KEPT: Final = _set(
    "apiVersion kind resourceVersion creationTimestamp deletionTimestamp schedulerName topologyKey matchLabelKeys"
    " mismatchLabelKeys key operator effect timeAdded phase startTime type status reason lastProbeTime"
    " lastTransitionTime lastHeartbeatTime protocol restartPolicy preemptionPolicy whenUnsatisfiable nodeAffinityPolicy"
    " unhealthyPodEvictionPolicy"
    " nodeTaintsPolicy declaredFeatures driver device deviceClassName allocationMode matchAttribute distinctAttribute"
    " request source apiGroup resource resourceName requestName allocationTimestamp extendedResourceName counterSet"
    " compatibilityGroups partitionTypeAttribute bindingConditions bindingFailureConditions skipNodeOperations quantity"
    " perPod perContainer constraints.requests config.requests claims.name resourceClaims.name"
    " resourceClaimStatuses.name requests.name firstAvailable.name derivedAttributes.name devices.name"
    " sharedCounters.name mapping.name overhead.name accessModes volumeMode volumeBindingMode provisioner attacher"
    " drivers.name maximumVolumeSize capacity bindMountOptions restartPolicyRules.action nodeLabel alias usageTime"
    " dominantShare charged chargedNonPreemptible requested fairShare allocatable quota limit rules.action"
    " podManagementPolicy startupPolicy startupPolicyOrder terminalState launcherCreationPolicy disruptionMode"
    " preemptibility preemptionDelay stalenessGracePeriod requiredTopologyLevel preferredTopologyLevel"
    " eventTime reportingController action deprecatedFirstTimestamp deprecatedLastTimestamp lastObservedTime"
    " deprecatedSource.component scopes scopeName deadline promise.start movedFrom batch"
)
_AMOUNTS: Final = _set(
    "requests limits overhead capacity allocatable counters consumedCapacity nodeAllocatableResources usage"
    " usageCounted hard used max min default defaultRequest maxLimitRequestRatio"
)
_EMPTIED: Final = _set("parameters volumeClaimTemplate")  # must be there, may hold anything
_LEFT_OUT: Final = _set("data networkData volumesInUse volumesAttached")
# The last is KubeRay's own name for the group of the head.
_KEPT_VALUES: Final = frozenset({"", "true", "false", "headgroup"})
_KEPT_ADDRESSES: Final = frozenset({"", "0.0.0.0", "127.0.0.1", "::", "::1"})  # noqa: S104 (compared, never bound)
_KEPT_DOMAINS: Final = (
    frozenset(  # labels, taints and annotations whose values say what a machine is
        {
            "nvidia.com",
            "kubernetes.io",
            "beta.kubernetes.io",
            "node.kubernetes.io",
            "feature.node.kubernetes.io",
            "topology.kubernetes.io",
            "failure-domain.beta.kubernetes.io",
            "resource.kubernetes.io",
            "storage.alpha.kubernetes.io",
        }
    )
)
_OWN_DOMAIN: Final = "dovetail.dev"
_READ_DOMAINS: Final = frozenset({_OWN_DOMAIN, "kueue.x-k8s.io", "kai.scheduler"})
_LEVELS: Final = frozenset(  # their values are keys of labels, or aliases for them
    {
        workload_annotations.TOPOLOGY_REQUIRED,
        workload_annotations.TOPOLOGY_PREFERRED,
        workload_annotations.KUEUE_REQUIRED,
        workload_annotations.KUEUE_PREFERRED,
        workload_annotations.KUEUE_SLICE_LEVEL,
        workload_annotations.KAI_REQUIRED,
        workload_annotations.KAI_PREFERRED,
        workload_annotations.KAI_SEGMENT_REQUIRED,
    }
)
_NAMING: Final = frozenset(
    {gangs.QUEUE_LABEL, gangs.GANG_LABEL, gangs.GROUP_LABEL}
)  # a number there is a name
_WORDS: Final = frozenset(
    {"yes", "no", "end", "restart", "all", "never", "preemptible", "non-preemptible"}
)
_MOMENT: Final = re.compile(meta.TIME_PATTERN)
_CATEGORY_OF_LABEL: Final = {
    "kubernetes.io/hostname": _NODE,
    "kubernetes.io/metadata.name": _NAMESPACE,
    volumes.SELECTED_NODE: _NODE,
    volumes.BETA_CLASS: _STORAGE_CLASS,
    gangs.JOBSET_LABEL: _OWNER,
    gangs.LWS_LABEL: _OWNER,
    gangs.KUBEFLOW_JOB: _OWNER,
    gangs.RAY_CLUSTER: _OWNER,
    gangs.KAI_GROUP_ANNOTATION: _GROUP,
    gpu_shares.CONTAINER: _CONTAINER,
}
# Labels in which controllers write a pod's place in its gang, as numbers and fixed words.
_PLACES: Final = frozenset(
    {
        gangs.JOBSET_INDEX,
        gangs.LWS_GROUP,
        gangs.LWS_WORKER,
        gangs.LWS_SIZE,
        gangs.KUBEFLOW_TYPE,
        gangs.KUBEFLOW_ROLE,
        gangs.KUBEFLOW_OPERATOR,
    }
)
_ROLES: Final = _set("master worker ps chief evaluator launcher") | {gangs.MPI_OPERATOR}
_GPU_UUIDS: Final = frozenset({gpu_annotations.USE_UUID, gpu_annotations.NO_USE_UUID})
_GPU_POLICIES: Final = _set("binpack spread")
_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_READ_ANNOTATIONS: Final = frozenset(
    {
        volumes.SELECTED_NODE,
        volumes.BETA_CLASS,
        volumes.BIND_COMPLETED,
        gangs.LWS_SIZE,
        gangs.KAI_GROUP_ANNOTATION,
        *gpu_annotations.KEYS,
    }
)
_ID_ENDINGS: Final = (
    "uuid",
    "guid",
    "busid",
    "serial",
    "serialnumber",
    "macaddress",
    "hardwareaddress",
)
_UUID_SHAPED: Final = re.compile(
    r"([A-Za-z]{1,8}-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_DROPPED: Final = object()


class Seen(NamedTuple):
    """A document after the first reading: the part that is kept, with its names."""

    kind: registry.Kind
    document: bytes


class Redaction:
    """Redacts the names in the documents of one snapshot. First `look` at all, then call `redacted` for each."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._looking = _Looking()
        self._numbering: _Numbering | None = None

    def look(self, kind: registry.Kind, document: bytes) -> Seen:
        """Collects the names of a document. Fields that the structs lack are removed already."""
        assert self._numbering is None, "numbers are given out once everything was seen"
        tree = codec.tree_of(codec.decode_struct(kind.struct, document))
        if kind is registry.POD:
            _name_ephemeral_claims(tree)
        return Seen(kind, _Walk(self._looking, self._rewrite).document(kind, tree))

    def redacted(self, item: Seen) -> bytes:
        """The document without names."""
        if self._numbering is None:
            self._numbering = _Numbering(self._looking)
        return _Walk(self._numbering, self._rewrite).document(
            item.kind, msgspec.json.decode(item.document)
        )


class _Namer(Protocol):
    """Decides about texts that may be names."""

    def name(self, category: str, text: str) -> str: ...
    def label(self, key: str, value: str, *, operator: str = "") -> str: ...
    def attribute(self, driver: str, name: str, *, value: str) -> str: ...
    def literal(self, text: str) -> str: ...


class _Looking:
    """Collects the names and returns them unchanged."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.compared: set[str] = set()  # labels that selectors compare as numbers
        self.words: set[str] = (
            set()
        )  # drivers and attributes: expressions look things up by them, so they stay

    def name(self, category: str, text: str) -> str:
        self.names.setdefault(category, set()).add(text)
        return text

    def label(self, key: str, value: str, *, operator: str = "") -> str:
        if operator in ("Gt", "Lt"):
            self.compared.add(key)
        return self.name(_CATEGORY_OF_LABEL.get(key, _VALUE), value)

    def attribute(self, driver: str, name: str, *, value: str) -> str:
        self.words.update((driver, name, *name.split("/")))
        return self.name(_ID, value) if name.lower().endswith(_ID_ENDINGS) else value

    def literal(self, text: str) -> str:
        return self.name(_ID, text) if _UUID_SHAPED.fullmatch(text) else text


class _Numbering:
    """Replaces names by numbers, in the order of the names."""

    def __init__(self, looked: _Looking) -> None:
        self._numbers = {
            category: _numbered(category, names) for category, names in looked.names.items()
        }
        self._compared = looked.compared
        compared = {**self._numbers.get(_NODE, {}), **self._numbers.get(_ID, {})}
        self._literals = {
            text: number for text, number in compared.items() if text not in looked.words
        }

    def name(self, category: str, text: str) -> str:
        return text and self._numbers[category][text]

    def label(self, key: str, value: str, *, operator: str = "") -> str:
        if value in _KEPT_VALUES:
            return value
        if category := _CATEGORY_OF_LABEL.get(key):
            return self.name(category, value)
        if key in self._compared or _is_well_known(key) or _is_setting(key, value):
            return value
        return self.name(_VALUE, value)

    def attribute(self, driver: str, name: str, *, value: str) -> str:
        # Renamed as literals in expressions are, so that comparisons keep their result.
        return self.literal(value)

    def literal(self, text: str) -> str:
        return self._literals.get(text, text)


class _Walk:
    """Walks the tree of one object, field by field. Texts of unlisted fields are left out."""

    def __init__(self, namer: _Namer, rewrite: Rewrite) -> None:
        self._namer = namer
        self._rewrite = rewrite
        self._kind = ""
        self._driver = ""

    def document(self, kind: registry.Kind, tree: Tree) -> bytes:
        """The object as JSON."""
        self._kind = kind.name
        self._driver = str(tree.get("spec", {}).get("driver", ""))
        return codec.encode_tree(
            {**self._mapping("", tree), "apiVersion": kind.api_version, "kind": kind.name}
        )

    def label(self, key: str, value: str) -> str:
        """The value of a label after redaction."""
        return self._namer.label(key, value)

    def _mapping(self, around: str, tree: Tree) -> Tree:
        renamed = {
            key: self._field(f"{around}.{key}", key, value=value, tree=tree)
            for key, value in tree.items()
        }
        return {key: value for key, value in renamed.items() if value is not _DROPPED}

    def _field(self, place: str, key: str, *, value: Any, tree: Tree) -> Any:
        """The redacted value: by a rule for the field, else by its shape."""
        if rule := _RULES.get(place) or _RULES.get(key):
            return rule(self, value, tree)
        if key in _EMPTIED:
            return {}
        if key in _LEFT_OUT:
            return _DROPPED
        if isinstance(value, dict):
            return value if key in _AMOUNTS else self._mapping(key, value)
        return self._values(place, key, value)

    def _values(self, place: str, key: str, value: Any) -> Any:
        """The redacted value of a field that is not a mapping."""
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            return [self._mapping(key, entry) for entry in value]
        if not isinstance(value, list | str) or not _KEPT.isdisjoint((place, key)):
            return value
        return self._renamed(_RENAMED.get(place) or _RENAMED.get(key), value)

    def _renamed(self, category: str | None, value: str | list[str]) -> Any:
        """Texts with a category are renamed, all others dropped."""
        if category is None:
            return _DROPPED
        if isinstance(value, str):
            return self._namer.name(category, value)
        return [self._namer.name(category, text) for text in value]

    def _object_name(self, name: str, tree: Tree) -> Any:
        category = _CATEGORY_OF_KIND.get(self._kind)
        return self._namer.name(category, name) if category else name

    def _owner_name(self, name: str, tree: Tree) -> Any:
        return self._namer.name(_CATEGORY_OF_KIND.get(str(tree.get("kind"))) or _OWNER, name)

    def _user_name(self, name: str, tree: Tree) -> Any:
        return self._namer.name(
            {"pods": _POD, "podgroups": _GROUP}.get(str(tree.get("resource")), _OWNER), name
        )

    def _labels(self, labels: dict[str, str], tree: Tree) -> Any:
        return {key: self._namer.label(key, value) for key, value in labels.items()}

    def _annotations(self, annotations: dict[str, str], tree: Tree) -> Any:
        readable = {key: value for key, value in annotations.items() if _is_read(key)}
        uuids = {key: self._uuids(readable.pop(key)) for key in _GPU_UUIDS & readable.keys()}
        return {**self._labels(readable, tree), **uuids}

    def _uuids(self, listed: str) -> str:
        """A list with commas, each renamed as the uuid of a device is."""
        parts = [part.strip() for part in listed.split(",")]
        return ",".join(self._namer.attribute("", "uuid", value=part) for part in parts)

    def _aliases(self, aliases: list[str], tree: Tree) -> Any:
        """Renamed as the labels that refer to them: with a namespace in front, or without."""
        renamed = []
        for alias in aliases:
            namespace, slash, name = alias.rpartition("/")
            prefix = self._namer.name(_NAMESPACE, namespace) + slash if slash else ""
            renamed.append(prefix + self._namer.name(_VALUE, name))
        return renamed

    def _finalizers(self, finalizers: list[str], tree: Tree) -> Any:
        return [name for name in finalizers if _is_well_known(name)]

    def _node_selector(self, selector: Tree, tree: Tree) -> Any:
        """Labels in a pod; terms everywhere else."""
        is_terms = isinstance(selector.get("nodeSelectorTerms"), list)
        return self._mapping("nodeSelector", selector) if is_terms else self._labels(selector, tree)

    def _test_values(self, values: list[str], tree: Tree) -> Any:
        if (
            "scopeName" in tree
        ):  # of a quota: the only scope with values is that of priority classes
            return [self._namer.name(_PRIORITY, value) for value in values]
        key, operator = str(tree.get("key", "")), str(tree.get("operator", ""))
        return [self._namer.label(key, value, operator=operator) for value in values]

    def _taint_value(self, value: str, tree: Tree) -> Any:
        return self._test_values([value], tree)[0]

    def _address(self, address: str, tree: Tree) -> Any:
        return address if address in _KEPT_ADDRESSES else self._namer.name(_ADDRESS, address)

    def _expression(self, expression: str, tree: Tree) -> Any:
        return self._rewrite(expression, self._namer.literal)

    def _attributes(self, attributes: dict[str, Tree], tree: Tree) -> Any:
        return {name: self._attribute(name, attribute) for name, attribute in attributes.items()}

    def _attribute(self, name: str, attribute: Tree) -> Tree:
        renamed = dict(attribute)
        if "string" in renamed:
            renamed["string"] = self._namer.attribute(self._driver, name, value=renamed["string"])
        if "strings" in renamed:
            renamed["strings"] = [
                self._namer.attribute(self._driver, name, value=text) for text in renamed["strings"]
            ]
        return renamed


def _as_label(key: str) -> Callable[[_Walk, Any, Tree], Any]:
    """The rule for a text that labels with this key repeat."""

    def renamed(walk: _Walk, value: str, tree: Tree) -> Any:
        return walk.label(key, value)

    return renamed


_RULES: Final[dict[str, Callable[[_Walk, Any, Tree], Any]]] = {
    "metadata.name": _Walk._object_name,
    "ownerReferences.name": _Walk._owner_name,
    "regarding.name": _Walk._owner_name,
    "related.name": _Walk._owner_name,
    "reservedFor.name": _Walk._user_name,
    "labels": _Walk._labels,
    "matchLabels": _Walk._labels,
    "annotations": _Walk._annotations,
    "finalizers": _Walk._finalizers,
    "spec.aliases": _Walk._aliases,
    "nodeSelector": _Walk._node_selector,
    "matchExpressions.values": _Walk._test_values,
    "matchLabelExpressions.values": _Walk._test_values,
    "tolerations.value": _Walk._taint_value,
    "taints.value": _Walk._taint_value,
    "taint.value": _Walk._taint_value,
    "hostIP": _Walk._address,
    "expression": _Walk._expression,
    "attributes": _Walk._attributes,
    # Parts of gangs, which pods name in labels: renamed as those are.
    "replicatedJobs.name": _as_label(gangs.JOBSET_JOB),
    "replicatedJobsStatus.name": _as_label(gangs.JOBSET_JOB),
    "dependsOn.name": _as_label(gangs.JOBSET_JOB),
    "workerGroupSpecs.groupName": _as_label(gangs.RAY_GROUP),
    "subGroups.name": _as_label(gangs.KAI_SUBGROUP),
    "subGroups.parent": _as_label(gangs.KAI_SUBGROUP),
    "spec.queue": _as_label(workload_annotations.KAI_QUEUE),
    "quarantine.queue": _as_label(gangs.QUEUE_LABEL),
    "queueName": _as_label(workload_annotations.KUEUE_QUEUE),
    "clusterQueue": _as_label(workload_annotations.KUEUE_QUEUE),
    "topologyConstraint.topology": _as_label(workload_annotations.KAI_TOPOLOGY),
}


def _numbered(category: str, names: set[str]) -> dict[str, str]:
    """A number for each name, in the order of the names, padded so that text order is the same."""
    width = max(3, len(str(len(names) - 1)))
    return {
        name: _number(category, name, number=at, width=width)
        for at, name in enumerate(sorted(names))
    }


def _number(category: str, name: str, *, number: int, width: int) -> str:
    if category == _ADDRESS:
        return f"198.{18 + (number >> 16) % 2}.{number >> 8 & 255}.{number & 255}"  # RFC 2544: never assigned
    uuid = f"00000000-0000-4000-8000-{number:012d}"
    if category == _UID:
        return uuid
    if category == _ID and (shaped := _UUID_SHAPED.fullmatch(name)):
        return f"{shaped[1] or ''}{uuid}"
    return f"{category}-{number:0{width}d}"


def _name_ephemeral_claims(pod: Tree) -> None:
    """Names the claims of ephemeral volumes explicitly: their name joins two names, which redaction would break."""
    for volume in pod.get("spec", {}).get("volumes", ()):
        if "ephemeral" in volume and "persistentVolumeClaim" not in volume:
            name = f"{pod['metadata'].get('name', '')}-{volume.get('name', '')}"
            volume["persistentVolumeClaim"] = {"claimName": name}
            del volume["ephemeral"]


def _is_read(annotation: str) -> bool:
    return (
        annotation in _READ_ANNOTATIONS
        or _is_well_known(annotation)
        or _domain(annotation) in _READ_DOMAINS
    )


def _is_setting(key: str, value: str) -> bool:
    """Whether a label or annotation is a scheduling setting and not a name."""
    if key in _PLACES:
        return value.isdecimal() or value.lower() in _ROLES
    if key in gpu_annotations.KEYS:
        return value in _GPU_POLICIES or bool(_PLAIN_NUMBER.fullmatch(value))
    if _domain(key) not in _READ_DOMAINS or key in _NAMING:
        return False
    if key in _LEVELS or value in _WORDS:
        return True
    return durations.seconds(value) is not None or bool(_MOMENT.fullmatch(value))


def _domain(key: str) -> str:
    return key.rpartition("/")[0]


def _is_well_known(key: str) -> bool:
    domain = _domain(key)
    return domain in _KEPT_DOMAINS or domain.endswith(".nvidia.com")
