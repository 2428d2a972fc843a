"""Sees to the volumes of a placement: writes what was decided about them, and waits until they are bound.

A volume is given to its claim by naming the claim in it; a claim whose volume is still to be made is told the node. Who
binds and provisions are controllers of the cluster. Given what is known of volumes; every patch carries uid and
resourceVersion, so that it applies to what was judged or not at all. Never chooses a volume or a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dovetail.loops import settle
from dovetail.loops.settle import Done, GiveUp, Patch
from dovetail.model import kinds, nodes, objects, plan, volumes
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.schedule import offers
from dovetail.world.events import ObjectKey
from dovetail.world.storage import Storage
from dovetail.world.world import World

POLL_SECONDS: Final = 1.0
Claim = volumes.PersistentVolumeClaim
Volume = volumes.PersistentVolume
Saw = Callable[[kinds.Kind, Any], None]  # what a write answered is news too


class Waits(NamedTuple):
    """Not bound yet."""

    what: str


class Fails(NamedTuple):
    """Will not be bound as decided."""

    why: str


class Volumes:
    """Brings placements' volumes about."""

    def __init__(
        self, settler: settle.Settler, clock: clocks.Clock, world: World, *, saw: Saw, timeout_seconds: float
    ) -> None:
        self._settler = settler
        self._clock = clock
        self._world = world
        self._saw = saw
        self._timeout = timeout_seconds

    async def write(self, placement: plan.Placement) -> Fails | None:
        """Writes what was decided, as far as it is not written yet. Nothing is taken back: others go on from it."""
        for step in placement.volumes:
            if failed := await self._write(step, placement.node):
                return failed
        return None

    async def bound(self, placement: plan.Placement) -> Fails | None:
        """Waits until every claim has its volume, within reach of the node."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            found = progress(placement, self._world.storage, self._world.nodes)
            if not isinstance(found, Waits):
                return found
            if not self._is_waiting(placement.pod.uid):
                return Fails("the pod is gone")
            if self._clock.monotonic() >= deadline:
                return Fails(f"{found.what} was not bound within {self._timeout:.0f} s")
            await self._clock.sleep(POLL_SECONDS)

    async def _write(self, step: plan.VolumeStep, node: str) -> Fails | None:
        storage = self._world.storage
        key = (step.claim.namespace, step.claim.name)
        claim = storage.claims.get(key)
        if claim is None:
            return Fails(f"volume claim {step.claim} is gone")
        if not step.volume:
            return await self._brought_about(apis.Target(kinds.VOLUME_CLAIM, *key), claim, select(claim, node))
        volume = storage.volumes.get(step.volume)
        if volume is None:
            return Fails(f"volume {step.volume} is gone")
        return await self._brought_about(apis.Target(kinds.VOLUME, "", step.volume), volume, give(volume, claim))

    async def _brought_about(
        self, target: apis.Target, known: settle.W, step: Callable[[settle.W], settle.Step[settle.W]]
    ) -> Fails | None:
        ending = await self._settler.brought_about(target, known, step)
        if isinstance(ending, GiveUp):
            return Fails(f"{target}: {ending.reason}")
        self._saw(target.kind, ending.found)
        return None

    def _is_waiting(self, uid: str) -> bool:
        pod = self._world.pods.get(uid)
        return pod is not None and pod.metadata.deletion_timestamp is None and not pod.spec.node_name


def give(known: Volume, claim: Claim) -> Callable[[Volume], settle.Step[Volume]]:
    """Towards a volume that names the claim."""

    def step(volume: Volume) -> settle.Step[Volume]:
        if volume.metadata.uid != known.metadata.uid:
            return GiveUp("the volume was made anew", is_gone=True)
        if volume.metadata.deletion_timestamp is not None:
            return GiveUp("the volume is being deleted")
        ref = volume.spec.claim_ref
        if ref is not None and not _means(ref, claim):
            return GiveUp(f"somebody gave it to claim {ref.namespace}/{ref.name}")
        if ref is not None and ref.uid:
            return Done(volume)
        metadata = _identity(volume)
        if ref is None:  # a volume its owner meant for the claim stays his
            metadata["annotations"] = {volumes.BOUND_BY_CONTROLLER: "yes"}
        tree = {"metadata": metadata, "spec": {"claimRef": _reference(claim)}}
        return Patch(objects.encode_tree(tree))

    return step


def select(known: Claim, node: str) -> Callable[[Claim], settle.Step[Claim]]:
    """Towards a claim that says at which node its volume is to be made."""

    def step(claim: Claim) -> settle.Step[Claim]:
        if claim.metadata.uid != known.metadata.uid:
            return GiveUp("the claim was made anew", is_gone=True)
        if claim.metadata.deletion_timestamp is not None:
            return GiveUp("the claim is being deleted")
        selected = claim.metadata.annotations.get(volumes.SELECTED_NODE)
        if selected == node or claim.spec.volume_name:  # whether its volume suits is seen when it is bound
            return Done(claim)
        if selected is not None:
            return GiveUp(f"somebody chose node {selected} for it")
        metadata = _identity(claim) | {"annotations": {volumes.SELECTED_NODE: node}}
        return Patch(objects.encode_tree({"metadata": metadata}))

    return step


def progress(placement: plan.Placement, storage: Storage, known: dict[str, nodes.Node]) -> Waits | Fails | None:
    """How far the volumes of a placement are; None if all are bound and within reach."""
    node = known.get(placement.node)
    if node is None:
        return Fails(f"node {placement.node} is gone")
    waits = None
    for step in placement.volumes:
        found = _progress(step, storage, node)
        if isinstance(found, Fails):
            return found
        waits = waits or found
    return waits


def _progress(step: plan.VolumeStep, storage: Storage, node: nodes.Node) -> Waits | Fails | None:
    key: ObjectKey = (step.claim.namespace, step.claim.name)
    claim = storage.claims.get(key)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return Fails(f"volume claim {step.claim} is going or gone")
    name = claim.spec.volume_name or step.volume
    volume = storage.volumes.get(name)
    seen = None if volume is None else offers.seen_from(volume, storage.nodes.get(node.metadata.name))
    if volume is not None and (seen is None or not offers.reaches(seen, node)):
        return Fails(f"volume {name} cannot be reached from node {node.metadata.name}")
    if claim.is_bound and volume is not None:
        return None
    if step.volume and not claim.spec.volume_name and (volume is None or not _is_given(volume, claim)):
        return Fails(f"volume {step.volume} was taken back")
    selected = claim.metadata.annotations.get(volumes.SELECTED_NODE)
    if not step.volume and not claim.spec.volume_name and selected != node.metadata.name:
        return Fails(f"no volume could be provisioned for claim {step.claim}")  # who cannot takes the annotation away
    return Waits(f"volume claim {step.claim}")


def _is_given(volume: Volume, claim: Claim) -> bool:
    ref = volume.spec.claim_ref
    return ref is not None and bool(ref.uid) and _means(ref, claim)


def _means(ref: volumes.ObjectReference, claim: Claim) -> bool:
    metadata = claim.metadata
    return (ref.namespace, ref.name) == (metadata.namespace, metadata.name) and ref.uid in ("", metadata.uid)


def _reference(claim: Claim) -> dict[str, str]:
    metadata = claim.metadata
    return {
        "apiVersion": kinds.VOLUME_CLAIM.api_version,
        "kind": kinds.VOLUME_CLAIM.name,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }


def _identity(found: Volume | Claim) -> dict[str, Any]:
    return {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
