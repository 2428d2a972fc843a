"""Removes an installation from a cluster: the scheduler first, then its rights, then the rest, found by label.

Definitions that still have objects stay unless purged, and so does a namespace that is not ours or holds other objects.
Never touches what Helm installed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dovetail import errors
from dovetail.install import apply_chart, chart
from dovetail.kube import server_side_apply
from dovetail.kube.http import transport
from dovetail.kubetypes import registry

POLL_SECONDS: Final = 0.2
OUR_VERSION: Final = "dovetail.dev/v1alpha1"
# Kinds whose objects keep the namespace, except those that Kubernetes puts into every namespace.
KEPT_KINDS: Final = (
    ("Pod", "v1"),
    ("ConfigMap", "v1"),
    ("Secret", "v1"),
    ("Service", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("ResourceClaim", "resource.k8s.io/v1"),
)
EVERYWHERE: Final = {("ConfigMap", "kube-root-ca.crt")}

Tree = dict[str, Any]


async def uninstall(
    over: transport.Transport,
    release: chart.Release,
    *,
    say: apply_chart.Say,
    is_purge: bool = False,
    seconds: float = 60,
) -> None:
    """Deletes the objects of the release and waits until they are gone; reports what stays."""
    cluster = apply_chart.Cluster(over)
    await _check_helm(cluster, release)
    installed = {
        name: await cluster.owned(name, release, chart.SERVICE) for name in reversed(chart.VERSIONS)
    }
    if not any(installed.values()):
        say(f'nothing is installed as "{release.name}" in namespace {release.namespace}')
        return

    deadline = time.monotonic() + seconds
    for name, objects in installed.items():
        if name in apply_chart.NEVER_PRUNED:
            continue
        for kind, tree in objects:
            await cluster.delete(kind, tree, say=say)
        if name == "Deployment" and objects:
            # Its pods hold the lease, and need their rights to give it back.
            await _wait(lambda: _pods_left(cluster, release), "its pods", deadline=deadline)

    for kind, tree in installed["CustomResourceDefinition"]:
        await _delete_definition(cluster, kind, tree, say=say, is_purge=is_purge, deadline=deadline)
    for kind, tree in installed["Namespace"]:
        await _delete_namespace(cluster, kind, tree, say=say, deadline=deadline)


async def _check_helm(cluster: apply_chart.Cluster, release: chart.Release) -> None:
    if await cluster.owned("Deployment", release, apply_chart.HELM):
        raise errors.InputError(
            f'"{release.name}" was installed by Helm\nnext: helm -n {release.namespace} uninstall {release.name}'
        )


async def _delete_definition(
    cluster: apply_chart.Cluster,
    kind: registry.Kind,
    tree: Tree,
    *,
    say: apply_chart.Say,
    is_purge: bool,
    deadline: float,
) -> None:
    plural = tree["metadata"]["name"].partition(".")[0]
    kinds = {kind.plural: kind for kind in await cluster.kinds_of(OUR_VERSION)}
    if plural in kinds and not is_purge:
        objects = await server_side_apply.listed(cluster.over, kinds[plural])
        if objects:
            singular = kinds[plural].name.lower()
            count = f"1 {singular}" if len(objects) == 1 else f"{len(objects)} {plural}"
            called = apply_chart.called(apply_chart.target_of(kind, tree))
            say(f"{called} stays: it has {count}; --purge deletes it with them")
            return

    await cluster.delete(kind, tree, say=say)
    await _wait(
        lambda: _is_there(cluster, kind, tree), f"the definition of {plural}", deadline=deadline
    )


async def _delete_namespace(
    cluster: apply_chart.Cluster,
    kind: registry.Kind,
    tree: Tree,
    *,
    say: apply_chart.Say,
    deadline: float,
) -> None:
    name = tree["metadata"]["name"]
    if remaining := await _other_objects(cluster, name):
        shown = ", ".join(remaining[:3])
        dots = " ..." if len(remaining) > 3 else ""
        say(f"namespace/{name} stays: it holds {shown}{dots}")
        return
    await cluster.delete(kind, tree, say=say)
    await _wait(lambda: _is_there(cluster, kind, tree), f"namespace {name}", deadline=deadline)


async def _other_objects(cluster: apply_chart.Cluster, namespace: str) -> list[str]:
    """The objects that keep the namespace from being deleted."""
    remaining = []
    for name, version in KEPT_KINDS:
        kind = await cluster.kind(name, version)
        if kind is None:
            continue
        for tree in await server_side_apply.listed(cluster.over, kind, namespace=namespace):
            metadata = tree["metadata"]
            if (name, metadata["name"]) not in EVERYWHERE and "deletionTimestamp" not in metadata:
                remaining.append(f"{name.lower()}/{metadata['name']}")
    return remaining


async def _pods_left(cluster: apply_chart.Cluster, release: chart.Release) -> bool:
    kind = await cluster.kind("Pod", "v1")
    assert kind is not None
    electing = "app.kubernetes.io/component in (scheduler,lifecycle)"
    selector = f"{chart.INSTANCE_LABEL}={release.name},{electing}"
    return bool(
        await server_side_apply.listed(
            cluster.over, kind, namespace=release.namespace, selector=selector
        )
    )


async def _is_there(cluster: apply_chart.Cluster, kind: registry.Kind, tree: Tree) -> bool:
    stored = await server_side_apply.read(cluster.over, apply_chart.target_of(kind, tree))
    return stored is not None and stored["metadata"]["uid"] == tree["metadata"]["uid"]


async def _wait(is_left: Callable[[], Awaitable[bool]], what: str, *, deadline: float) -> None:
    while await is_left():
        if time.monotonic() >= deadline:
            raise errors.StateError(
                f"not deleted yet: {what}; run it again, or allow more time with --timeout"
            )
        await asyncio.sleep(POLL_SECONDS)
