"""Gathers the facts that `dovetail doctor` checks, from a live cluster or a snapshot.

Given a connection or a directory. Reads only: access reviews are created, but the server stores nothing for them. A
part that RBAC forbids or the server does not serve is left out and named in `unread`.
"""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import itertools
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.program import Outcome
from dovetail.doctor import check_control_plane, checkup, findings
from dovetail.install import chart
from dovetail.kube import client, discovery
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, meta, object_set, registry
from dovetail.kubetypes.core import leases, resource_quotas
from dovetail.kubetypes.resource import device_classes, slices
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.snapshot import any_snapshot

QUOTA: Final = registry.Kind(
    "v1", "ResourceQuota", "resourcequotas", True, resource_quotas.ResourceQuota
)
SELF_REVIEW: Final = registry.Kind(
    "authorization.k8s.io/v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    is_namespaced=False,
    struct=codec.Generic,
)
COMPONENT_LABEL: Final = "app.kubernetes.io/component"  # of the chart
SCHEDULER: Final = "scheduler"
LISTED: Final = {  # facts by the kind they are listed from
    "nodes": registry.NODE,
    "slices": registry.SLICE,
    "classes": registry.DEVICE_CLASS,
    "claims": registry.CLAIM,
    "templates": registry.TEMPLATE,
    "pods": registry.POD,
    "leases": registry.LEASE,
    "quotas": QUOTA,
    "queues": registry.QUEUE,
}
OPTIONAL: Final = ("queues",)  # a cluster without the definition has no queues
# Every kubelet renews a lease in that namespace; only leaders' leases matter here.
NOT_NODES: Final = {"fieldSelector": "metadata.namespace!=kube-node-lease"}
IN_A_SNAPSHOT: Final = "a snapshot does not hold it"
AT_ONCE: Final = 8

PartialFacts = dict[str, Any]


class _NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    node_info: _NodeInfo = _NodeInfo()


class _Kubelet(msgspec.Struct, rename="camel"):
    """The part of a node that `nodes.Node` leaves out."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    status: _NodeStatus = _NodeStatus()


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def report_on_cluster(
    connection: client_config.Connection, ours: findings.Ours | None, *, subject: str | None = None
) -> checkup.Report:
    """The report on a live cluster."""
    facts = await gather_facts(connection, ours, subject=subject)
    return checkup.report(facts, cluster=connection.server)


async def gather_facts(
    connection: client_config.Connection, ours: findings.Ours | None, *, subject: str | None = None
) -> findings.Facts:
    """The facts of a live cluster.

    Without `ours`, the lease of an installation is looked up. `subject` is the user whose rights are checked: by
    default the scheduler's service account; the caller's own user if it is empty, or on the embedded cluster.
    """
    async with transport.Transport(connection, user_agent="dovetail-doctor") as over:
        gathered_facts: PartialFacts = {}
        unread: dict[str, str] = {}
        await _read_server(over, gathered_facts)
        for name, kind in LISTED.items():
            await _try_to_read(name, _list(over, kind, name), facts=gathered_facts, unread=unread)

        ours = ours or find_installation(gathered_facts.get("leases") or ())
        if subject is None and gathered_facts["is_embedded"]:
            subject = ""  # the embedded scheduler runs as the one user there is
        elif subject is None:
            subject = f"system:serviceaccount:{ours.lease_namespace}:{ours.lease_name}"
        await _try_to_read("kubelets", _kubelets(over), facts=gathered_facts, unread=unread)
        review = _review_rights(over, ours, subject)
        await _try_to_read("rights", review, facts=gathered_facts, unread=unread)

    now = datetime.datetime.now(datetime.UTC)
    return findings.Facts(
        now=now, ours=ours, matches=class_matches(gathered_facts), unread=unread, **gathered_facts
    )


def report_on_snapshot(saved: any_snapshot.Snapshot, ours: findings.Ours) -> checkup.Report:
    """The report on a saved cluster, as of the time it was saved."""
    saved_facts: PartialFacts = {}
    for name, kind in LISTED.items():
        if kind.name in saved.kinds:
            stored_objects = saved.objects.listed(kind.name)
            saved_facts[name] = tuple(stored.struct for stored in stored_objects)
    saved_facts["kubelets"] = _saved_kubelets(saved.objects)
    if number := check_control_plane.number_of(saved.server_version):
        saved_facts |= {"server_version": saved.server_version, "server_number": number}

    all_names = (*LISTED, "rights", "served", "clock_ahead_seconds")
    missing = {name: IN_A_SNAPSHOT for name in all_names if name not in saved_facts}
    facts = findings.Facts(
        now=saved.taken_at,
        ours=ours,
        matches=class_matches(saved_facts),
        unread=missing,
        **saved_facts,
    )
    return checkup.report(facts, cluster=saved.objects.cluster)


def find_installation(lease_list: Iterable[leases.Lease]) -> findings.Ours:
    """Our scheduler by the lease that the chart labelled; else the default lease."""
    default = findings.Ours()
    for lease in lease_list:
        labels = lease.metadata.labels
        # The recorder of history has a lease of the chart, too.
        is_schedulers = labels.get(COMPONENT_LABEL, SCHEDULER) == SCHEDULER
        if labels.get(chart.PART_LABEL) == "dovetail" and is_schedulers:
            return default._replace(
                lease_namespace=lease.metadata.namespace, lease_name=lease.metadata.name
            )
    return default


def needed_rights(ours: findings.Ours) -> tuple[findings.Right, ...]:
    """Every right that the chart grants the scheduler, because it needs each of them."""
    release = chart.Release(ours.lease_name.removesuffix("-scheduler"), ours.lease_namespace)
    trees = chart.objects(chart.values_of(settings=["image.repository=any"]), release)
    rights: dict[findings.Right, None] = {}
    roles = [tree for tree in trees if tree["kind"] in ("ClusterRole", "Role")]
    for role in roles:
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            rights |= dict.fromkeys(_rights_of(rule, namespace))
    return tuple(rights)


def _rights_of(rule: dict[str, Any], namespace: str) -> Iterator[findings.Right]:
    name = next(iter(rule.get("resourceNames", ())), "")
    resources = itertools.product(rule.get("apiGroups", ()), rule.get("resources", ()))
    for (group, resource), verb in itertools.product(resources, rule["verbs"]):
        yield findings.Right(verb, group, resource, namespace, name)


def class_matches(gathered_facts: PartialFacts) -> dict[str, findings.Matches]:
    """How many devices each class selects. Equal devices are evaluated once."""
    shown: Iterable[slices.ResourceSlice] = gathered_facts.get("slices") or ()
    devices = [
        device_views.view(slice_.spec.driver, device)
        for slice_ in shown
        for device in slice_.spec.devices
    ]
    return {
        device_class.metadata.name: _matches(device_class, devices)
        for device_class in gathered_facts.get("classes") or ()
    }


def _matches(device_class: device_classes.DeviceClass, devices: list[Any]) -> findings.Matches:
    matching = devices
    for selector in device_class.spec.selectors:
        if selector.cel is None:
            continue
        try:
            outcomes = selectors.selector(selector.cel.expression).match_all(matching)
        except errors.ExpressionError as error:
            return findings.Matches(len(devices), 0, str(error))
        is_match = [outcome is Outcome.MATCH for outcome in outcomes]
        matching = list(itertools.compress(matching, is_match))
    return findings.Matches(len(devices), len(matching))


async def _try_to_read(
    name: str, request: Awaitable[Any], *, facts: PartialFacts, unread: dict[str, str]
) -> None:
    """Reads one part. A refusal goes to `unread`; an unreachable server raises and ends the report."""
    try:
        facts[name] = await request
    except (failures.Refused, failures.Missing) as refused:
        if name in OPTIONAL and isinstance(refused, failures.Missing):
            facts[name] = ()
            return
        unread[name] = f"may not be read or is not served: {refused}"


async def _read_server(over: transport.Transport, facts: PartialFacts) -> None:
    """Reads version, served kinds and clock. Raises if the server does not answer."""
    sent_at = datetime.datetime.now(datetime.UTC)
    answer = await over.request("GET", "/version")
    received_at = datetime.datetime.now(datetime.UTC)
    version = await discovery.version(over)
    facts["server_version"] = version.git_version
    facts["server_number"] = version.number
    facts["is_embedded"] = version.is_embedded
    facts["served"] = {
        version: await discovery.served(over, version)
        for version in check_control_plane.ASKED_VERSIONS
    }

    if server_date := answer.headers.get("Date"):
        # The header is cut to whole seconds, so on average the server's clock is half a second later. It was written
        # between request and response, so our clock is read at the middle of the two.
        server = email.utils.parsedate_to_datetime(server_date) + datetime.timedelta(seconds=0.5)
        local = sent_at + (received_at - sent_at) / 2
        facts["clock_ahead_seconds"] = (local - server).total_seconds()


async def _list(over: transport.Transport, kind: registry.Kind, name: str) -> tuple[Any, ...]:
    params = NOT_NODES if name == "leases" else None
    listed, _ = await client.list_all(over, kind, params=params)
    return tuple(listed)


async def _kubelets(over: transport.Transport) -> dict[str, str]:
    """The kubelet version of every node."""
    kubelets, _ = await client.list_all(over, registry.NODE._replace(struct=_Kubelet))
    return {node.metadata.name: node.status.node_info.kubelet_version for node in kubelets}


def _saved_kubelets(objects: object_set.ObjectSet) -> dict[str, str]:
    kubelets = [
        codec.decode_struct(_Kubelet, stored.document)
        for stored in objects.listed(registry.NODE.name)
    ]
    return {node.metadata.name: node.status.node_info.kubelet_version for node in kubelets}


async def _review_rights(
    over: transport.Transport, ours: findings.Ours, subject: str
) -> findings.Rights:
    """The rights that the subject lacks, or the caller if it is empty. Raises Refused if reviews are forbidden."""
    rights = needed_rights(ours)
    api = client.KubeApi(over)
    if not subject:
        missing = await _missing_rights(api, SELF_REVIEW, rights, {})
        return findings.Rights("your user", rights, missing)

    # A service account has rights through its groups too, and the server does not add them to a review.
    about = {"user": subject, "groups": groups_of(subject)}
    missing = await _missing_rights(api, access_reviews.ACCESS_REVIEW, rights, about)
    return findings.Rights(subject, rights, missing)


def groups_of(subject: str) -> list[str]:
    """The groups that the server puts a service account in."""
    namespace = subject.removeprefix("system:serviceaccount:").partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


async def _missing_rights(
    api: client.KubeApi,
    kind: registry.Kind,
    rights: tuple[findings.Right, ...],
    about: dict[str, Any],
) -> tuple[findings.Right, ...]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def is_allowed(right: findings.Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": right.namespace,
            "name": right.name,
        }
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "spec": about | {"resourceAttributes": attributes},
        }
        async with slots:
            body = await api.create(apis.Target(kind), msgspec.json.encode(document))
        return msgspec.json.decode(body, type=_Review).status.allowed

    allowed = await asyncio.gather(*map(is_allowed, rights))
    denied = [not is_granted for is_granted in allowed]
    return tuple(itertools.compress(rights, denied))
