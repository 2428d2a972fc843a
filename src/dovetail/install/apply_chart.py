"""Installs the chart on a cluster or upgrades it: reads, dry-runs, applies, prunes, waits.

Given the chart's values. Nothing is written before the server has accepted every object in a dry run. Objects of other
owners are never touched: Helm's installation, an object without our labels, fields that other managers own. Objects
that only an older version of the chart had are found by label and deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.hollow import node_marks
from dovetail.install import chart
from dovetail.kube import server_side_apply
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.ports import api, failures

POLL_SECONDS: Final = 0.5
HELM: Final = "Helm"
# Never pruned: they may hold objects that are not ours.
NEVER_PRUNED: Final = ("Namespace", "CustomResourceDefinition")
# Rights may be granted in namespaces of others, such as that of the GPU Operator.
IN_ANY_NAMESPACE: Final = ("Role", "RoleBinding")

Say = Callable[[str], None]
Tree = dict[str, Any]


class Step(NamedTuple):
    """One object to apply, its target, and the object that exists already."""

    target: api.Target
    tree: Tree
    present: Tree | None

    @property
    def is_ours(self) -> bool:
        """Whether `dovetail install` created the existing object."""
        return self.present is not None and manager_of(self.present) == chart.SERVICE

    @property
    def is_definition(self) -> bool:
        """Whether it defines one of our kinds. We own its fields, no matter which tool created it."""
        return self.target.kind.name == "CustomResourceDefinition"


class Cluster:
    """The installer's view of a cluster. Requests the served kinds once per group and version."""

    def __init__(self, over: transport.Transport) -> None:
        self.over = over
        self._served: dict[str, tuple[registry.Kind, ...]] = {}

    async def kind(self, name: str, api_version: str) -> registry.Kind | None:
        """The kind in that version; None if it is not served."""
        return next((kind for kind in await self.kinds_of(api_version) if kind.name == name), None)

    async def kinds_of(self, api_version: str) -> Sequence[registry.Kind]:
        """All kinds of a group and version that are served."""
        if api_version not in self._served:
            self._served[api_version] = await server_side_apply.served(self.over, api_version)
        return self._served[api_version]

    async def optional(self) -> list[str]:
        """The optional kinds of the templates that the cluster serves."""
        served = []
        for api_kind in chart.OPTIONAL:
            version, _, name = api_kind.rpartition("/")
            if await self.kind(name, version):
                served.append(api_kind)
        return served

    async def owned(
        self, name: str, release: chart.Release, manager: str
    ) -> list[tuple[registry.Kind, Tree]]:
        """The objects of a kind with the labels of the release and the manager."""
        selector = f"{chart.INSTANCE_LABEL}={release.name},{chart.PART_LABEL}=dovetail,{chart.MANAGER_LABEL}={manager}"
        for version in chart.VERSIONS[name]:
            kind = await self.kind(name, version)
            if kind is None:
                continue
            is_elsewhere = name in IN_ANY_NAMESPACE or not kind.is_namespaced
            namespace = "" if is_elsewhere else release.namespace
            trees = await server_side_apply.listed(
                self.over, kind, namespace=namespace, selector=selector
            )
            return [(kind, tree) for tree in trees]
        return []

    async def delete(self, kind: registry.Kind, tree: Tree, *, say: Say) -> None:
        """Deletes exactly this object, if it still exists."""
        target = target_of(kind, tree)
        try:
            await server_side_apply.delete(self.over, target, uid=tree["metadata"]["uid"])
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
    """Applies everything. If a check fails, raises InputError before anything is changed."""
    cluster = Cluster(over)
    trees = chart.objects(values, release, api_versions=await cluster.optional())
    steps = await _steps(cluster, [chart.namespace_object(release, values), *trees])

    await _check_other_namespaces(cluster, release)
    _check_owners(steps, release, is_forced=is_forced)
    if is_upgrade and not any(step.is_ours for step in steps):
        raise errors.InputError(
            f'nothing is installed as "{release.name}" in namespace {release.namespace}\nnext: dovetail install'
        )
    is_helm_here = await _is_helm_here(cluster)
    steps = [step for step in steps if not _is_left_alone(step, is_helm_here=is_helm_here)]
    await _dry_run(over, steps, is_forced=is_forced)

    for step in steps:
        after = await server_side_apply.apply(
            over, step.target, step.tree, is_forced=is_forced or step.is_definition
        )
        say(f"{called(step.target)} {_change(step, after)}")
    await _prune(cluster, trees, release, say=say)


async def define(over: transport.Transport, *, say: Say) -> None:
    """Applies only the definitions of our kinds. If Helm manages them, they stay as they are."""
    cluster = Cluster(over)
    is_helm_here = await _is_helm_here(cluster)
    for step in await _steps(cluster, chart.definitions()):
        if not _is_left_alone(step, is_helm_here=is_helm_here):
            after = await server_side_apply.apply(over, step.target, step.tree, is_forced=True)
            say(f"{called(step.target)} {_change(step, after)}")


async def await_ready(
    over: transport.Transport, release: chart.Release, *, seconds: float, say: Say
) -> None:
    """Waits until every replica is ready. Returns at once if the cluster has no nodes."""
    cluster = Cluster(over)
    node_kind = await cluster.kind("Node", "v1")
    deployments = await cluster.kind("Deployment", "apps/v1")
    assert node_kind is not None
    assert deployments is not None
    node_trees = await server_side_apply.listed(over, node_kind)
    if not node_trees:
        say("the cluster has no nodes: no replica can run until it has some")
        return

    target = api.Target(deployments, release.namespace, f"{release.name}-scheduler")
    deadline = time.monotonic() + seconds
    last_line = ""
    while True:
        deployment = await server_side_apply.read(over, target) or {}
        ready, replicas = _readiness(deployment)
        if ready == replicas:
            say(f"{replicas} of {replicas} replicas ready")
            _say_if_hollow(node_trees, say=say)
            return
        if time.monotonic() >= deadline:
            raise errors.StateError(
                f"{ready} of {replicas} replicas ready after {seconds:.0f} s\n"
                f"next: kubectl -n {release.namespace} describe pods -l {chart.INSTANCE_LABEL}={release.name}"
            )
        line = f"{ready} of {replicas} replicas ready ..."
        if line != last_line:
            say(line)
            last_line = line
        await asyncio.sleep(POLL_SECONDS)


def _say_if_hollow(node_trees: Sequence[Tree], *, say: Say) -> None:
    """Says that ready replicas schedule nothing where every node is hollow, as on `dovetail dev up`."""
    if all(node_marks.is_hollow(_node(tree)) for tree in node_trees):
        say(
            f"all {len(node_trees)} nodes are hollow: no container runs there, so the replicas "
            "schedule nothing; `dovetail scheduler` does, from a terminal"
        )


def _node(tree: Tree) -> nodes.Node:
    return codec.decode_struct(nodes.Node, codec.encode_tree(tree))


def target_of(kind: registry.Kind, tree: Tree) -> api.Target:
    """The address of an object of this kind."""
    return api.Target(kind, tree["metadata"].get("namespace", ""), tree["metadata"]["name"])


def called(target: api.Target) -> str:
    """The object as kubectl names it: kind.group/name."""
    group = target.kind.api_version.rpartition("/")[0]
    kind = f"{target.kind.name.lower()}.{group}" if group else target.kind.name.lower()
    return f"{kind}/{target.name}"


def manager_of(tree: Tree) -> str:
    """The tool that installed one of our objects; empty for any other object."""
    labels = tree["metadata"].get("labels") or {}
    if labels.get(chart.PART_LABEL) != "dovetail":
        return ""
    return str(labels.get(chart.MANAGER_LABEL, ""))


async def _steps(cluster: Cluster, trees: Sequence[Tree]) -> list[Step]:
    steps = []
    for tree in trees:
        kind = await cluster.kind(tree["kind"], tree["apiVersion"])
        if kind is None:
            raise errors.InputError(
                f"this cluster does not serve {tree['kind']} of {tree['apiVersion']}; leave it out"
            )
        target = target_of(kind, tree)
        steps.append(Step(target, tree, await server_side_apply.read(cluster.over, target)))
    return steps


async def _is_helm_here(cluster: Cluster) -> bool:
    """Whether Helm manages a release of Dovetail, under any name: then the definitions are Helm's."""
    kind = await cluster.kind("Deployment", "apps/v1")
    assert kind is not None
    selector = f"{chart.PART_LABEL}=dovetail,{chart.MANAGER_LABEL}={HELM}"
    return bool(await server_side_apply.listed(cluster.over, kind, selector=selector))


def _is_left_alone(step: Step, *, is_helm_here: bool) -> bool:
    """Whether to skip an existing object: a namespace that is not ours, a definition that Helm manages."""
    if step.present is None or step.is_ours:
        return False
    if step.is_definition:
        return is_helm_here
    return step.target.kind.name == "Namespace"


async def _check_other_namespaces(cluster: Cluster, release: chart.Release) -> None:
    """Refuses a release name used in another namespace: cluster-wide objects are named after it."""
    kind = await cluster.kind("Deployment", "apps/v1")
    assert kind is not None
    selector = f"{chart.INSTANCE_LABEL}={release.name},{chart.PART_LABEL}=dovetail"
    for elsewhere in await server_side_apply.listed(cluster.over, kind, selector=selector):
        namespace = elsewhere["metadata"]["namespace"]
        if namespace != release.namespace:
            raise errors.InputError(
                f'"{release.name}" is installed in namespace {namespace} already; '
                f"use --namespace {namespace}, or another --name"
            )


def _check_owners(steps: Sequence[Step], release: chart.Release, *, is_forced: bool) -> None:
    """Refuses to overwrite objects that Helm or another owner created."""
    for step in steps:
        if step.present is None or step.target.kind.name in NEVER_PRUNED:
            continue

        manager = manager_of(step.present)
        if manager == HELM:
            raise errors.InputError(
                f"{called(step.target)} was installed by Helm\nnext: helm -n {release.namespace} upgrade {release.name}"
            )
        if manager != chart.SERVICE and not is_forced:
            raise errors.InputError(
                f"{called(step.target)} exists and is not part of a Dovetail installation; "
                "delete it, choose another --name, or take it over with --force"
            )


async def _dry_run(over: transport.Transport, steps: Sequence[Step], *, is_forced: bool) -> None:
    """Has the server check every object without storing it. Raises InputError with all refusals."""
    new_namespaces = {
        step.target.name
        for step in steps
        if step.present is None and step.target.kind.name == "Namespace"
    }
    problems = []
    for step in steps:
        if step.target.namespace in new_namespaces:
            step = _in_default_namespace(step)
        try:
            await server_side_apply.apply(
                over,
                step.target,
                step.tree,
                is_rehearsal=True,
                is_forced=is_forced or step.is_definition,
            )
        except failures.Conflict as conflict:
            problems.append(f"{conflict}; --force takes these fields over")
        except failures.Refused as refused:
            problems.append(str(refused))
        except failures.Missing as missing:  # the namespace of others in which we grant rights
            problems.append(f"{missing}; create it, or change the value that names it")

    if problems:
        raise errors.InputError("\n".join([*problems, "nothing was changed"]))


def _in_default_namespace(step: Step) -> Step:
    """The step for a dry run while our namespace does not exist yet: a dry run does not create it."""
    metadata = {**step.tree["metadata"], "namespace": "default"}
    return step._replace(
        target=step.target._replace(namespace="default"),
        tree={**step.tree, "metadata": metadata},
    )


async def _prune(
    cluster: Cluster, trees: Sequence[Tree], release: chart.Release, *, say: Say
) -> None:
    """Deletes our objects that this version of the chart does not have."""
    applied = {_place_of(tree) for tree in trees}
    prunable = [name for name in reversed(chart.VERSIONS) if name not in NEVER_PRUNED]
    for name in prunable:
        for kind, tree in await cluster.owned(name, release, chart.SERVICE):
            if _place_of({**tree, "kind": name}) not in applied:
                await cluster.delete(kind, tree, say=say)


def _place_of(tree: Tree) -> tuple[str, str, str]:
    metadata = tree["metadata"]
    return (tree["kind"], metadata.get("namespace", ""), metadata["name"])


def _change(step: Step, after: Tree) -> str:
    """Whether applying changed our fields. Other fields are ignored: controllers may have changed them."""
    if step.present is None:
        return "created"
    had_same_values = _projected(step.present, step.tree) == _projected(after, step.tree)
    had_same_fields = _owned_fields(step.present) == _owned_fields(after)
    return "unchanged" if had_same_values and had_same_fields else "changed"


def _projected(stored: Any, applied: Any) -> Any:
    """The part of the stored object whose fields the applied one sets."""
    if isinstance(applied, dict) and isinstance(stored, dict):
        return {name: _projected(stored.get(name), value) for name, value in applied.items()}
    return stored


def _owned_fields(tree: Tree) -> Any:
    """The fields that the server records as ours."""
    for entry in tree["metadata"].get("managedFields", ()):
        if entry.get("manager") == server_side_apply.MANAGER:
            return entry.get("fieldsV1")
    return None


def _readiness(deployment: Tree) -> tuple[int, int]:
    """The ready replicas of the current generation, and the number wanted; -1 of 0 while it is not observed."""
    replicas = int(deployment.get("spec", {}).get("replicas", 1))
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment.get("metadata", {}).get("generation", 1):
        return (-1 if replicas == 0 else 0), replicas

    updated = int(status.get("updatedReplicas", 0))
    available = int(status.get("availableReplicas", 0))
    return min(updated, available), replicas
