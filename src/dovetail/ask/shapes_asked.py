"""The shape of a pod that a question is about: as `dovetail run` describes one, or as a pod that is there has it.

Given the description and the cluster's objects. Never submits anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.admission import defaults
from dovetail.answer.capacity import shapes
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import near_names
from dovetail.ask.submission import gpu_products, gpu_requests, job_manifest
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import topologies
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.quantity import quantity
from dovetail.tables import missing_names
from dovetail.world.world import World

Tree = dict[str, Any]

SIZES: Final = (1, 2, 4, 8)  # GPUs on one node, where no shape was asked about
PRIORITY_CLASS: Final = "PriorityClass"


class ShapeAsked(NamedTuple):
    """What was said about the shape."""

    gpus: int | None = None
    gpu_type: str = ""
    mig: str = ""
    gpu_memory: str = ""
    cpu: str = ""
    memory: str = ""
    queue: str = ""
    priority: int = 0
    like: str = ""
    namespace: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no shape was asked about."""
        return self.gpus is None and not any((self.mig, self.gpu_memory, self.like))


def shapes_of(
    options: ShapeAsked, replica: Replica, objects: object_set.ObjectSet
) -> tuple[shapes.Shape, ...]:
    """The shape asked about; without one, whole GPUs of each type on one node, 1, 2, 4 and 8 of them."""
    if options.queue and options.queue not in replica.world.queues:
        raise near_names.unknown("queue", options.queue, replica.world.queues)
    if options.like:
        return (_like(options, replica),)
    types = gpu_products.types_of(objects)
    if not options.is_empty:
        return (_requested(options, types, objects),)
    if options.gpu_type:
        types = gpu_products.matching(options.gpu_type, types)
    return tuple(
        _requested(size, (each,), objects)
        for each in types
        for size in _sizes(options._replace(gpu_type=each.product), each)
    )


def check_level(level: str, world: World) -> None:
    """Raises InputError for a level that neither a Topology nor a label of a node has."""
    known = {alias for topology in world.topologies.values() for alias in _levels(topology)}
    labels = {label for node in world.nodes.values() for label in node.metadata.labels}
    if level not in known | labels:
        raise near_names.unknown("topology level", level, known or labels)


def _levels(topology: topologies.Topology) -> Iterator[str]:
    for level in topology.spec.levels:
        yield level.alias or level.node_label
        yield level.node_label


def check_amounts(options: ShapeAsked) -> None:
    """Raises InputError for an amount that cannot be read."""
    amounts = {
        "--cpu": options.cpu,
        "--memory": options.memory,
        "--gpu-memory": options.gpu_memory,
    }
    for option, amount in amounts.items():
        if amount and not (quantity.is_quantity(amount) and quantity.parse(amount).nanos > 0):
            raise errors.InputError(
                f'{option} "{amount}": expected an amount such as 16, 500m or 64Gi'
            )


def _sizes(options: ShapeAsked, gpu_type: gpu_products.GpuType) -> list[ShapeAsked]:
    """Whole GPUs, as many as a node has; where only partitions are on offer, one of each profile."""
    if gpu_type.is_published and gpu_type.sample is None:
        return [options._replace(gpus=1, mig=profile) for profile in gpu_type.profiles]
    return [options._replace(gpus=size) for size in SIZES if size <= gpu_type.most_on_node]


def _like(options: ShapeAsked, replica: Replica) -> shapes.Shape:
    namespace, _, name = options.like.removeprefix("pod/").rpartition("/")
    namespace = namespace or options.namespace or object_set.DEFAULT_NAMESPACE
    pod = replica.pod(namespace, name)
    if pod is None:
        known = {
            (each.metadata.namespace, each.metadata.name) for each in replica.world.pods.values()
        }
        raise errors.NotFound(missing_names.sentence("pods", name, namespace, known))
    return shapes.shape_of(replica, pod)


def _requested(
    options: ShapeAsked, types: tuple[gpu_products.GpuType, ...], objects: object_set.ObjectSet
) -> shapes.Shape:
    chosen = gpu_products.matching(options.gpu_type, types) if options.gpu_type else types
    wish = gpu_requests.Wish(
        count=1 if options.gpus is None else options.gpus,
        types=chosen,
        is_any_type=not options.gpu_type,
        profile=options.mig,
        memory=options.gpu_memory,
    )
    structs = [stored.struct for stored in objects.listed(registry.DEVICE_CLASS.name)]
    classes = [each for each in structs if isinstance(each, device_classes.DeviceClass)]
    request = gpu_requests.request_for(wish, classes)
    job = job_manifest.RunRequest(
        name="asked",
        namespace=options.namespace or object_set.DEFAULT_NAMESPACE,
        image="none",
        command=(),
        devices=request,
        queue=options.queue,
        cpu=options.cpu,
        memory=options.memory,
    )
    return _of_trees(job_manifest.trees(job), request.words or "no GPU", options.priority)


def _of_trees(trees: list[Tree], name: str, priority: int) -> shapes.Shape:
    """The shape of the pods that a Job would make."""
    job = next(tree for tree in trees if tree["kind"] == "Job")
    templates = {
        tree["metadata"]["name"]: tree for tree in trees if tree["kind"] == "ResourceClaimTemplate"
    }
    template = job["spec"]["template"]
    metadata = {"namespace": job["metadata"]["namespace"], "name": "asked"}
    labels = job["metadata"].get("labels", {}) | template.get("metadata", {}).get("labels", {})
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"labels": labels},
        "spec": template["spec"] | {"priority": priority},
    }
    pod = codec.decode_struct(pods.Pod, codec.encode_tree(tree))
    specs = {
        entry.name: _claim_spec(templates[entry.resource_claim_template_name or ""])
        for entry in pod.spec.resource_claims
    }
    return shapes.Shape(name, pod, specs)


def _claim_spec(template: Tree) -> claims.ResourceClaimSpec:
    document = msgspec.json.encode(template["spec"]["spec"])
    return defaults.claim_spec(codec.decode_struct(claims.ResourceClaimSpec, document))
