"""What keeps one pod off every node, each thing apart: the filters of the engine, asked one by one.

Given the World in a trial and a pod whose claims are known. Every block says what would lift it, so that one pass over
nodes answers all counterfactuals: if no other pod ran, if the platform were healthy, if one rule were gone. Nodes whose
devices look alike are asked once. Never decides whether the pod starts: the engine's plan does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.obstacles import device_blocks, relation_blocks
from dovetail.answer.why.obstacles.blocks import Block, Blocks, Layer, Step
from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests, policy
from dovetail.schedule.node import extended_resources, node_fit
from dovetail.schedule.node.evaluate_node import NodeEvaluator, PodKind, kind_of, stand_in
from dovetail.schedule.node.filters import ownership
from dovetail.schedule.node.pod_claims import PodClaim, PodClaims, named_nodes
from dovetail.world.events import key_of
from dovetail.world.world import World

# Taints that the platform sets on nodes it is about to lose or cannot use; by key, or how a key begins.
PLATFORM_TAINTS: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupt",
    "karpenter.sh/unregistered",
    "readiness.k8s.io/",
)
LOST_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/out-of-service",
    }
)
# Words in keys of taints that tools set on nodes with broken parts.
BROKEN_WORDS: Final = (
    "unhealthy",
    "not-ready",
    "notready",
    "upgrade",
    "maintenance",
    "xid",
    "drain",
)
# Labels that node feature discovery sets on nodes with boards of a vendor, by the domain of its resources.
BOARD_LABELS: Final = {
    "nvidia.com": (
        "nvidia.com/gpu.present",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "feature.node.kubernetes.io/pci-0300_10de.present",
    ),
    "amd.com": (
        "feature.node.kubernetes.io/pci-1002.present",
        "feature.node.kubernetes.io/pci-0300_1002.present",
        "feature.node.kubernetes.io/pci-1200_1002.present",
        "feature.node.kubernetes.io/amd-gpu",
    ),
}
LEAVING_TAINTS: Final = ("ToBeDeleted", "DeletionCandidate", "karpenter.sh/disrupt")

_TOLERATED_WEIGHT: Final = 1.0
_LABEL_WEIGHT: Final = 1.0
_TOO_LARGE_WEIGHT: Final = 2.5
_UNKNOWN_WEIGHT: Final = 3.0  # no node offers it
_OTHER_KIND_WEIGHT: Final = 6.0  # other nodes offer it: this node is of another kind


class NodeBlocks:
    """The blocks of every node for one pod."""

    def __init__(
        self, world: World, policy_: policy.Policy, pod: pods.Pod, needs: PodClaims
    ) -> None:
        self.world = world
        self.pod = pod
        self.policy = policy_
        self.evaluator = NodeEvaluator(world, policy_, policy.UNLIMITED)
        self.kind = _kind(world, pod, needs)
        self.needs = needs
        self.devices = device_blocks.DeviceBlocks(self.evaluator, self.kind)
        self._relations = relation_blocks.RelationBlocks(pod, world)
        self._offered_anywhere = _offered_anywhere(world, self.kind.need)
        self._by_node: dict[str, Blocks] | None = None
        # By node, what pods hold that are being deleted.
        self._ending: dict[str, pod_requests.Resources] | None = None

    def by_node(self) -> Mapping[str, Blocks]:
        """What keeps the pod off each node, in the order of the filters. Linear in nodes, worked out once."""
        if self._by_node is None:
            self._by_node = {
                name: tuple(self._blocks(node)) for name, node in self.world.nodes.items()
            }
        return self._by_node

    def is_advertised(self, resource: str) -> bool:
        """Whether any node offers the resource."""
        return self._offered_anywhere[resource] > 0

    def most_offered(self, resource: str) -> int:
        """The most that a single node offers."""
        return self._offered_anywhere[resource]

    # What claims are called

    def named(self, subject: str) -> str:
        """A request as the pod's author knows it: by the pod's name for the claim, or by the resource."""
        claim, request = _claim_and_request(subject)
        for place, pod_claim in enumerate(self.needs.fresh):
            if claim == stand_in(place):
                return f"claim {pod_claim.name}" + (f", request {request}" if request else "")
        resource = self._resource_of(request)
        return f"resource {resource}" if resource else subject

    def class_of(self, subject: str) -> str:
        """The device class of a request; of several alternatives the first."""
        option = self.option_of(subject)
        return "" if option is None else option.device_class_name

    def option_of(self, subject: str) -> claims.ExactDeviceRequest | claims.DeviceSubRequest | None:
        """What a request asks for; of several alternatives the first."""
        claim, request = _claim_and_request(subject)
        served = tuple(name for name, _ in self.kind.backed)
        for wanted in self.devices.claims_for(served):
            if wanted.metadata.name != claim:
                continue
            for entry in wanted.spec.devices.requests:
                options = (entry.exactly, *entry.first_available)
                named = [option for option in options if option is not None]
                if entry.name == request.partition("/")[0] and named:
                    return named[0]
        return None

    def claim_of(self, subject: str) -> claims.ResourceClaim | None:
        """The claim of a request, as it is asked for."""
        served = tuple(name for name, _ in self.kind.backed)
        wanted = {item.metadata.name: item for item in self.devices.claims_for(served)}
        return wanted.get(_claim_and_request(subject)[0])

    def class_expressions(self, name: str) -> tuple[str, ...]:
        """The selectors of a device class."""
        device_class = self.world.classes.get(name)
        selectors = device_class.spec.selectors if device_class is not None else ()
        return tuple(item.cel.expression for item in selectors if item.cel is not None)

    def _resource_of(self, request: str) -> str:
        served = tuple(name for name, _ in self.kind.backed)
        if not served:
            return ""
        built = extended_resources.requests_for(self.pod, self.kind.backed, served)
        names = [item.resource_name for item in built.mappings if item.request_name == request]
        return names[0] if names else served[0]

    def _blocks(self, node: nodes.Node) -> Iterator[Block]:
        yield from self._facts(node)
        name = node.metadata.name
        served = self.evaluator.served(self.kind, name)
        yield from self._room(node, served)
        yield from self.devices.of(name, served)
        yield from self._relations.of(node)

    # What the node is

    def _facts(self, node: nodes.Node) -> Iterator[Block]:
        spec = self.pod.spec
        if not ownership.is_ours(node, self.policy.ownership):
            yield Block(Layer.OWNER, Step.OWNED, CauseCode.POOL)
        if spec.node_name and spec.node_name != node.metadata.name:
            yield Block(Layer.CONFIG, Step.NAME, CauseCode.NODE_NAME, spec.node_name)
        is_cordoned = node.spec.unschedulable and not node_fit.tolerated(
            node_fit.UNSCHEDULABLE_TAINT, spec.tolerations
        )
        if is_cordoned:
            yield Block(Layer.PLATFORM, Step.CORDON, CauseCode.CORDONED)
        yield from self._taints(node, is_cordoned=is_cordoned)
        if not node_fit.has_labels(spec, node):
            yield from _labels(spec, node)
        if feature := node_fit.missing_feature(spec, node):
            yield Block(Layer.CONFIG, Step.FEATURES, CauseCode.NODE_FEATURES, feature)
        if misfit := node_fit.gpu_misfit(self.pod, node):
            code = CauseCode.ANNOTATION
            yield Block(Layer.CONFIG, Step.GPU_CHOICE, code, misfit.what, detail=misfit.why)
        if reason := self.evaluator.driver_refusal(self.kind, node):
            code = CauseCode.IMAGE_REQUIREMENTS
            yield Block(Layer.CONFIG, Step.DRIVER, code, reason.subject, detail=reason.detail)
        yield from self._claims(node)

    def _taints(self, node: nodes.Node, *, is_cordoned: bool) -> Iterator[Block]:
        tolerations = self.pod.spec.tolerations
        for taint in node.spec.taints:
            if node_fit.untolerated((taint,), tolerations) is None:
                continue
            if taint.key == node_fit.UNSCHEDULABLE_TAINT.key:
                if not is_cordoned:
                    yield Block(Layer.PLATFORM, Step.CORDON, CauseCode.CORDONED)
                continue
            yield taint_block(taint)

    def _claims(self, node: nodes.Node) -> Iterator[Block]:
        settled = self.kind.held
        if self.kind.followed is not None:
            settled = (*settled, self.kind.followed)
        for pod_claim in settled:
            if not self.evaluator.follows(self.kind, pod_claim, node):
                subject = f"{pod_claim.key[0]}/{pod_claim.key[1]}"
                code = CauseCode.CLAIM_ELSEWHERE
                where = ", ".join(sorted(named_nodes((pod_claim,)) or ()))
                yield Block(Layer.OTHERS, Step.CLAIMS, code, subject, detail=where)

    # What is left of the node

    def _room(self, node: nodes.Node, served: tuple[str, ...]) -> Iterator[Block]:
        name = node.metadata.name
        need = self.kind.need.without(served)
        shortages = pod_requests.shortages(need, self.world.free(name))
        if not shortages:
            return
        offered = {
            shortage.resource: shortage.have
            for shortage in pod_requests.shortages(need, self.world.offered(name))
        }
        lost = self._lost(node)
        for resource, needed, free in [(s.resource, s.need, s.have) for s in shortages]:
            if resource not in offered:
                if lost and not pod_requests.shortages(need, self.world.free(name).plus(lost)):
                    continue  # held by pods that end with the node: its taint is the block
                code = CauseCode.BUSY
                yield Block(Layer.OTHERS, Step.ROOM, code, resource, needed, max(free, 0))
                continue
            yield self._too_large(node, resource, needed, max(offered[resource], 0))

    def _lost(self, node: nodes.Node) -> pod_requests.Resources | None:
        """What pods hold that are to end on a node that is not reached; None where it is reached."""
        if not any(taint.key in LOST_TAINTS for taint in node.spec.taints):
            return None
        if self._ending is None:
            self._ending = {}
            for pod_id, (where, request) in self.world.running().items():
                if self.world.pods[pod_id].metadata.deletion_timestamp:
                    before = self._ending.get(where, pod_requests.NOTHING)
                    self._ending[where] = before.plus(request)
        return self._ending.get(node.metadata.name)

    def _too_large(self, node: nodes.Node, resource: str, needed: int, offered: int) -> Block:
        capacity = node.status.capacity.get(resource)
        is_device = pod_requests.is_extended(resource)
        if is_device and capacity is not None and capacity.value() >= needed:
            code = CauseCode.NOT_ADVERTISED  # the kubelet takes them for unusable
            return Block(Layer.PLATFORM, Step.ROOM, code, resource, needed, offered)
        if offered <= 0 and self._has_idle_gpus(node, resource):
            code = CauseCode.NOT_ADVERTISED
            return Block(Layer.PLATFORM, Step.ROOM, code, resource, needed, offered)
        if not self.is_advertised(resource):
            code, weight = CauseCode.RESOURCE_UNKNOWN, _UNKNOWN_WEIGHT
        elif offered <= 0:
            code, weight = CauseCode.RESOURCE_UNKNOWN, _OTHER_KIND_WEIGHT
        else:
            code, weight = CauseCode.TOO_LARGE, _TOO_LARGE_WEIGHT
        return Block(Layer.CONFIG, Step.ROOM, code, resource, needed, offered, weight=weight)

    def _has_idle_gpus(self, node: nodes.Node, resource: str) -> bool:
        """Whether labels say that the node has boards of the vendor, and nothing offers them yet."""
        vendor = resource.partition("/")[0]
        offered = self.world.offered(node.metadata.name).scalars
        if any(name.startswith(f"{vendor}/") for name, amount in offered if amount > 0):
            return False
        labels = node.metadata.labels
        has_boards = any(labels.get(name) == "true" for name in BOARD_LABELS.get(vendor, ()))
        return has_boards and not self.evaluator.view(node.metadata.name).pools


def _claim_and_request(subject: str) -> tuple[str, str]:
    claim, _, request = subject.removeprefix("claim ").partition(": request ")
    return claim, request


def taint_block(taint: nodes.Taint) -> Block:
    """The block of a taint that the pod does not tolerate."""
    text = node_fit.taint_text(taint)
    if taint.key.startswith(LEAVING_TAINTS):
        return Block(Layer.PLATFORM, Step.TAINT, CauseCode.CORDONED, text)
    if taint.key.startswith(PLATFORM_TAINTS):
        return Block(Layer.PLATFORM, Step.TAINT, CauseCode.NOT_READY, text)
    if any(word in taint.key.casefold() for word in BROKEN_WORDS):
        return Block(Layer.PLATFORM, Step.TAINT, CauseCode.TAKEN_OUT, text)
    return Block(Layer.CONFIG, Step.TAINT, CauseCode.TAINT, text, weight=_TOLERATED_WEIGHT)


def requirement_text(requirement: node_selectors.NodeSelectorRequirement) -> str:
    """A condition on labels as it is written in the pod: `zone In [a, b]`."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        return f"{key} {operator} [{', '.join(values)}]"
    return " ".join((key, operator, *values))


def _labels(spec: pods.PodSpec, node: nodes.Node) -> Iterator[Block]:
    """The conditions on labels that the node fails: of the selector all, of the affinity those of its nearest term."""
    labels = node.metadata.labels
    for key, value in sorted(spec.node_selector.items()):
        if labels.get(key) != value:
            yield _label_block(f"{key}={value}")
    terms = _failing_terms(spec, node)
    for text in min(terms, key=len, default=()):
        yield _label_block(text)


def _label_block(text: str) -> Block:
    return Block(Layer.CONFIG, Step.LABELS, CauseCode.NODE_LABELS, text, weight=_LABEL_WEIGHT)


def _failing_terms(spec: pods.PodSpec, node: nodes.Node) -> list[tuple[str, ...]]:
    """What each term of the required affinity fails on; none where one of them holds."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return []
    terms: list[tuple[str, ...]] = []
    for term in required.node_selector_terms:
        alone = node_selectors.NodeSelector(node_selector_terms=(term,))
        if node_selectors.problems(alone) or not (term.match_expressions or term.match_fields):
            terms.append((UNREADABLE,))
            continue
        failing = node_selectors.failing_requirements(
            term, node.metadata.labels, node_name=node.metadata.name
        )
        if not failing:
            return []
        terms.append(tuple(map(requirement_text, failing)))
    return terms or [(UNREADABLE,)]


UNREADABLE: Final = "a node affinity that cannot be read"


def _kind(world: World, pod: pods.Pod, needs: PodClaims) -> PodKind:
    class_of_resource = extended_resources.classes_by_resource(world.classes)
    if not extended_resources.may_want(pod, class_of_resource):
        return kind_of(pod, needs)
    backed = extended_resources.backing(pod_requests.pod_request(pod), class_of_resource)
    earlier = extended_resources.existing_claims(world, pod)
    followed = None
    if earlier and earlier[0].status.allocation is not None:
        claim = earlier[0]
        followed = PodClaim(claim.metadata.name, key_of(claim), claim, claim.status.allocation)
    return kind_of(pod, needs, backed=backed, followed=followed)


def _offered_anywhere(world: World, need: pod_requests.Resources) -> Counter[str]:
    """The most of each resource that one node offers."""
    most: Counter[str] = Counter()
    for name in world.nodes:
        offered = world.offered(name)
        for resource, amount in (
            (pod_requests.CPU, offered.milli_cpu),
            (pod_requests.MEMORY, offered.memory_bytes),
            (pod_requests.EPHEMERAL_STORAGE, offered.ephemeral_bytes),
            (pod_requests.PODS, offered.pods),
            *offered.scalars,
        ):
            if amount > most[resource]:
                most[resource] = amount
    return most
