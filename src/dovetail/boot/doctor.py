"""Gathers what `dovetail doctor` judges, from a live cluster or a snapshot. Reads only, and says what it could not.

Given a connection or a directory. Reviews of rights are questions: they store nothing. What may not be read is left
out and named; what is missing on an older server is no failure.
"""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import itertools
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.boot import chart, snapshot
from dovetail.cel import devices as views
from dovetail.cel import selectors
from dovetail.cel.program import Outcome
from dovetail.kube import api as kube_api
from dovetail.kube import config, discovery, reviews
from dovetail.kube import transport as transports
from dovetail.model import classes, kinds, leases, meta, objects, quotas, slices
from dovetail.model.health import control, facts, judge
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.sim import cluster as clusters

QUOTA: Final = kinds.Kind("v1", "ResourceQuota", "resourcequotas", True, quotas.ResourceQuota)
SELF_REVIEW: Final = kinds.Kind(
    "authorization.k8s.io/v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    is_namespaced=False,
    struct=objects.Generic,
)
LISTED: Final = {  # facts by the kind they are listed from
    "nodes": kinds.NODE,
    "slices": kinds.SLICE,
    "classes": kinds.DEVICE_CLASS,
    "claims": kinds.CLAIM,
    "templates": kinds.TEMPLATE,
    "pods": kinds.POD,
    "leases": kinds.LEASE,
    "quotas": QUOTA,
    "queues": kinds.QUEUE,
}
OPTIONAL: Final = ("queues",)  # not installed everywhere: none is as good as no definition
NOT_NODES: Final = {"fieldSelector": "metadata.namespace!=kube-node-lease"}  # kubelets renew one lease each
IN_A_SNAPSHOT: Final = "a snapshot does not hold it"
AT_ONCE: Final = 8

Found = dict[str, Any]


class _NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    node_info: _NodeInfo = _NodeInfo()


class _Kubelet(msgspec.Struct, rename="camel"):
    """What the struct of a node leaves out."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    status: _NodeStatus = _NodeStatus()


class _Told(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Answer(msgspec.Struct, frozen=True):
    status: _Told = _Told()


async def live(connection: config.Connection, ours: facts.Ours | None, *, subject: str | None = None) -> judge.Report:
    """What is to be said about a live cluster."""
    return judge.report(await gathered(connection, ours, subject=subject), cluster=connection.server)


async def gathered(
    connection: config.Connection, ours: facts.Ours | None, *, subject: str | None = None
) -> facts.Facts:
    """What can be seen of a live cluster.

    Where nobody says what is ours, an installation is looked for. `subject` is the user whose rights are checked, one's
    own where it is empty; by default the scheduler's service account.
    """
    async with transports.Transport(connection, user_agent="dovetail-doctor") as over:
        found: Found = {}
        unread: dict[str, str] = {}
        await _server(over, found)
        for name, kind in LISTED.items():
            await _tried(name, _listed(over, kind, name), found=found, unread=unread)
        ours = ours or installed(found.get("leases") or ())
        if subject is None:
            subject = f"system:serviceaccount:{ours.lease_namespace}:{ours.lease_name}"
        await _tried("kubelets", _kubelets(over), found=found, unread=unread)
        await _tried("rights", _rights(over, ours, subject), found=found, unread=unread)
    now = datetime.datetime.now(datetime.UTC)
    return facts.Facts(now=now, ours=ours, matches=matches_of(found), unread=unread, **found)


def of_snapshot(directory: Path, ours: facts.Ours) -> judge.Report:
    """What is to be said about a saved cluster, as of the moment it was saved."""
    saved = snapshot.read(directory)
    found: Found = {}
    for name, kind in LISTED.items():
        if any(file.kind == kind.name for file in saved.manifest.files):
            found[name] = tuple(one.struct for one in clusters.listed(saved.cluster, kind.name))
    found["kubelets"] = _saved_kubelets(saved.cluster)
    if number := control.number_of(saved.manifest.server_version):
        found |= {"server_version": saved.manifest.server_version, "server_number": number}
    missing = {
        name: IN_A_SNAPSHOT for name in (*LISTED, "rights", "served", "clock_ahead_seconds") if name not in found
    }
    now = snapshot.moment_of(saved.manifest)
    seen = facts.Facts(now=now, ours=ours, matches=matches_of(found), unread=missing, **found)
    return judge.report(seen, cluster=saved.manifest.cluster or str(directory))


def installed(found: Iterable[leases.Lease]) -> facts.Ours:
    """Our scheduler as its lease tells: what the chart labelled, else where the scheduler looks by default."""
    usual = facts.Ours()
    for one in found:
        if one.metadata.labels.get(chart.PART_LABEL) == "dovetail":
            return usual._replace(lease_namespace=one.metadata.namespace, lease_name=one.metadata.name)
    return usual


def needed(ours: facts.Ours) -> tuple[facts.Right, ...]:
    """Every right the chart grants the scheduler: it needs each of them."""
    release = chart.Release(ours.lease_name.removesuffix("-scheduler"), ours.lease_namespace)
    made = chart.objects(chart.values_of(settings=["image.repository=any"]), release)
    found: dict[facts.Right, None] = {}
    for role in (one for one in made if one["kind"] in ("ClusterRole", "Role")):
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for group, resource, verb in itertools.product(
                rule.get("apiGroups", ()), rule.get("resources", ()), rule["verbs"]
            ):
                name = next(iter(rule.get("resourceNames", ())), "")
                found[facts.Right(verb, group, resource, namespace, name)] = None
    return tuple(found)


def matches_of(found: Found) -> dict[str, facts.Matches]:
    """What every class's selectors do with the devices there are. Devices alike are judged once."""
    shown: Iterable[slices.ResourceSlice] = found.get("slices") or ()
    devices = [views.view(one.spec.driver, device) for one in shown for device in one.spec.devices]
    return {one.metadata.name: _matched(one, devices) for one in found.get("classes") or ()}


def _matched(one: classes.DeviceClass, devices: list[Any]) -> facts.Matches:
    left = devices
    for selector in one.spec.selectors:
        if selector.cel is None:
            continue
        try:
            outcomes = selectors.selector(selector.cel.expression).match_all(left)
        except errors.ExpressionError as error:
            return facts.Matches(len(devices), 0, str(error))
        left = [device for device, outcome in zip(left, outcomes, strict=True) if outcome is Outcome.MATCH]
    return facts.Matches(len(devices), len(left))


async def _tried(name: str, asked: Awaitable[Any], *, found: Found, unread: dict[str, str]) -> None:
    """One part; a refusal is noted, a server that does not answer ends the whole."""
    try:
        found[name] = await asked
    except (failures.Refused, failures.Missing) as refused:
        if name in OPTIONAL and isinstance(refused, failures.Missing):
            found[name] = ()
            return
        unread[name] = f"may not be read or is not served: {refused}"


async def _server(over: transports.Transport, found: Found) -> None:
    """Version, kinds and clock. Raises where nobody answers."""
    asked = datetime.datetime.now(datetime.UTC)
    answer = await over.request("GET", "/version")
    now = datetime.datetime.now(datetime.UTC)
    version = await discovery.version(over)
    found["server_version"] = version.git_version
    found["server_number"] = version.number
    found["served"] = {one: await discovery.served(over, one) for one in control.ASKED_VERSIONS}
    if said := answer.headers.get("Date"):
        # The header is cut to whole seconds and was written between asking and answer: the middle of what may be.
        server = email.utils.parsedate_to_datetime(said) + datetime.timedelta(seconds=0.5)
        found["clock_ahead_seconds"] = ((asked + (now - asked) / 2) - server).total_seconds()


async def _listed(over: transports.Transport, kind: kinds.Kind, name: str) -> tuple[Any, ...]:
    params = NOT_NODES if name == "leases" else None
    listed, _ = await kube_api.list_all(over, kind, params=params)
    return tuple(listed)


async def _kubelets(over: transports.Transport) -> dict[str, str]:
    """Versions by node."""
    told, _ = await kube_api.list_all(over, kinds.NODE._replace(struct=_Kubelet))
    return {one.metadata.name: one.status.node_info.kubelet_version for one in told}


def _saved_kubelets(cluster: clusters.Cluster) -> dict[str, str]:
    told = [objects.decode_struct(_Kubelet, stored.document) for stored in clusters.listed(cluster, kinds.NODE.name)]
    return {one.metadata.name: one.status.node_info.kubelet_version for one in told}


async def _rights(over: transports.Transport, ours: facts.Ours, subject: str) -> facts.Rights:
    """Which rights the subject lacks; one's own where none is named. Raises Refused where one may not ask."""
    wanted = needed(ours)
    asker = kube_api.KubeApi(over)
    if not subject:
        return facts.Rights("your user", wanted, await _missing(asker, SELF_REVIEW, wanted, {}))
    # A service account has rights through its groups too; the server does not add them to a question.
    about = {"user": subject, "groups": groups_of(subject)}
    return facts.Rights(subject, wanted, await _missing(asker, reviews.ACCESS_REVIEW, wanted, about))


def groups_of(subject: str) -> list[str]:
    """The groups a service account is in, as the server would tell them."""
    namespace = subject.removeprefix("system:serviceaccount:").partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


async def _missing(
    asker: kube_api.KubeApi, kind: kinds.Kind, wanted: tuple[facts.Right, ...], about: dict[str, Any]
) -> tuple[facts.Right, ...]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def is_allowed(right: facts.Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        asked = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": right.namespace,
            "name": right.name,
        }
        document = {"apiVersion": kind.api_version, "kind": kind.name, "spec": about | {"resourceAttributes": asked}}
        async with slots:
            body = await asker.create(apis.Target(kind), msgspec.json.encode(document))
        return msgspec.json.decode(body, type=_Answer).status.allowed

    allowed = await asyncio.gather(*map(is_allowed, wanted))
    return tuple(right for right, is_there in zip(wanted, allowed, strict=True) if not is_there)
