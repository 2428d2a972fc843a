"""Puts an installation onto a cluster, or brings it up to date: looks, rehearses, applies, prunes, waits.

Given objects the chart was rendered to. Nothing is written before the server has agreed to all of it in a rehearsal,
and nothing of somebody else's is touched: Helm's installation, an object without our labels, fields others changed.
What an older version made and this one does not is deleted, found by label.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.boot import chart
from dovetail.kube import applying, transport
from dovetail.model import kinds
from dovetail.ports import api, failures

POLL_SECONDS: Final = 0.5
HELM: Final = "Helm"
STAYING: Final = ("Namespace", "CustomResourceDefinition")  # may hold what is not ours; never pruned

Say = Callable[[str], None]
Tree = dict[str, Any]


class Step(NamedTuple):
    """One object to apply, where it goes, and what is there already."""

    target: api.Target
    tree: Tree
    present: Tree | None

    @property
    def is_ours(self) -> bool:
        """Whether what is there was made by us."""
        return self.present is not None and manager_of(self.present) == chart.SERVICE

    @property
    def is_definition(self) -> bool:
        """Whether it defines a kind of ours: whoever left it there, what it says is ours to say."""
        return self.target.kind.name == "CustomResourceDefinition"


class Cluster:
    """A cluster as an installation sees it: which kinds it serves, asked for once."""

    def __init__(self, over: transport.Transport) -> None:
        self.over = over
        self._served: dict[str, tuple[kinds.Kind, ...]] = {}

    async def kind(self, name: str, api_version: str) -> kinds.Kind | None:
        """The kind in that version; None where it is not served."""
        return next((one for one in await self.kinds_of(api_version) if one.name == name), None)

    async def kinds_of(self, api_version: str) -> Sequence[kinds.Kind]:
        """All kinds of a group and version that are served."""
        if api_version not in self._served:
            self._served[api_version] = await applying.served(self.over, api_version)
        return self._served[api_version]

    async def optional(self) -> list[str]:
        """Which of the kinds templates ask for there are."""
        asked = [one.rpartition("/") for one in chart.OPTIONAL]
        return [f"{version}/{name}" for version, _, name in asked if await self.kind(name, version)]

    async def owned(self, name: str, release: chart.Release, manager: str) -> list[tuple[kinds.Kind, Tree]]:
        """Objects of a kind that carry the release's labels and this manager's."""
        selector = f"{chart.INSTANCE_LABEL}={release.name},{chart.PART_LABEL}=dovetail,{chart.MANAGER_LABEL}={manager}"
        for version in chart.VERSIONS[name]:
            kind = await self.kind(name, version)
            if kind is not None:
                place = release.namespace if kind.is_namespaced else ""
                found = await applying.listed(self.over, kind, namespace=place, selector=selector)
                return [(kind, one) for one in found]
        return []

    async def delete(self, kind: kinds.Kind, tree: Tree, *, say: Say) -> None:
        """Deletes exactly this object; one that is gone already is fine."""
        target = target_of(kind, tree)
        try:
            await applying.delete(self.over, target, uid=tree["metadata"]["uid"])
        except failures.Missing:
            return
        say(f"{called(target)} deleted")


async def install(
    over: transport.Transport,
    values: Tree,
    release: chart.Release,
    *,
    say: Say,
    is_upgrade: bool = False,
    is_forced: bool = False,
) -> None:
    """Applies everything. Raises InputError before anything changed where something is wrong."""
    cluster = Cluster(over)
    wanted = chart.objects(values, release, api_versions=await cluster.optional())
    steps = await _steps(cluster, [chart.namespace_object(release), *wanted])
    await _check_elsewhere(cluster, release)
    _check_strangers(steps, release, is_forced=is_forced)
    if is_upgrade and not any(step.is_ours for step in steps):
        raise errors.InputError(
            f'nothing is installed as "{release.name}" in namespace {release.namespace}\nnext: dovetail install'
        )
    is_helm_here = await _is_helm_here(cluster)
    steps = [step for step in steps if not _is_left_alone(step, is_helm_here=is_helm_here)]
    await _rehearse(over, steps, release, is_forced=is_forced)
    for step in steps:
        after = await applying.apply(over, step.target, step.tree, is_forced=is_forced or step.is_definition)
        say(f"{called(step.target)} {_change(step, after)}")
    await _prune(cluster, wanted, release, say=say)


async def define(over: transport.Transport, *, say: Say) -> None:
    """Applies the definitions of our own kinds and nothing else. Where Helm keeps them, they stay Helm's."""
    cluster = Cluster(over)
    is_helm_here = await _is_helm_here(cluster)
    for step in await _steps(cluster, chart.definitions()):
        if not _is_left_alone(step, is_helm_here=is_helm_here):
            after = await applying.apply(over, step.target, step.tree, is_forced=True)
            say(f"{called(step.target)} {_change(step, after)}")


async def await_ready(over: transport.Transport, release: chart.Release, *, seconds: float, say: Say) -> None:
    """Waits until every replica is ready. Where there are no nodes there is nothing to wait for."""
    cluster = Cluster(over)
    nodes, deployments = await cluster.kind("Node", "v1"), await cluster.kind("Deployment", "apps/v1")
    assert nodes is not None
    assert deployments is not None
    if not await applying.listed(over, nodes):
        say("the cluster has no nodes: nothing will run until it has")
        return
    target = api.Target(deployments, release.namespace, f"{release.name}-scheduler")
    deadline = time.monotonic() + seconds
    told = ""
    while True:
        found = await applying.read(over, target) or {}
        ready, replicas = _readiness(found)
        if ready == replicas:
            say(f"{replicas} of {replicas} replicas ready")
            return
        if time.monotonic() >= deadline:
            raise errors.StateError(
                f"{ready} of {replicas} replicas ready after {seconds:.0f} s\n"
                f"next: kubectl -n {release.namespace} describe pods -l {chart.INSTANCE_LABEL}={release.name}"
            )
        if (line := f"{ready} of {replicas} replicas ready ...") != told:
            say(told := line)
        await asyncio.sleep(POLL_SECONDS)


def target_of(kind: kinds.Kind, tree: Tree) -> api.Target:
    """Where an object of this kind is."""
    return api.Target(kind, tree["metadata"].get("namespace", ""), tree["metadata"]["name"])


def called(target: api.Target) -> str:
    """The object as kubectl names it: kind.group/name."""
    group = target.kind.api_version.rpartition("/")[0]
    kind = f"{target.kind.name.lower()}.{group}" if group else target.kind.name.lower()
    return f"{kind}/{target.name}"


def manager_of(tree: Tree) -> str:
    """Who installed an object of ours; empty for somebody else's."""
    labels = tree["metadata"].get("labels") or {}
    return str(labels.get(chart.MANAGER_LABEL, "")) if labels.get(chart.PART_LABEL) == "dovetail" else ""


async def _steps(cluster: Cluster, wanted: Sequence[Tree]) -> list[Step]:
    steps = []
    for tree in wanted:
        kind = await cluster.kind(tree["kind"], tree["apiVersion"])
        if kind is None:
            raise errors.InputError(f"this cluster does not know {tree['kind']} of {tree['apiVersion']}; leave it out")
        target = target_of(kind, tree)
        steps.append(Step(target, tree, await applying.read(cluster.over, target)))
    return steps


async def _is_helm_here(cluster: Cluster) -> bool:
    """Whether Helm runs a release of ours, of any name: then the definitions are Helm's."""
    kind = await cluster.kind("Deployment", "apps/v1")
    assert kind is not None
    selector = f"{chart.PART_LABEL}=dovetail,{chart.MANAGER_LABEL}={HELM}"
    return bool(await applying.listed(cluster.over, kind, selector=selector))


def _is_left_alone(step: Step, *, is_helm_here: bool) -> bool:
    """A namespace that was there before is only used; a definition that Helm still manages is Helm's to change."""
    if step.present is None or step.is_ours:
        return False
    return step.target.kind.name == "Namespace" or (step.is_definition and is_helm_here)


async def _check_elsewhere(cluster: Cluster, release: chart.Release) -> None:
    """Names of cluster-wide objects follow the release's name, so there can be one of a name."""
    kind = await cluster.kind("Deployment", "apps/v1")
    assert kind is not None
    selector = f"{chart.INSTANCE_LABEL}={release.name},{chart.PART_LABEL}=dovetail"
    for one in await applying.listed(cluster.over, kind, selector=selector):
        if (place := one["metadata"]["namespace"]) != release.namespace:
            raise errors.InputError(
                f'"{release.name}" is installed in namespace {place} already; '
                f"use --namespace {place}, or another --name"
            )


def _check_strangers(steps: Sequence[Step], release: chart.Release, *, is_forced: bool) -> None:
    for step in steps:
        if step.present is None or step.target.kind.name in STAYING:
            continue
        manager = manager_of(step.present)
        if manager == HELM:
            raise errors.InputError(
                f"{called(step.target)} was installed by Helm\nnext: helm -n {release.namespace} upgrade {release.name}"
            )
        if manager != chart.SERVICE and not is_forced:
            raise errors.InputError(
                f"{called(step.target)} exists and is not part of an installation of ours; "
                f"delete it, choose another --name, or take it over by --force"
            )


async def _rehearse(
    over: transport.Transport, steps: Sequence[Step], release: chart.Release, *, is_forced: bool
) -> None:
    """Asks the server about every object without storing any. A namespace that is still to come is stood in for."""
    is_new = any(step.target.kind.name == "Namespace" and step.present is None for step in steps)
    wrong = []
    for step in steps:
        target, tree = step.target, step.tree
        if is_new and target.namespace:
            target = target._replace(namespace="default")
            tree = {**tree, "metadata": {**tree["metadata"], "namespace": "default"}}
        try:
            forced = is_forced or step.is_definition
            await applying.apply(over, target, tree, is_rehearsal=True, is_forced=forced)
        except failures.Conflict as conflict:
            wrong.append(f"{conflict}; --force takes these fields over")
        except failures.Refused as refused:
            wrong.append(str(refused))
    if wrong:
        raise errors.InputError("\n".join([*wrong, "nothing was changed"]))


async def _prune(cluster: Cluster, wanted: Sequence[Tree], release: chart.Release, *, say: Say) -> None:
    kept = {(tree["kind"], tree["metadata"]["name"]) for tree in wanted}
    for name in reversed(chart.VERSIONS):
        if name in STAYING:
            continue
        for kind, tree in await cluster.owned(name, release, chart.SERVICE):
            if (name, tree["metadata"]["name"]) not in kept:
                await cluster.delete(kind, tree, say=say)


def _change(step: Step, after: Tree) -> str:
    """What applying did to our fields; controllers may have changed theirs meanwhile."""
    if step.present is None:
        return "created"
    is_same = _like(step.tree, step.present) == _like(step.tree, after) and _owned(step.present) == _owned(after)
    return "unchanged" if is_same else "changed"


def _like(wanted: Any, found: Any) -> Any:
    """What an object has in the places another one fills in."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {name: _like(value, found.get(name)) for name, value in wanted.items()}
    return found


def _owned(tree: Tree) -> Any:
    """The fields the server has down as ours."""
    managed = tree["metadata"].get("managedFields", ())
    return next((one.get("fieldsV1") for one in managed if one.get("manager") == applying.MANAGER), None)


def _readiness(deployment: Tree) -> tuple[int, int]:
    """Replicas of the present generation that are ready, and how many there should be."""
    replicas = int(deployment.get("spec", {}).get("replicas", 1))
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment.get("metadata", {}).get("generation", 1):
        return -1 if replicas == 0 else 0, replicas
    return min(int(status.get("updatedReplicas", 0)), int(status.get("availableReplicas", 0))), replicas
