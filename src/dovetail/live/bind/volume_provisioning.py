"""Writes what was decided about the volumes of a placement, and waits until they are bound.

An existing volume gets a reference to its claim; a claim whose volume is not made yet gets the selected
node. Controllers of the cluster then bind and provision. Every patch carries uid and resourceVersion, so
that it applies to the object as examined or not at all. Never chooses a volume or a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.storage import volumes
from dovetail.live import handle as handles
from dovetail.live.bind import write_retry
from dovetail.live.bind.write_retry import Done, GiveUp, Patch
from dovetail.model import plan
from dovetail.ports import api as apis
from dovetail.schedule.node.filters import volume_matching
from dovetail.world.events import ObjectKey
from dovetail.world.storage import Storage

POLL_SECONDS: Final = 1.0
Claim = volumes.PersistentVolumeClaim
Volume = volumes.PersistentVolume


class Waits(NamedTuple):
    """Not bound yet."""

    what: str


class Fails(NamedTuple):
    """Will not be bound as decided."""

    why: str


class VolumeWriter:
    """Writes volumes and volume claims of placements."""

    def __init__(
        self,
        handle: handles.Handle,
        writer: write_retry.Writer,
    ) -> None:
        self._writer = writer
        self._clock = handle.clock
        self._world = handle.world
        self._picture = handle.picture
        self._timeout = handle.settings.volumes_timeout_seconds

    async def write(self, placement: plan.Placement) -> Fails | None:
        """Writes what is not written yet. It is never undone: controllers go on from it."""
        for step in placement.volumes:
            if failed := await self._write(step, placement.node):
                return failed
        return None

    async def bound(self, placement: plan.Placement) -> Fails | None:
        """Waits until every claim has its volume, within reach of the node."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            state = progress(placement, self._world.storage, self._world.nodes)
            if not isinstance(state, Waits):
                return state
            if not self._is_waiting(placement.pod.uid):
                return Fails("the pod is gone")
            if self._clock.monotonic() >= deadline:
                return Fails(f"{state.what} was not bound within {self._timeout:.0f} s")
            await self._clock.sleep(POLL_SECONDS)

    async def _write(self, step: plan.VolumeStep, node: str) -> Fails | None:
        storage = self._world.storage
        key = (step.claim.namespace, step.claim.name)
        claim = storage.claims.get(key)
        if claim is None:
            return Fails(f"volume claim {step.claim} is gone")
        if not step.volume:
            target = apis.Target(registry.VOLUME_CLAIM, *key)
            return await self._reconcile(target, claim, select_node(claim, node))
        volume = storage.volumes.get(step.volume)
        if volume is None:
            return Fails(f"volume {step.volume} is gone")
        target = apis.Target(registry.VOLUME, "", step.volume)
        return await self._reconcile(target, volume, assign_volume(volume, claim))

    async def _reconcile(
        self,
        target: apis.Target,
        last_seen: write_retry.W,
        step: Callable[[write_retry.W], write_retry.Step[write_retry.W]],
    ) -> Fails | None:
        ending = await self._writer.reconcile(target, last_seen, step)
        if isinstance(ending, GiveUp):
            return Fails(f"{target}: {ending.reason}")
        self._picture.observe(target.kind, ending.found)
        return None

    def _is_waiting(self, uid: str) -> bool:
        pod = self._world.pods.get(uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return False
        return not pod.spec.node_name


def assign_volume(last_seen: Volume, claim: Claim) -> Callable[[Volume], write_retry.Step[Volume]]:
    """Towards a volume that refers to the claim."""

    def step(volume: Volume) -> write_retry.Step[Volume]:
        if volume.metadata.uid != last_seen.metadata.uid:
            return GiveUp("the volume was deleted and created again", is_gone=True)
        if volume.metadata.deletion_timestamp is not None:
            return GiveUp("the volume is being deleted")
        ref = volume.spec.claim_ref
        if ref is not None and not _refers_to(ref, claim):
            return GiveUp(f"another writer gave it to claim {ref.namespace}/{ref.name}")
        if ref is not None and ref.uid:
            return Done(volume)
        metadata = _identity(volume)
        if ref is None:  # otherwise its owner reserved it for the claim, and it stays so marked
            metadata["annotations"] = {volumes.BOUND_BY_CONTROLLER: "yes"}
        tree = {"metadata": metadata, "spec": {"claimRef": _reference(claim)}}
        return Patch(codec.encode_tree(tree))

    return step


def select_node(last_seen: Claim, node: str) -> Callable[[Claim], write_retry.Step[Claim]]:
    """Towards a claim that says for which node its volume is provisioned."""

    def step(claim: Claim) -> write_retry.Step[Claim]:
        if claim.metadata.uid != last_seen.metadata.uid:
            return GiveUp("the claim was deleted and created again", is_gone=True)
        if claim.metadata.deletion_timestamp is not None:
            return GiveUp("the claim is being deleted")
        selected = claim.metadata.annotations.get(volumes.SELECTED_NODE)
        if selected == node or claim.spec.volume_name:
            return Done(claim)  # `progress` checks whether its volume can be reached
        if selected is not None:
            return GiveUp(f"another writer selected node {selected} for it")
        metadata = _identity(claim) | {"annotations": {volumes.SELECTED_NODE: node}}
        return Patch(codec.encode_tree({"metadata": metadata}))

    return step


def progress(
    placement: plan.Placement, storage: Storage, by_name: dict[str, nodes.Node]
) -> Waits | Fails | None:
    """The state of a placement's volumes; None if all are bound and within reach."""
    node = by_name.get(placement.node)
    if node is None:
        return Fails(f"node {placement.node} is gone")
    waits = None
    for step in placement.volumes:
        state = _progress(step, storage, node)
        if isinstance(state, Fails):
            return state
        waits = waits or state
    return waits


def _progress(step: plan.VolumeStep, storage: Storage, node: nodes.Node) -> Waits | Fails | None:
    key: ObjectKey = (step.claim.namespace, step.claim.name)
    claim = storage.claims.get(key)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return Fails(f"volume claim {step.claim} is going or gone")
    name = claim.spec.volume_name or step.volume
    volume = storage.volumes.get(name)
    if volume is not None and not _is_reachable(volume, storage, node):
        return Fails(f"volume {name} cannot be reached from node {node.metadata.name}")
    if claim.is_bound and volume is not None:
        return None
    if claim.spec.volume_name:
        return Waits(f"volume claim {step.claim}")
    if step.volume:
        is_given = volume is not None and _is_given(volume, claim)
        if not is_given:
            return Fails(f"volume {step.volume} was taken back")
    elif claim.metadata.annotations.get(volumes.SELECTED_NODE) != node.metadata.name:
        # A provisioner that cannot make the volume removes the annotation.
        return Fails(f"no volume could be provisioned for claim {step.claim}")
    return Waits(f"volume claim {step.claim}")


def _is_reachable(volume: Volume, storage: Storage, node: nodes.Node) -> bool:
    seen_from_node = volume_matching.seen_from(volume, storage.nodes.get(node.metadata.name))
    return seen_from_node is not None and volume_matching.reaches(seen_from_node, node)


def _is_given(volume: Volume, claim: Claim) -> bool:
    ref = volume.spec.claim_ref
    return ref is not None and bool(ref.uid) and _refers_to(ref, claim)


def _refers_to(ref: volumes.ObjectReference, claim: Claim) -> bool:
    metadata = claim.metadata
    is_same_name = (ref.namespace, ref.name) == (metadata.namespace, metadata.name)
    return is_same_name and ref.uid in ("", metadata.uid)


def _reference(claim: Claim) -> dict[str, str]:
    metadata = claim.metadata
    return {
        "apiVersion": registry.VOLUME_CLAIM.api_version,
        "kind": registry.VOLUME_CLAIM.name,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }


def _identity(examined: Volume | Claim) -> dict[str, Any]:
    return {"uid": examined.metadata.uid, "resourceVersion": examined.metadata.resource_version}
