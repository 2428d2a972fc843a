"""What the words mean that say why work waits or was evicted, and what helps.

One entry per reason code, per reason of the PodScheduled condition, and per rule of eviction. Data only: given nothing,
decides nothing. `dovetail explain WORD` prints an entry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.model import condition_reasons, plan
from dovetail.model.reasons import ReasonCode


class ReasonText(NamedTuple):
    """One word: what it means, and what can be done, by whom."""

    means: str
    helps: tuple[str, ...]


_SEE_SELECTORS: Final = "see what is published: dovetail get devices -o wide"
_ASK_LESS: Final = "ask for fewer GPUs, a smaller part of one, or another type"
_WAIT: Final = "wait: `dovetail when` says until when, as far as running work states its runtime"

DEVICES: Final = {
    ReasonCode.NO_DEVICES: ReasonText(
        "The node shows fewer devices of the requested class than the claim needs, in use or not.",
        (
            _ASK_LESS,
            "if the node should have GPUs, see whether its driver publishes them: dovetail doctor",
        ),
    ),
    ReasonCode.CLASS: ReasonText(
        "Too few devices of the node belong to the device class that the claim names.",
        ("name another class: dovetail get classes", _SEE_SELECTORS),
    ),
    ReasonCode.SELECTOR: ReasonText(
        "Too few devices of the node match a selector of the claim; the message names the nearest values.",
        (
            "try the selector on the cluster's devices: dovetail cel eval 'EXPRESSION'",
            _SEE_SELECTORS,
            "relax the selector, or ask for another GPU type",
        ),
    ),
    ReasonCode.CEL_ERROR: ReasonText(
        "A selector cannot be evaluated on some devices, such as an attribute they lack. They do not match.",
        (
            'guard the attribute: has(device.attributes["gpu.nvidia.com"].NAME) && ...',
            "see which devices fail: dovetail cel eval 'EXPRESSION'",
        ),
    ),
    ReasonCode.CAPACITY_POLICY: ReasonText(
        "No device offers the requested amount of a capacity, even when it is not in use.",
        ("request no more than the largest amount on offer, which the message names",),
    ),
    ReasonCode.NOT_OWNED: ReasonText(
        "The node or the devices belong to another scheduler: a label or taint keeps Dovetail off them.",
        ("label the node for Dovetail, or submit the pod to the other scheduler",),
    ),
    ReasonCode.TAINT: ReasonText(
        "Devices that would do have taints that the claim does not tolerate: faulty, drained, or reserved.",
        (
            "see the taints: dovetail get devices -o wide",
            "an administrator repairs the device or removes the DeviceTaintRule",
            "tolerate the taint in the claim's request, if that is safe",
        ),
    ),
    ReasonCode.IN_USE: ReasonText(
        "The node has such devices, and other claims hold too many of them.",
        (_WAIT, _ASK_LESS, "see who holds them: dovetail top --by queue, dovetail queue"),
    ),
    ReasonCode.QUARANTINE: ReasonText(
        "Devices are kept out of use because their pod was removed by force and may still run there.",
        ("wait until the time in the message", "an administrator confirms that the node is down"),
    ),
    ReasonCode.COUNTERS: ReasonText(
        "Too little of a GPU's shared counters is left: other MIG slices of the same GPU take the room.",
        ("ask for a smaller MIG profile", _WAIT),
    ),
    ReasonCode.CAPACITY: ReasonText(
        "A device that pods share has too little capacity left, such as memory.",
        ("ask for less memory", _WAIT),
    ),
    ReasonCode.CONSTRAINT: ReasonText(
        "No set of free devices meets a constraint of the claim: matchAttribute or distinctAttribute.",
        (
            "drop or relax the constraint, such as one NVLink domain or one PCIe root",
            "ask for fewer devices, so that more sets qualify",
        ),
    ),
    ReasonCode.COMBINATION: ReasonText(
        "Each request of the claims fits alone; together they need more than the node has.",
        ("ask for less in one of the requests", _WAIT),
    ),
    ReasonCode.LIMIT: ReasonText(
        "A claim may hold at most 32 devices.", ("divide the work among several pods or claims",)
    ),
    ReasonCode.ALL_DEVICES: ReasonText(
        "The claim asks for all devices that match on the node, and some are in use.",
        ("ask for a number of devices instead of all", _WAIT),
    ),
    ReasonCode.INVALID_POOL: ReasonText(
        "The slices of a pool contradict each other, so its devices are not used.",
        ("an administrator looks at the driver of that node: dovetail get slices",),
    ),
    ReasonCode.INCOMPLETE_POOL: ReasonText(
        "A driver is still publishing the slices of a pool.",
        ("wait a moment; if it lasts, look at the driver of that node",),
    ),
    ReasonCode.INPUT: ReasonText(
        "The claim or its device class cannot be understood; the message names the field.",
        ("correct the claim: dovetail apply --dry-run=client -f FILE checks it",),
    ),
    ReasonCode.SELECTOR_COST: ReasonText(
        "Evaluating the pod's selectors takes more than any pod may spend.",
        ("simplify the selectors: dovetail cel check 'EXPRESSION' says what one may cost",),
    ),
    ReasonCode.BUDGET: ReasonText(
        "The search for devices was ended before the answer was known.",
        ("simplify the claim: fewer requests with overlapping selectors",),
    ),
    ReasonCode.TO_BE_CONTINUED: ReasonText(
        "The steps of this cycle are used up; the next cycle continues.", ("wait a moment",)
    ),
    ReasonCode.CLAIM_ELSEWHERE: ReasonText(
        "The claim already has devices, and they cannot be reached from this node.",
        ("run the pod where the devices are, or use a claim of its own (a template)",),
    ),
}
NODES: Final = {
    ReasonCode.OTHER_NODE: ReasonText(
        "The pod names another node.", ("remove spec.nodeName, or the node affinity by name",)
    ),
    ReasonCode.CORDONED: ReasonText(
        "The node is cordoned: it takes no new pods.",
        ("an administrator uncordons it: kubectl uncordon NODE",),
    ),
    ReasonCode.NODE_TAINT: ReasonText(
        "The node has a taint that the pod does not tolerate.",
        (
            "add the toleration, if the pod is meant for such nodes",
            "an administrator removes the taint",
        ),
    ),
    ReasonCode.NODE_LABELS: ReasonText(
        "The node's labels do not meet the pod's node selector or node affinity.",
        ("see the labels: dovetail get nodes --show-labels", "relax the selector"),
    ),
    ReasonCode.NODE_FEATURES: ReasonText(
        "The node does not declare a feature that the pod needs.",
        ("an administrator upgrades the kubelet of the node",),
    ),
    ReasonCode.POD_AFFINITY: ReasonText(
        "The pod has to be near other pods, and none of them is there.",
        ("check that the pods its affinity names run", "prefer instead of require"),
    ),
    ReasonCode.POD_ANTI_AFFINITY: ReasonText(
        "A pod that this one must be away from is there, or the other way round.",
        (
            "use fewer pods, or prefer instead of require: `dovetail run --nodes` puts every pod on its own node",
        ),
    ),
    ReasonCode.SPREAD: ReasonText(
        "The pod would make the spread over zones or nodes more uneven than it allows.",
        ("raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway",),
    ),
    ReasonCode.SPREAD_LABEL: ReasonText(
        "The node lacks the label by which the pod is to be spread.",
        ("an administrator labels the node, or the pod uses another topologyKey",),
    ),
    ReasonCode.HOST_PORT: ReasonText(
        "Another pod of the node uses the host port.", ("use another port, or none of the host",)
    ),
    ReasonCode.NOMINATED: ReasonText(
        "The room is kept for a pod of the same or higher priority that others make room for.",
        (_WAIT,),
    ),
    ReasonCode.PROMISED: ReasonText(
        "The pod might still run when another gang was promised to start there.",
        (
            "state a shorter runtime: dovetail.dev/max-runtime, or dovetail run --time",
            "see the promises: dovetail queue",
        ),
    ),
    ReasonCode.NEVER: ReasonText(
        "No node would fit the pod even if all of them were empty.",
        (_ASK_LESS, "an administrator adds nodes of a larger type"),
    ),
    ReasonCode.ROOM: ReasonText(
        "Too little cpu, memory, pods, storage or of an extended resource is free on the node.",
        ("request less cpu or memory", _WAIT),
    ),
    ReasonCode.GPU_CHOICE: ReasonText(
        "A device plugin counts the node's GPUs, and an annotation of the pod rules that type out.",
        ("change the annotation, or use a claim with a selector",),
    ),
    ReasonCode.IMAGE_REQUIREMENTS: ReasonText(
        "The node's driver does not meet the pod's NVIDIA_REQUIRE_* variables, and the policy refuses such nodes.",
        (
            "use an image for an older CUDA, or one with a package for the node's driver branch",
            "an administrator upgrades the driver: dovetail stack check --to driver=VERSION",
            "set NVIDIA_DISABLE_REQUIRE=true in the container, if the program runs on that driver nonetheless",
        ),
    ),
    ReasonCode.NO_NODES: ReasonText("The cluster has no nodes.", ("an administrator adds nodes",)),
}
ITSELF: Final = {
    ReasonCode.CLAIM_MISSING: ReasonText(
        "A claim that the pod names does not exist.",
        ("create it: dovetail get claims shows those there are",),
    ),
    ReasonCode.CLAIM_NOT_MADE: ReasonText(
        "The claim is still to be made from its template, or the template does not exist.",
        ("create the template: dovetail get templates", "wait a moment"),
    ),
    ReasonCode.CLAIM_DELETING: ReasonText("The claim is being deleted.", ("create another one",)),
    ReasonCode.CLAIM_RETURNING: ReasonText(
        "The devices of the claim are being released after its PodGroup.", ("wait a moment",)
    ),
    ReasonCode.CLAIM_NOT_OURS: ReasonText(
        "The claim was made for another pod.", ("use a claim of its own (a template)",)
    ),
    ReasonCode.CLAIM_UNREADABLE: ReasonText(
        "A part of the claim cannot be read; the message names the field.", ("correct the claim",)
    ),
    ReasonCode.CLAIM_FULL: ReasonText(
        "256 pods use the claim already, which is the most Kubernetes allows.",
        ("use several claims",),
    ),
    ReasonCode.VOLUME_MISSING: ReasonText(
        "The volume claim, or the volume it is bound to, does not exist.",
        ("create it: kubectl get pvc,pv",),
    ),
    ReasonCode.VOLUME_DELETING: ReasonText(
        "The volume claim is being deleted.", ("create another one",)
    ),
    ReasonCode.VOLUME_NOT_OURS: ReasonText(
        "The volume claim was made for another pod.", ("use another name",)
    ),
    ReasonCode.VOLUME_UNBOUND: ReasonText(
        "The volume claim is not bound, and its class does not wait for a pod.",
        ("see why: kubectl describe pvc NAME",),
    ),
    ReasonCode.VOLUME_NODE: ReasonText(
        "The volume cannot be reached from this node.", ("run the pod near the volume",)
    ),
    ReasonCode.VOLUME_NONE: ReasonText(
        "No free volume fits the claim near this node, and none can be made there.",
        ("an administrator adds volumes, or a storage class that provisions them",),
    ),
    ReasonCode.VOLUME_SPACE: ReasonText(
        "The storage near this node has too little left.", ("request a smaller volume",)
    ),
    ReasonCode.VOLUME_LIMIT: ReasonText(
        "The node has as many volumes attached as its driver allows.", (_WAIT,)
    ),
    ReasonCode.VOLUME_DRIVER: ReasonText(
        "The node does not run the driver of the volume.",
        ("an administrator installs the driver there",),
    ),
    ReasonCode.VOLUME_IN_USE: ReasonText(
        "Another pod uses the volume, and only one may.", ("use another volume", _WAIT)
    ),
    ReasonCode.GATED: ReasonText(
        "A scheduling gate holds the pod back; the message names it.",
        ("the controller that set the gate removes it",),
    ),
    ReasonCode.ANNOTATION: ReasonText(
        "An annotation of another scheduler asks for what cannot be honoured here.",
        ("write what the message proposes instead",),
    ),
}
QUEUES: Final = {
    ReasonCode.QUEUE_LIMIT: ReasonText(
        "The queue, or one above it, is at its limit or power cap.",
        (_WAIT, "an administrator raises the limit: dovetail get queues -o wide"),
    ),
    ReasonCode.QUEUE_QUOTA: ReasonText(
        "Work that may not be evicted can use only the quota of its queue, and that is used up.",
        (
            'let it be evicted: dovetail.dev/preemptible: "true"',
            "an administrator raises the quota",
        ),
    ),
    ReasonCode.POWER_CAP: ReasonText(
        "A rack, or another level of a Topology, is at its power cap.",
        (_WAIT, "an administrator raises the cap: dovetail get topologies"),
    ),
    ReasonCode.QUEUE_BEHIND: ReasonText(
        "The queue is below its quota, and the work of other queues beyond theirs cannot be evicted.",
        (_WAIT, "the owners named in the message let their work be evicted, or end it"),
    ),
    ReasonCode.QUEUE_SHARE: ReasonText(
        "The queue has its fair share: it may use what is free, but reclaims nothing from others.",
        (_WAIT, "see the shares: dovetail get queues, dovetail top --by queue"),
    ),
    ReasonCode.QUEUE_UNUSABLE: ReasonText(
        "The queue does not exist, is not for this namespace, or is broken.",
        ("name another queue: dovetail get queues -o wide shows which namespaces may use each",),
    ),
    ReasonCode.GANG_INCOMPLETE: ReasonText(
        "Too few pods of the gang exist, or too many are gated, to reach its minimum.",
        ("create the missing pods, or lower dovetail.dev/gang-min",),
    ),
    ReasonCode.GANG_WAITS: ReasonText(
        "Another pod of the gang, or all of them together, found no place; none starts alone.",
        ("read the message: it says which pod, and why", "use fewer pods, or a smaller minimum"),
    ),
    ReasonCode.TOPOLOGY: ReasonText(
        "No domain of the required level, such as a rack or an NVLink domain, has room for all pods.",
        (
            "prefer the level instead: dovetail.dev/topology-preferred",
            "relax it after a while: dovetail.dev/topology-relax-after",
            "use segments: dovetail.dev/topology-segment",
        ),
    ),
    ReasonCode.CLAIM_QUEUE: ReasonText(
        "The claim is labelled for another queue.", ("use a claim of the own queue",)
    ),
    ReasonCode.TOO_YOUNG: ReasonText(
        "It may start where there is room, but may not evict others, or not yet.",
        (_WAIT, "the message says why: may-evict-after, preemptionPolicy: Never, or no queue"),
    ),
}
CONDITIONS: Final = {
    condition_reasons.UNSCHEDULABLE: ReasonText(
        "No node has room for the pod now; one more node could start it. Autoscalers act on this word.",
        ("see what is in the way: dovetail queue -o wide", _WAIT),
    ),
    condition_reasons.SCHEDULER_ERROR: ReasonText(
        "The scheduler has not decided yet, or could not write its decision.",
        ("wait a moment; if it lasts, look at the scheduler's log: dovetail doctor",),
    ),
    condition_reasons.OVER_QUOTA: ReasonText(
        "The queue is at its limit, or at its quota, which is all that non-preemptible work may use.",
        (_WAIT, "an administrator raises the quota or limit: dovetail get queues"),
    ),
    condition_reasons.NOT_READY: ReasonText(
        "A claim or volume claim of the pod is missing, being deleted, or another pod's.",
        ("see which: dovetail describe pod NAME",),
    ),
    condition_reasons.NOT_PREPARED: ReasonText(
        "The pod has a node and devices; a driver has not prepared them yet.",
        ("wait a moment; if it lasts, look at the driver of the node",),
    ),
    condition_reasons.NO_NODE_FITS: ReasonText(
        "No node of any kind would start the pod: it asks for the impossible.",
        ("see what: dovetail describe pod NAME", _ASK_LESS),
    ),
}
RULES: Final = {
    plan.Rule.PREEMPTED: ReasonText(
        "Evicted for more important work of its own queue.",
        ("a controller creates it again; a higher priority class protects it",),
    ),
    plan.Rule.RECLAIMED: ReasonText(
        "Evicted because its queue held more than its share, and another queue needed its own.",
        ("a controller creates it again; work within the quota is not reclaimed",),
    ),
    plan.Rule.CONSOLIDATED: ReasonText(
        "Moved to another node, so that work fits that needs more room in one place.",
        ("it starts again on the node that is kept for it",),
    ),
    plan.Rule.OVERTIME: ReasonText(
        "It ran longer than it stated.",
        ("state a longer dovetail.dev/max-runtime (dovetail run --time)",),
    ),
    "Preempting": ReasonText(
        "Room is being made: other pods leave its node first.", ("wait until they have ended",)
    ),
    "Undecided": ReasonText(
        "The engine's budget ended before it had an answer.", ("wait a moment",)
    ),
}
ALL: Final[dict[str, ReasonText]] = {
    str(word): entry
    for table in (CONDITIONS, RULES, DEVICES, NODES, ITSELF, QUEUES)
    for word, entry in table.items()
}
