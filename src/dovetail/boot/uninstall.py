"""Takes an installation off a cluster: the scheduler first, then its rights, then what it left, by label.

What holds other people's work stays unless asked for: a definition of which there are objects, and a namespace that was
not ours or holds something else. Never touches what Helm installed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dovetail import errors
from dovetail.boot import chart, install
from dovetail.kube import applying, transport
from dovetail.model import kinds

POLL_SECONDS: Final = 0.2
OUR_VERSION: Final = "dovetail.dev/v1alpha1"
# What people keep in a namespace, and what Kubernetes itself puts into every one.
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
    over: transport.Transport, release: chart.Release, *, say: install.Say, is_purge: bool = False, seconds: float = 60
) -> None:
    """Deletes everything of the release and waits until it is gone, but for what is said to stay."""
    cluster = install.Cluster(over)
    await _check_helm(cluster, release)
    found = {name: await cluster.owned(name, release, chart.SERVICE) for name in reversed(chart.VERSIONS)}
    if not any(found.values()):
        say(f'nothing is installed as "{release.name}" in namespace {release.namespace}')
        return
    deadline = time.monotonic() + seconds
    for name, objects in found.items():
        for kind, tree in objects if name not in install.STAYING else ():
            await cluster.delete(kind, tree, say=say)
        if name == "Deployment" and objects:  # its pods hold the lease; they give it back while they still may
            await _wait(lambda: _pods_left(cluster, release), "its pods", deadline=deadline)
    for kind, tree in found["CustomResourceDefinition"]:
        await _delete_definition(cluster, kind, tree, say=say, is_purge=is_purge, deadline=deadline)
    for kind, tree in found["Namespace"]:
        await _delete_namespace(cluster, kind, tree, say=say, deadline=deadline)


async def _check_helm(cluster: install.Cluster, release: chart.Release) -> None:
    if await cluster.owned("Deployment", release, install.HELM):
        raise errors.InputError(
            f'"{release.name}" was installed by Helm\nnext: helm -n {release.namespace} uninstall {release.name}'
        )


async def _delete_definition(
    cluster: install.Cluster, kind: kinds.Kind, tree: Tree, *, say: install.Say, is_purge: bool, deadline: float
) -> None:
    plural = tree["metadata"]["name"].partition(".")[0]
    own = next((one for one in await cluster.kinds_of(OUR_VERSION) if one.plural == plural), None)
    held = await applying.listed(cluster.over, own) if own is not None else []
    if held and not is_purge:
        count = f"1 {own.name.lower()}" if own is not None and len(held) == 1 else f"{len(held)} {plural}"
        called = install.called(install.target_of(kind, tree))
        say(f"{called} stays: it has {count}; --purge deletes it with them")
        return
    await cluster.delete(kind, tree, say=say)
    await _wait(lambda: _is_there(cluster, kind, tree), f"the definition of {plural}", deadline=deadline)


async def _delete_namespace(
    cluster: install.Cluster, kind: kinds.Kind, tree: Tree, *, say: install.Say, deadline: float
) -> None:
    name = tree["metadata"]["name"]
    if others := await _others_in(cluster, name):
        say(f"namespace/{name} stays: it holds {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}")
        return
    await cluster.delete(kind, tree, say=say)
    await _wait(lambda: _is_there(cluster, kind, tree), f"namespace {name}", deadline=deadline)


async def _others_in(cluster: install.Cluster, namespace: str) -> list[str]:
    found = []
    for name, version in KEPT_KINDS:
        kind = await cluster.kind(name, version)
        for one in await applying.listed(cluster.over, kind, namespace=namespace) if kind is not None else ():
            metadata = one["metadata"]
            if (name, metadata["name"]) not in EVERYWHERE and "deletionTimestamp" not in metadata:
                found.append(f"{name.lower()}/{metadata['name']}")
    return found


async def _pods_left(cluster: install.Cluster, release: chart.Release) -> bool:
    kind = await cluster.kind("Pod", "v1")
    assert kind is not None
    selector = f"{chart.INSTANCE_LABEL}={release.name},app.kubernetes.io/component=scheduler"
    return bool(await applying.listed(cluster.over, kind, namespace=release.namespace, selector=selector))


async def _is_there(cluster: install.Cluster, kind: kinds.Kind, tree: Tree) -> bool:
    found = await applying.read(cluster.over, install.target_of(kind, tree))
    return found is not None and found["metadata"]["uid"] == tree["metadata"]["uid"]


async def _wait(is_left: Callable[[], Awaitable[bool]], what: str, *, deadline: float) -> None:
    while await is_left():
        if time.monotonic() >= deadline:
            raise errors.StateError(f"still there: {what}; run it again, or give it more time by --timeout")
        await asyncio.sleep(POLL_SECONDS)
