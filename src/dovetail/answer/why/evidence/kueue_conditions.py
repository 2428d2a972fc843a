"""What Kueue says about a pod or job: the conditions of its Workload, and the queues it goes through.

Given the replica and the identities of the pod or job and its owners. Conditions are states, so what they say holds
now. Reasons are those since Kueue 0.19; before that the words of the message decide. Never decides admission.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import near_values
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, pod_state, quoting
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.kubetypes import object_set

GROUP: Final = "kueue.x-k8s.io"
API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
OLDER_VERSION: Final = "kueue.x-k8s.io/v1beta1"
_WORKLOAD, _LOCAL, _CLUSTER = (
    object_set.unique_kind(API_VERSION, kind) for kind in ("Workload", "LocalQueue", "ClusterQueue")
)
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
GATE: Final = "kueue.x-k8s.io/admission"
_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
_POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"

_BY_REASON: Final = {
    "NoMatchingFlavor": CauseCode.KUEUE_CONFIG,
    "Misconfigured": CauseCode.KUEUE_CONFIG,
    "WaitingForQuota": CauseCode.KUEUE_QUOTA,
    "ExceedsMaxQuota": CauseCode.KUEUE_QUOTA,
    "TopologyPlacementFailed": CauseCode.KUEUE_TOPOLOGY,
    "WaitingForPreemptedWorkloads": CauseCode.KUEUE_POLICY,
    "WaitingForPodsReady": CauseCode.KUEUE_POLICY,
    "PendingEvaluation": CauseCode.KUEUE_POLICY,
    "AdmissionGated": CauseCode.KUEUE_POLICY,
    "Suspended": CauseCode.KUEUE_POLICY,
    "Deactivated": CauseCode.KUEUE_POLICY,
}
# The words of messages: quota first, since one message may name several flavors and only quota comes with time.
_BY_WORDS: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"insufficient (?:unused )?quota|maximum capacity|borrowing limit", CauseCode.KUEUE_QUOTA),
        (r'topology "[^"]*" (?:allows to fit only|doesn\'t allow)', CauseCode.KUEUE_TOPOLOGY),
        (r"untolerated taint|doesn't match (?:with )?(?:node )?affinity", CauseCode.KUEUE_CONFIG),
        (r"unavailable in ClusterQueue|not mapped in DRA", CauseCode.KUEUE_CONFIG),
        (r"supports only TopologyAwareScheduling", CauseCode.KUEUE_CONFIG),
        (r"(?:Local|Cluster)Queue \S* ?(?:doesn't|does not) exist", CauseCode.KUEUE_CONFIG),
    )
)
_UNUSED: Final = re.compile(
    r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), "
    r"(?P<more>[^\s,]+) more needed"
)
_TOO_MUCH: Final = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), .{0,200}?"
    r"\((?P<asked>[^()]*)\) > maximum capacity \((?P<most>[^()]*)\)",
    re.DOTALL,
)
_FEW_PODS: Final = re.compile(
    r'topology "(?P<topology>[^"]*)" allows to fit only (?P<fit>\d+) out of (?P<of>\d+) pod'
)


class _Queues(NamedTuple):
    local_name: str
    local: Tree | None
    cluster_name: str
    cluster: Tree | None
    # Whether any queue of the kind was read, so that a name that is absent is absent in the cluster.
    are_locals_read: bool
    are_clusters_read: bool
    neighbours: tuple[str, ...]  # the LocalQueues of the namespace


def observed_workload(
    replica: Replica, namespace: str, uids: set[str], labels: dict[str, str]
) -> Observed | None:
    """What Kueue holds against the pod or job with these identities; None where it holds nothing."""
    workload = _workload(replica, namespace, uids, labels)
    if workload is None:
        return _without_workload(replica, namespace, labels)
    about = f"Workload {namespace}/{fields.text_at(workload, 'metadata', 'name')}"
    if fields.condition(workload, "Admitted").get("status") == "True":
        return None
    queues = _queues(replica, namespace, fields.text_at(workload, "spec", "queueName"))
    reserved = fields.condition(workload, "QuotaReserved")
    lines = [
        pod_state.condition_line(about, condition)
        for condition in fields.trees_at(workload, "status", "conditions")
        if _says_something(condition)
    ]
    if fields.value_at(workload, "spec", "active") is False:
        return _deactivated(workload, about, lines)
    if fields.text_at(reserved, "status") == "True":
        return _waits_for_checks(workload, about, lines)
    if blocked := _blocked_queue(queues, namespace, lines):
        return blocked
    return _no_quota(reserved, queues, about, lines)


def _workload(
    replica: Replica, namespace: str, uids: set[str], labels: dict[str, str]
) -> Tree | None:
    group = labels.get(_POD_GROUP)
    for stored in replica.listed(_WORKLOAD, namespace=namespace):
        metadata = stored.struct.metadata
        if not stored.struct.api_version.startswith(GROUP + "/"):
            continue
        owners = {reference.uid for reference in metadata.owner_references}
        owners.add(metadata.labels.get(_JOB_UID, ""))
        if owners & uids or (group and metadata.name == group):
            return stored.tree
    return None


def _without_workload(replica: Replica, namespace: str, labels: dict[str, str]) -> Observed | None:
    """A queue name on an object for which Kueue made no Workload: its queue may not exist."""
    name = labels.get(QUEUE_LABEL)
    if not name:
        return None
    return _blocked_queue(_queues(replica, namespace, name), namespace, [])


def _says_something(condition: Tree) -> bool:
    type_, status = fields.text_at(condition, "type"), fields.text_at(condition, "status")
    return (type_, status) in {
        ("QuotaReserved", "False"),
        ("Admitted", "False"),
        ("Evicted", "True"),
        ("Preempted", "True"),
        ("Requeued", "False"),
        ("PodsReady", "False"),
    }


def _deactivated(workload: Tree, about: str, lines: list[str]) -> Observed:
    why = fields.text_at(fields.condition(workload, "Evicted"), "message")
    because = f": {quoting.words(why)}" if why else ""
    return observation.observed_cause(
        CauseCode.KUEUE_POLICY,
        f"its Kueue {about} is deactivated (spec.active: false){because}",
        *lines,
    )


def _waits_for_checks(workload: Tree, about: str, lines: list[str]) -> Observed | None:
    """Quota is reserved; an admission check has not passed."""
    for check in fields.trees_at(workload, "status", "admissionChecks"):
        state = fields.text_at(check, "state")
        if state in ("", "Ready"):
            continue
        name = quoting.words(fields.text_at(check, "name"), 63)
        message = fields.text_at(check, "message")
        said = f": {quoting.words(message)}" if message else ""
        sentence = f"Kueue reserved quota, but admission check {name} is {state}{said}"
        line = quoting.line(f"{about}, admission check {name} {state}", None, message)
        return observation.observed_cause(CauseCode.KUEUE_POLICY, sentence, line, *lines)
    return None


def _queues(replica: Replica, namespace: str, local_name: str) -> _Queues:
    local = _tree(replica, _LOCAL, namespace, local_name)
    cluster_name = fields.text_at(local, "spec", "clusterQueue")
    return _Queues(
        local_name,
        local,
        cluster_name,
        _tree(replica, _CLUSTER, "", cluster_name),
        any(True for _ in replica.listed(_LOCAL)),
        any(True for _ in replica.listed(_CLUSTER)),
        tuple(each.struct.metadata.name for each in replica.listed(_LOCAL, namespace=namespace)),
    )


def _tree(replica: Replica, kind: str, namespace: str, name: str) -> Tree | None:
    stored = replica.get(object_set.Key(kind, namespace, name))
    return stored.tree if stored is not None else None


def _blocked_queue(queues: _Queues, namespace: str, lines: list[str]) -> Observed | None:
    """A queue that is missing, stopped or not active."""
    if not queues.local_name or not (queues.are_locals_read or queues.are_clusters_read):
        return None
    name = quoting.words(queues.local_name, 63)
    if queues.local is None:
        meant = near_values.nearest(queues.local_name, queues.neighbours)
        hint = f"; did you mean {quoting.words(meant, 63)}?" if meant else ""
        sentence = f"Kueue has no LocalQueue {name} in namespace {namespace}{hint}"
        return observation.observed_cause(CauseCode.KUEUE_CONFIG, sentence, *lines)
    if queues.cluster is None and queues.cluster_name and queues.are_clusters_read:
        sentence = (
            f"LocalQueue {name} names ClusterQueue {queues.cluster_name}, which does not exist"
        )
        return observation.observed_cause(CauseCode.KUEUE_CONFIG, sentence, *lines)
    for kind, tree in (("ClusterQueue", queues.cluster), ("LocalQueue", queues.local)):
        if tree is not None and (inactive := _inactive(kind, tree, lines)):
            return inactive
    return None


def _inactive(kind: str, queue: Tree, lines: list[str]) -> Observed | None:
    name = fields.text_at(queue, "metadata", "name")
    stop = fields.text_at(queue, "spec", "stopPolicy")
    active = fields.condition(queue, "Active")
    if stop in ("Hold", "HoldAndDrain"):
        sentence = (
            f"Kueue's {kind} {quoting.words(name, 63)} is stopped (stopPolicy {stop}); a queue "
            "admin resumes it with stopPolicy None"
        )
        return observation.observed_cause(
            CauseCode.KUEUE_POLICY,
            sentence,
            *_active_line(kind, name, active),
            *lines,
        )
    if fields.text_at(active, "status") != "False":
        return None
    message = fields.text_at(active, "message") or fields.text_at(active, "reason")
    sentence = f"Kueue's {kind} {quoting.words(name, 63)} is not active: {quoting.words(message)}"
    return observation.observed_cause(
        CauseCode.KUEUE_CONFIG, sentence, *_active_line(kind, name, active), *lines
    )


def _active_line(kind: str, name: str, active: Tree) -> list[str]:
    return [pod_state.condition_line(f"{kind} {name}", active)] if active else []


def _no_quota(reserved: Tree, queues: _Queues, about: str, lines: list[str]) -> Observed:
    message = fields.text_at(reserved, "message")
    queue = quoting.words(queues.cluster_name or queues.local_name, 63)
    if not reserved:
        sentence = f"Kueue has not considered {about} yet (queue {queue})"
        return observation.observed_cause(CauseCode.KUEUE_POLICY, sentence, *lines)
    code = _BY_REASON.get(fields.text_at(reserved, "reason")) or _code_of(message)
    if unused := _UNUSED.search(message[:8_192]):
        code = (
            CauseCode.KUEUE_QUOTA
        )  # also where other flavors do not suit: this one comes with time
        usage = _usage(queues.cluster, unused["flavor"], unused["resource"])
        sentence = (
            f"Kueue queue {queue}: {quoting.words(unused['more'], 20)} more "
            f"{quoting.words(unused['resource'], 63)} needed in flavor "
            f"{quoting.words(unused['flavor'], 63)}{usage}"
        )
    elif large := _TOO_MUCH.search(message[:8_192]):
        sentence = (
            f"Kueue queue {queue} can never admit it: it asks for {quoting.words(large['asked'], 20)} "
            f"{quoting.words(large['resource'], 63)}, and flavor {quoting.words(large['flavor'], 63)} "
            f"has at most {quoting.words(large['most'], 20)}"
        )
    elif few := _FEW_PODS.search(message[:8_192]):
        sentence = (
            f"Kueue queue {queue}: {few['fit'][:9]} of {few['of'][:9]} pods fit topology "
            f"{quoting.words(few['topology'], 63)} now"
        )
    else:
        said = message or fields.text_at(reserved, "reason")
        sentence = f"Kueue queue {queue} holds it: {quoting.words(said)}"
    return observation.observed_cause(code, sentence, *lines)


def _code_of(message: str) -> CauseCode:
    for pattern, code in _BY_WORDS:
        if pattern.search(message[:8_192]):
            return code
    return CauseCode.KUEUE_POLICY


def _usage(cluster_queue: Tree | None, flavor: str, resource: str) -> str:
    """How much of a flavor's nominal quota is reserved, where the ClusterQueue says so."""
    nominal = _nominal(cluster_queue, flavor, resource)
    for status in ("flavorsReservation", "flavorsUsage"):
        for entry in fields.trees_at(cluster_queue, "status", status):
            if fields.text_at(entry, "name") != flavor:
                continue
            for amounts in fields.trees_at(entry, "resources"):
                if fields.text_at(amounts, "name") == resource and nominal:
                    used = quoting.words(_amount(amounts.get("total")), 20)
                    borrowed = _amount(amounts.get("borrowed"))
                    more = (
                        f", {quoting.words(borrowed, 20)} borrowed"
                        if borrowed not in ("", "0")
                        else ""
                    )
                    return f" ({used} of {quoting.words(nominal, 20)} used{more})"
    return ""


def _nominal(cluster_queue: Tree | None, flavor: str, resource: str) -> str:
    for group in fields.trees_at(cluster_queue, "spec", "resourceGroups"):
        for entry in fields.trees_at(group, "flavors"):
            if fields.text_at(entry, "name") != flavor:
                continue
            for quota in fields.trees_at(entry, "resources"):
                if fields.text_at(quota, "name") == resource:
                    return _amount(quota.get("nominalQuota"))
    return ""


def _amount(value: object) -> str:
    """Quantities stand in JSON as text or as whole numbers."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
