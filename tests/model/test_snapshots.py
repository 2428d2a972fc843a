"""Redaction: no name gets out, every relation stays, and the engine decides the same about what is left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.model import gangs, gpu_annotations, plan
from dovetail.model.workloads import owner_gangs
from dovetail.schedule import decide
from dovetail.snapshot import redaction, snapshot_files, snapshot_format
from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.schedule import build
from tests.schedule import test_properties as worlds

SECRET = "secret "
KINDS = {(kind.api_version.rpartition("/")[0], kind.name): kind for kind in snapshot_format.KINDS}
DEVICE = f'device.attributes["{build.DRIVER}"]'

# Every text of the model, by its field and the one around it: left as it is, or left out. All others are renamed.
# A field that is new in the model has to be put somewhere here, and in docs/reference/snapshot-format.md.
LEFT_AS_IT_IS = """
    metadata.resourceVersion ownerReferences.apiVersion ownerReferences.kind
    taints.key taints.effect taint.key taint.effect
    tolerations.key tolerations.operator tolerations.effect matchExpressions.key matchExpressions.operator
    matchFields.key matchFields.operator conditions.type conditions.status conditions.reason status.declaredFeatures
    status.phase spec.schedulerName spec.unhealthyPodEvictionPolicy spec.preemptionPolicy
    spec.restartPolicy initContainers.restartPolicy
    restartPolicyRules.action volumeMounts.bindMountOptions
    containers.restartPolicy ports.protocol csi.driver claims.name claims.request resourceClaims.name
    resourceClaimStatuses.name requestMappings.resourceName requestMappings.requestName mapping.name overhead.name
    topologySpreadConstraints.topologyKey topologySpreadConstraints.whenUnsatisfiable
    topologySpreadConstraints.nodeAffinityPolicy topologySpreadConstraints.nodeTaintsPolicy
    topologySpreadConstraints.matchLabelKeys podAffinityTerm.topologyKey podAffinityTerm.matchLabelKeys
    podAffinityTerm.mismatchLabelKeys requiredDuringSchedulingIgnoredDuringExecution.topologyKey
    requiredDuringSchedulingIgnoredDuringExecution.matchLabelKeys
    requiredDuringSchedulingIgnoredDuringExecution.mismatchLabelKeys
    spec.driver devices.name attributes.string attributes.version attributes.strings attributes.versions
    consumesCounters.counterSet consumesCounters.compatibilityGroups devices.bindingConditions
    devices.bindingFailureConditions mapping.capacityKey sharedCounters.name spec.partitionTypeAttribute
    spec.skipNodeOperations deviceClass.name cel.expression opaque.driver spec.extendedResourceName
    deviceSelector.driver deviceSelector.device requests.name exactly.deviceClassName exactly.allocationMode
    derivedAttributes.name derivedAttributes.expression firstAvailable.name firstAvailable.deviceClassName
    firstAvailable.allocationMode constraints.requests constraints.matchAttribute constraints.distinctAttribute
    config.requests config.source results.request results.driver results.device results.bindingConditions
    results.bindingFailureConditions results.skipNodeOperations devices.driver devices.device reservedFor.apiGroup
    reservedFor.resource
    csiDriver.name drivers.name .provisioner spec.attacher .volumeBindingMode spec.accessModes spec.volumeMode
    claimRef.kind claimRef.apiVersion claimRef.resourceVersion matchLabelExpressions.key azureDisk.kind
    levels.nodeLabel levels.alias resources.charged resources.chargedNonPreemptible resources.requested
    resources.fairShare resources.allocatable status.dominantShare status.usage status.usageCounted status.usageTime
    onPodConditions.type rules.action spec.podManagementPolicy dependsOn.status startupPolicy.startupPolicyOrder
    status.terminalState spec.startupPolicy spec.launcherCreationPolicy
    pytorchReplicaSpecs.restartPolicy tfReplicaSpecs.restartPolicy xgbReplicaSpecs.restartPolicy
    jaxReplicaSpecs.restartPolicy paddleReplicaSpecs.restartPolicy mpiReplicaSpecs.restartPolicy
    topology.key spec.disruptionMode spec.preemptibility spec.preemptionDelay spec.stalenessGracePeriod
    topologyConstraint.requiredTopologyLevel topologyConstraint.preferredTopologyLevel
    .type .reason .action .reportingController deprecatedSource.component .preemptionPolicy
    regarding.kind regarding.apiVersion regarding.resourceVersion
    related.kind related.apiVersion related.resourceVersion
    spec.scopes matchExpressions.scopeName limits.type spec.deadline spec.batch promise.start promise.movedFrom
"""
LEFT_OUT = """
    metadata.generateName metadata.annotations metadata.finalizers spec.providerID conditions.message
    status.volumesInUse volumesAttached.name volumesAttached.devicePath opaque.parameters devices.data
    networkData.interfaceName networkData.ips networkData.hardwareAddress ports.name ephemeral.volumeClaimTemplate
    claimRef.fieldPath schedulingPolicy.basic spec.disruptionMode .note .reportingInstance deprecatedSource.host
    spec.gang promise.cause env.name env.value
    driver.version toolkit.version devicePlugin.version migManager.version draDriver.version spec.version mig.strategy
    spec.driverType spec.kernelModuleType status.state containers.args initContainers.args
    waitForCompletion.podSelector config.name
"""


def redacted(*documents: bytes | dict[str, Any]) -> list[dict[str, Any]]:
    """The objects after redaction, in the order given."""
    redactor = redaction.Redaction(snapshot_files.rewritten)
    trees = [
        document if isinstance(document, dict) else msgspec.json.decode(document)
        for document in documents
    ]
    kinds = [KINDS[tree["apiVersion"].rpartition("/")[0], tree["kind"]] for tree in trees]
    seen = [
        redactor.look(kind, msgspec.json.encode(tree))
        for kind, tree in zip(kinds, trees, strict=True)
    ]
    return [msgspec.json.decode(redactor.redacted(item)) for item in seen]


def test_every_text_of_the_model_is_renamed_left_out_or_kept_on_purpose() -> None:
    kept, left_out = set(), set()
    whole = [filled(kind) for kind in snapshot_format.KINDS]
    for kind, before, after in zip(snapshot_format.KINDS, whole, redacted(*whole), strict=True):
        texts = {text for _, text in leaves(after)}
        names = {path for path, _ in leaves(after)}
        for path, text in leaves(before):
            if not text.startswith(SECRET):
                continue
            if path == "metadata.name" and kind is registry.DEVICE_CLASS:
                path = "deviceClass.name"
            if path == "metadata.name" and kind is registry.CSI_DRIVER:
                path = "csiDriver.name"
            if text in texts:
                kept.add(path)
            elif path not in names:
                left_out.add(path)
    assert kept == set(LEFT_AS_IT_IS.split())
    assert left_out == set(LEFT_OUT.split())


def filled(kind: registry.Kind) -> dict[str, Any]:
    """An object of the kind with every field set, and every text telling where it stood."""
    tree: dict[str, Any] = _filled(inspect.type_info(kind.struct), kind.name)
    return tree | {"apiVersion": kind.api_version, "kind": kind.name}


def _filled(given: inspect.Type, path: str) -> Any:
    match given:
        case inspect.UnionType():
            return _filled(
                next(type_ for type_ in given.types if not isinstance(type_, inspect.NoneType)),
                path,
            )
        case inspect.StructType():
            return {
                field.encode_name: _filled(field.type, f"{path}.{field.encode_name}")
                for field in given.fields
            }
        case inspect.VarTupleType():
            return [_filled(given.item_type, path)]
        case inspect.DictType():
            return {"example.com/key": _filled(given.value_type, path)}
        case inspect.AnyType():
            return SECRET + path
        case inspect.StrType():
            return SECRET + path if given.pattern is None else "2026-01-01T00:00:00Z"
        case inspect.RawType():
            return dict.fromkeys(("key", "status", "name", "driver"), SECRET + path)
        case inspect.CustomType():
            return "1"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1
    raise AssertionError(f"{path}: {given}")


def leaves(tree: Any, around: str = "", name: str = "") -> Iterator[tuple[str, str]]:
    """Texts with their field and the one around it. Free-form JSON and maps count as one field."""
    if isinstance(tree, dict):
        is_free = name in ("parameters", "data", "volumeClaimTemplate") or "example.com/key" in tree
        for key, item in tree.items():
            yield from leaves(item, around, name) if is_free else leaves(item, name, key)
    elif isinstance(tree, list):
        for item in tree:
            yield from leaves(item, around, name)
    elif isinstance(tree, str):
        yield f"{around}.{name}", tree


def pod(name: str, namespace: str = "team-x", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"} | more.pop(
        "metadata", {}
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


def node(name: str, **labels: str) -> dict[str, Any]:
    messages = {key.replace("__", "/"): value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": messages}}


def test_names_become_numbers_in_the_order_of_the_names() -> None:
    result = redacted(pod("zebra"), pod("ant"), pod("bee", "team-a"), pod("ant", "team-a"))
    names = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in result]
    assert names == [
        ("namespace-001", "pod-002"),
        ("namespace-001", "pod-000"),
        ("namespace-000", "pod-001"),
        ("namespace-000", "pod-000"),
    ]
    many = redacted(*(pod(f"p{number}") for number in range(1200)))
    by_name = [item["metadata"]["name"] for item in many]
    assert [
        by_name[number] for number in sorted(range(1200), key=lambda number: f"p{number}")
    ] == sorted(by_name)


def test_relations_survive() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "train-gpu-x7",
            "namespace": "team-x",
            "ownerReferences": [{"kind": "Pod", "name": "train", "uid": "uid-train"}],
        },
        "status": {
            "allocation": {
                "devices": {"results": [{"driver": "d", "pool": "host-1", "device": "gpu-0"}]},
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["host-1"]}
                            ]
                        }
                    ]
                },
            },
            "reservedFor": [{"resource": "pods", "name": "train", "uid": "uid-train"}],
        },
    }
    spec = {
        "nodeName": "host-1",
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    }
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-x7"}]}
    host, user, held = redacted(
        node("host-1", kubernetes__hostname="x") | {}, pod("train", spec=spec, status=status), claim
    )
    assert user["spec"]["nodeName"] == host["metadata"]["name"]
    assert (
        user["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == held["metadata"]["name"]
    )
    owner, (consumer,) = held["metadata"]["ownerReferences"][0], held["status"]["reservedFor"]
    assert owner["name"] == consumer["name"] == user["metadata"]["name"]
    assert owner["uid"] == consumer["uid"] == user["metadata"]["uid"]
    allocation = held["status"]["allocation"]
    assert allocation["devices"]["results"][0]["pool"] == host["metadata"]["name"]
    (test,) = allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"]
    assert test["values"] == [host["metadata"]["name"]]


def test_a_group_is_named_alike_by_its_pods_and_its_claims() -> None:
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": "pair",
        "uid": "u",
        "controller": True,
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "pair-gpu-x7", "namespace": "team-x", "ownerReferences": [owner]},
        "status": {
            "reservedFor": [
                {
                    "apiGroup": "scheduling.k8s.io",
                    "resource": "podgroups",
                    "name": "pair",
                    "uid": "u",
                }
            ]
        },
    }
    user, held = redacted(pod("train", spec={"schedulingGroup": {"podGroupName": "pair"}}), claim)
    name = user["spec"]["schedulingGroup"]["podGroupName"]
    assert name != "pair"
    assert (
        held["status"]["reservedFor"][0]["name"]
        == held["metadata"]["ownerReferences"][0]["name"]
        == name
    )


def owned(name: str, version: str, kind: str, owner: str, **labels: str) -> dict[str, Any]:
    """A pod of a controller, with the labels that the controller writes."""
    reference = {"apiVersion": version, "kind": kind, "name": owner, "controller": True}
    metadata = {"name": name, "labels": labels, "ownerReferences": [reference | {"uid": "u"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"namespace": "team-x"}}


def owner_of(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "llama", "namespace": "team-x"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


BATCH = ("batch/v1", "Job")
JOBSET = {
    gangs.JOBSET_LABEL: "llama",
    gangs.JOBSET_JOB: "driver",
    gangs.JOBSET_INDEX: "0",
}
LWS = {gangs.LWS_LABEL: "llama", gangs.LWS_GROUP: "0", gangs.LWS_WORKER: "1"}
TORCH = {gangs.KUBEFLOW_JOB: "llama", gangs.KUBEFLOW_TYPE: "Master"}
MPI = {
    gangs.KUBEFLOW_OPERATOR: gangs.MPI_OPERATOR,
    gangs.KUBEFLOW_JOB: "llama",
    gangs.KUBEFLOW_ROLE: "worker",
}
KAI_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "team-x",
        "labels": {gangs.KAI_SUBGROUP: "prefill"},
        "annotations": {gangs.KAI_GROUP_ANNOTATION: "llama"},
    },
}
ROLE = {"replicas": 2, "template": {}}
OWNED = {
    "Job": (
        owner_of(*BATCH, {"parallelism": 2}),
        owned("p", *BATCH, "llama", **{gangs.MIN_LABEL: "2"}),
    ),
    "JobSet": (
        owner_of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "driver", "replicas": 1, "template": {}}]},
        ),
        owned("p", *BATCH, "llama-driver-0", **JOBSET),
    ),
    "LeaderWorkerSet": (
        owner_of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 3}},
        ),
        owned("p", "apps/v1", "StatefulSet", "llama-0", **LWS),
    ),
    "PyTorchJob": (
        owner_of("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": ROLE}}),
        owned("p", "kubeflow.org/v1", "PyTorchJob", "llama", **TORCH),
    ),
    "MPIJob": (
        owner_of("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Worker": ROLE}}),
        owned("p", *BATCH, "llama-launcher", **MPI),
    ),
    "RayCluster": (
        owner_of(
            "ray.io/v1",
            "RayCluster",
            {"workerGroupSpecs": [{"groupName": "gpus", "replicas": 2, "template": {}}]},
        ),
        owned("p", "ray.io/v1", "RayCluster", "llama", **{gangs.RAY_GROUP: "gpus"}),
    ),
    "head of a RayCluster": (
        owner_of("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": {}}}),
        owned("p", "ray.io/v1", "RayCluster", "llama", **{gangs.RAY_GROUP: "headgroup"}),
    ),
    "KAI PodGroup": (
        owner_of(
            "scheduling.run.ai/v2alpha2",
            "PodGroup",
            {"queue": "team-q", "subGroups": [{"name": "prefill", "minMember": 2}]},
        ),
        KAI_POD,
    ),
}


@pytest.mark.parametrize("owner_and_pod", OWNED.values(), ids=OWNED.keys())
def test_pods_find_their_place_in_the_gang_of_their_owner(owner_and_pod: Any) -> None:
    after, member = redacted(*owner_and_pod)
    for name in ("llama", "team-x", "team-q", "prefill", "gpus", "driver"):
        assert name not in msgspec.json.encode([after, member]).decode()
    kind = KINDS[after["apiVersion"].rpartition("/")[0], after["kind"]]
    gang = owner_gangs.gang_of(codec.decode_struct(kind.struct, msgspec.json.encode(after)))
    assert gang is not None
    seat = gangs.candidate_of(codec.decode_struct(pods.Pod, msgspec.json.encode(member))).membership
    assert seat is not None
    key = (gang.metadata.namespace, gang.metadata.name)
    assert key in (seat.gang, gangs.family_of(seat.gang))
    assert seat.group in {group.name for group in gang.groups}


def test_gpus_that_annotations_choose_are_chosen_alike() -> None:
    words = {
        gpu_annotations.USE_UUID: "GPU-secret-1, GPU-secret-9",
        gpu_annotations.USE_TYPE: "H100",
        "gpu-fraction": "0.5",
        "gpu-fraction-container-name": "secret-main",
        gpu_annotations.GPU_POLICY: "spread",
    }
    chosen = pod("train") | {"metadata": {"name": "p", "annotations": words}}
    machines = codec.encode_struct(build.gpu_slice("GPU-secret", 2, root={"string": "r"}))
    user, published = redacted(chosen, machines)
    after = user["metadata"]["annotations"]
    uuid = published["spec"]["devices"][1]["attributes"]["uuid"]["string"]
    assert after[gpu_annotations.USE_UUID].split(",")[0] == uuid
    assert (after[gpu_annotations.USE_TYPE], after["gpu-fraction"]) == ("H100", "0.5")
    assert after[gpu_annotations.GPU_POLICY] == "spread"
    assert "secret" not in msgspec.json.encode([user, published]).decode()


def test_queues_are_named_alike_wherever_they_are_named() -> None:
    head = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue"}
    spec = {
        "parent": "org",
        "aliases": ["team-x/local", "kai"],
        "resources": {"gpu": {"quota": "4"}},
    }
    labels = {
        "dovetail.dev/queue": "vision",
        "kueue.x-k8s.io/queue-name": "local",
        "kai.scheduler/queue": "kai",
        "dovetail.dev/gang-min": "4",
    }
    wishes = {
        "dovetail.dev/topology": "racks",
        "dovetail.dev/topology-required": "example.com/rack",
        "dovetail.dev/max-runtime": "1h30m",
        "dovetail.dev/note": "of-a-person",
    }
    level = {"nodeLabel": "example.com/rack", "alias": "rack"}
    topology = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
    }
    queue, user, levels = redacted(
        head | {"metadata": {"name": "vision"}, "spec": spec},
        pod("a", metadata={"labels": labels, "annotations": wishes}),
        topology | {"spec": {"levels": [level]}},
    )
    named = user["metadata"]["labels"]
    assert named["dovetail.dev/queue"] == queue["metadata"]["name"] != "vision"
    place = user["metadata"]["namespace"]
    assert queue["spec"]["aliases"] == [
        f"{place}/{named['kueue.x-k8s.io/queue-name']}",
        named["kai.scheduler/queue"],
    ]
    assert queue["spec"]["parent"] != "org"
    assert queue["spec"]["resources"] == {"gpu": {"quota": "4"}}
    assert named["dovetail.dev/gang-min"] == "4"
    messages = user["metadata"]["annotations"]
    assert messages["dovetail.dev/topology"] == levels["metadata"]["name"] != "racks"
    assert messages["dovetail.dev/topology-required"] == "example.com/rack"
    assert messages["dovetail.dev/max-runtime"] == "1h30m"
    assert messages["dovetail.dev/note"] != "of-a-person"
    assert levels["spec"]["levels"] == [level]


def test_labels_and_what_selects_them_map_alike() -> None:
    labels = {
        "kubernetes.io/hostname": "host-1",
        "topology.kubernetes.io/zone": "z1",
        "nvidia.com/gpu.product": "H100",
        "example.com/team": "blue",
        "example.com/rack": "7",
        "example.com/spare": "true",
        "dovetail.dev/gang-min": "4",
        "dovetail.dev/gang": "llama",
    }
    terms = [
        {"key": "example.com/team", "operator": "In", "values": ["blue", "red"]},
        {"key": "example.com/rack", "operator": "Gt", "values": ["5"]},
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["host-1"]},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    spec = {
        "nodeSelector": {"example.com/team": "blue"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"key": "example.com/team", "value": "blue"}],
    }
    host = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host-1", "labels": labels}}
    host["spec"] = {
        "taints": [{"key": "example.com/team", "value": "blue", "effect": "NoSchedule"}]
    }
    messages, asked = redacted(host, pod("p", spec=spec))
    result = messages["metadata"]["labels"]
    team = result["example.com/team"]
    assert team.startswith("value-")
    assert result["kubernetes.io/hostname"] == messages["metadata"]["name"] == "node-000"
    assert result["example.com/rack"] == "7"  # a selector compares it as a number
    unchanged = (
        "topology.kubernetes.io/zone",
        "nvidia.com/gpu.product",
        "example.com/spare",
        "dovetail.dev/gang-min",
    )
    assert {key: result[key] for key in unchanged} == {key: labels[key] for key in unchanged}
    assert result["dovetail.dev/gang"].startswith("value-")
    assert asked["spec"]["nodeSelector"] == {"example.com/team": team}
    assert (
        asked["spec"]["tolerations"][0]["value"] == messages["spec"]["taints"][0]["value"] == team
    )
    (term,) = asked["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert team in term["matchExpressions"][0]["values"]
    assert term["matchExpressions"][1]["values"] == ["5"]
    assert term["matchExpressions"][2]["values"] == ["node-000"]


def test_what_scheduling_does_not_read_is_gone() -> None:
    container = {
        "name": "c",
        "image": "host.example.com/llama:7",
        "command": ["run-llama"],
        "args": ["--key=hush"],
        "env": [{"name": "TOKEN", "value": "hush"}],
        "envFrom": [{"secretRef": {"name": "llama-keys"}}],
    }
    spec = {
        "containers": [container],
        "imagePullSecrets": [{"name": "llama-pull"}],
        "serviceAccountName": "llama",
        "volumes": [{"name": "v", "secret": {"secretName": "llama-keys"}}],
    }
    metadata = {
        "managedFields": [{"manager": "llama"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "llama hush"},
        "finalizers": ["llama.example.com/keep", "resource.kubernetes.io/delete-protection"],
    }
    status = {
        "conditions": [{"type": "Ready", "status": "False", "message": "llama hush"}],
        "podIP": "10.1.2.3",
    }
    (result,) = redacted(pod("llama", spec=spec, metadata=metadata, status=status))
    text = msgspec.json.encode(result).decode()
    assert "llama" not in text
    assert "hush" not in text
    assert "10.1.2.3" not in text
    assert result["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('a == "x"', 'a == "<x>"'),
        ("a == 'x' && b == r'x'", 'a == "<x>" && b == "<x>"'),
        ('a == "y" // about x\n && true', 'a == "y" && true'),
        ('a["x"]', 'a["<x>"]'),
        ('a == "xx" || a == b"x"', 'a == "xx" || a == b"x"'),
        ('a == "\\x78"', 'a == "<x>"'),
        ('a == "x', "?"),
    ],
)
def test_literals_of_expressions_are_renamed_and_comments_left_out(
    expression: str, expected: str
) -> None:
    assert (
        snapshot_files.rewritten(expression, lambda text: "<x>" if text == "x" else text)
        == expected
    )


def test_ids_map_alike_on_devices_and_in_expressions() -> None:
    uuid = "GPU-3abab05b-0000-1111-2222-333344445555"
    attributes = {
        "uuid": {"string": uuid},
        "parentUUID": {"string": uuid},
        "index": {"int": 3},
        "model": {"string": "H100"},
        "host": {"string": "host-1"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:17:00.0"},
    }
    published = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "host-1",
            "pool": {"name": "host-1"},
            "devices": [{"name": "gpu-0", "attributes": attributes}],
        },
    }
    gone = "MIG-99999999-0000-1111-2222-333344445555"
    expression = (
        f'{DEVICE}.uuid == "{uuid}" || {DEVICE}.host == "host-1" || {DEVICE}.uuid == "{gone}" || '
        f'{DEVICE}.model == "H100" || device.attributes["resource.kubernetes.io"].pciBusID == "0000:17:00.0"'
    )
    chosen = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    shown, asked = redacted(published, chosen)
    messages = {
        name: one.get("string") for name, one in shown["spec"]["devices"][0]["attributes"].items()
    }
    after = asked["spec"]["selectors"][0]["cel"]["expression"]
    assert messages["uuid"] == messages["parentUUID"]
    assert messages["uuid"].startswith("GPU-00000000-")
    assert (messages["model"], messages["host"]) == ("H100", "node-000")
    for value in (
        messages["uuid"],
        "node-000",
        "H100",
        messages["resource.kubernetes.io/pciBusID"],
        "MIG-00000000-",
    ):
        assert f'"{value}' in after
    for text in (uuid, gone, "host-1", "0000:17"):
        assert text not in after
    assert 'device.attributes["resource.kubernetes.io"]' in after


SELECTORS = (
    "",
    f'{DEVICE}.model == "H100"',
    f'{DEVICE}.uuid == "n1-0"',
    f'{DEVICE}.uuid in ["n0-1", "n2-0", "n3-1"]',
    f'device.capacity["{build.DRIVER}"].memory.compareTo(quantity("60Gi")) > 0',
    f'{DEVICE}.missing == "x"',
)


def objects_of(seed: int) -> list[Any]:
    """The objects of a random world. Selectors name whole ids: parts of ids mean nothing after redaction."""
    rng = random.Random(seed)
    result: list[Any] = [build.gpu_class(), worlds.nic_class()]
    for index in range(rng.randint(2, 9)):
        result += worlds.random_node(rng, f"n{index}")
    if rng.random() < 0.5:
        result.append(
            worlds.nic_pool("fabric", [{"name": "port-0"}, {"name": "port-1"}], allNodes=True)
        )
    if rng.random() < 0.5:
        result.append(worlds.taint_rule("n0", "gpu-0"))
    for index in range(rng.randint(3, 22)):
        facts: dict[str, Any] = {
            "cpu": rng.choice(["1", "4", "12"]),
            "priority": rng.choice([0, 0, 5]),
        }
        facts |= rng.choice(
            ({}, {"nodeSelector": {"zone": "a"}}, {"tolerations": [{"operator": "Exists"}]})
        )
        facts |= rng.choice(({}, {"nodeSelector": {"kubernetes.io/hostname": "n1"}}))
        facts["metadata"] = {
            "uid": f"uid-{rng.randrange(10**6)}",
            "labels": {"app": rng.choice("ab")},
        }
        extra = worlds.gpu_and_nic(rng) if rng.random() < 0.25 else {}
        result.append(
            build.claim(
                f"c{index}", count=rng.choice([1, 1, 2, 3]), when=rng.choice(SELECTORS), **extra
            )
        )
        result.append(build.pod(f"p{index}", uses=(f"c{index}",), **facts))
    return result


def decided(result: list[Any]) -> plan.Plan:
    world = World()
    for item in result:
        world.apply(Changed(item))
    return decide.decide(world)


@pytest.mark.parametrize("seed", range(40))
def test_a_redacted_world_is_decided_alike(seed: int) -> None:
    before = objects_of(seed)
    trees = redacted(*(codec.encode_struct(item) for item in before))
    after: list[Any] = [codec.decode(tree).struct for tree in trees]
    renamed = {
        (one.kind, one.metadata.name): other.metadata.name
        for one, other in zip(before, after, strict=True)
    }
    pools = {
        one.spec.pool.name: other.spec.pool.name
        for one, other in zip(before, after, strict=True)
        if one.kind == "ResourceSlice"
    }
    first, second = decided(before), decided(after)
    assert [_placed(placement, renamed, pools) for placement in first.placements] == [
        _placed(placement) for placement in second.placements
    ]
    assert [_refused(refusal, renamed) for refusal in first.refusals] == [
        _refused(refusal) for refusal in second.refusals
    ]
    assert first.placements or first.refusals


def _placed(
    placement: plan.Placement,
    names: dict[tuple[str, str], str] | None = None,
    pools: dict[str, str] | None = None,
) -> Any:
    def named(kind: str, name: str) -> str:
        return names[kind, name] if names is not None else name

    devices = [
        (result.request, pools[result.pool] if pools is not None else result.pool, result.device)
        for allocation in placement.allocations
        for result in allocation.result.devices.results
    ]
    return named("Pod", placement.pod.name), named("Node", placement.node), devices, placement.score


def _refused(refusal: plan.Refusal, names: dict[tuple[str, str], str] | None = None) -> Any:
    name = names["Pod", refusal.pod.name] if names is not None else refusal.pod.name
    return (
        name,
        [(obstacle.reason.code, obstacle.nodes) for obstacle in refusal.obstacles],
        refusal.is_undecided,
    )
