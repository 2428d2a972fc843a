"""Decides which nodes a pod's volumes allow, and what has to be written about them before the pod may be bound.

Judges as kube-scheduler's VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits do: volumes that are bound
tie the pod to where they are; claims that wait for their first consumer take the smallest free volume in reach of the
node, or one to be provisioned there. Given a pod and the world. Never writes, never prefers a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dovetail.model import disks, labels, migration, nodes, plan, pods, volumes
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import offers
from dovetail.world.events import ObjectKey
from dovetail.world.storage import Attachable, Storage
from dovetail.world.world import World

ZONE_LABELS: Final = {  # volumezone, and what nodes may have instead
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}

Claim = volumes.PersistentVolumeClaim
Volume = volumes.PersistentVolume


class Use(NamedTuple):
    """A claim a pod uses."""

    key: ObjectKey
    is_ephemeral: bool  # it was to be made for this pod alone

    def __str__(self) -> str:
        return f"volume claim {self.key[1]}"


class Zone(NamedTuple):
    """A label nodes need, because a volume says where it is by labels instead of an affinity."""

    key: str
    values: frozenset[str]
    subject: str


class _Wanted(NamedTuple):
    """A claim that waits for its first consumer, and what there is for it."""

    use: Use
    claim: Claim
    selected: str | None  # the node it is to be provisioned at
    given: tuple[Volume, ...]  # volumes that name it
    offers: offers.Offers


def uses_of(pod: pods.Pod) -> tuple[Use, ...]:
    """The claims behind a pod's volumes, each once. Those of ephemeral volumes follow from the pod's name."""
    found: dict[Use, None] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            key = (pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
            found[Use(key, is_ephemeral=False)] = None
        elif volume.ephemeral is not None:
            key = (pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}")
            found[Use(key, is_ephemeral=True)] = None
    return tuple(found)


def tie(pod: pods.Pod, world: World) -> VolumeTie | tuple[Reason, ...] | None:
    """What the pod's volumes mean for nodes; reasons if they keep it from all of them; None if it has none."""
    if not pod.spec.volumes:
        return None
    uses = uses_of(pod)
    held = disks.of(pod)
    if not uses and not held:
        return None
    storage = world.storage
    if reasons := tuple(reason for use in uses for reason in _obstacles(use, pod, world)):
        return reasons
    known = {use: storage.claims[use.key] for use in uses}
    bound = {use: claim for use, claim in known.items() if claim.is_bound}
    return VolumeTie(
        world,
        bound=tuple((use, storage.volumes[claim.spec.volume_name]) for use, claim in bound.items()),
        delayed=tuple(sorted((_wanted(u, c, storage) for u, c in known.items() if u not in bound), key=_size_order)),
        claims=tuple(known.values()),
        held=held,
    )


class VolumeTie:
    """What one pod's volumes mean for nodes, for as long as the world stays as it is."""

    def __init__(
        self,
        world: World,
        *,
        bound: tuple[tuple[Use, Volume], ...],
        delayed: tuple[_Wanted, ...],
        claims: tuple[Claim, ...],
        held: tuple[disks.Disk, ...],
    ) -> None:
        self._world = world
        self._storage = world.storage
        self._bound = tuple((use, volume, offers.places_of(volume)) for use, volume in bound)
        self._is_old = any(migration.plugin_of(volume) is not None for _, volume in bound)
        self._zones = tuple(zone for use, volume in bound if not use.is_ephemeral for zone in _zones(use, volume))
        self._delayed = delayed
        self._attached = {one for claim in claims if (one := self._storage.attachable(claim)) is not None}
        self._attached |= _served_by_csi(held)
        self._drivers = sorted({one.driver for one in self._attached})
        without = (self._storage.attachable(claim, has_csi=False) for claim in claims)
        self._drivers_without_csi = sorted({one.driver for one in without if one is not None})
        self._held = held
        self._promised = self._storage.promised() if delayed else frozenset()

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the pod's volumes rule the node out; None if they do not."""
        far = self._far_as_seen(node) if self._is_old else self._far(node)
        if far is not None:
            return Reason(code=ReasonCode.VOLUME_NODE, subject=str(far))
        if reason := self._zone_misfit(node) or self._disk_misfit(node) or self._limit_misfit(node):
            return reason
        found = self._found(node) if self._delayed else ()
        return found if isinstance(found, Reason) else None

    def steps(self, node: nodes.Node) -> tuple[plan.VolumeStep, ...]:
        """What has to be written, and to come about, before the pod may be bound to a node that suits."""
        found = self._found(node) if self._delayed else ()
        assert not isinstance(found, Reason), "the same pod on the same node got another answer"
        return found

    # Where volumes are

    def _far(self, node: nodes.Node) -> Use | None:
        """The first bound volume out of reach. Most nodes are out, or in, by one label; the rest are asked properly."""
        known = node.metadata.labels
        for use, volume, (places, is_settled) in self._bound:
            if places and not any(known.get(label) == value for label, value in places):
                return use
            if not is_settled and not offers.reaches(volume, node):
                return use
        return None

    def _far_as_seen(self, node: nodes.Node) -> Use | None:
        """The same where some volumes are of old plugins: nodes that serve them by CSI see them differently."""
        csi_node = self._storage.nodes.get(node.metadata.name)
        for use, volume, _ in self._bound:
            seen = offers.seen_from(volume, csi_node)
            if seen is None or not offers.reaches(seen, node):
                return use
        return None

    def _zone_misfit(self, node: nodes.Node) -> Reason | None:
        """Nodes without any zone are in a cluster without zones: they suit."""
        known = node.metadata.labels
        if not self._zones or known.keys().isdisjoint(ZONE_LABELS):
            return None
        for zone in self._zones:
            value = known.get(zone.key, known.get(ZONE_LABELS[zone.key]))
            if value not in zone.values:
                return Reason(code=ReasonCode.VOLUME_NODE, subject=zone.subject)
        return None

    def _disk_misfit(self, node: nodes.Node) -> Reason | None:
        there = self._world.crowd.disks_on(node.metadata.name) if self._held else ()
        if any(one.excludes(other) for one in self._held for other in there):
            return Reason(code=ReasonCode.VOLUME_IN_USE, detail="a pod there uses the same disk")
        return None

    # How many volumes a node takes

    def _limit_misfit(self, node: nodes.Node) -> Reason | None:
        if not self._attached or not (self._storage.nodes or self._storage.drivers):
            return None
        installed = self._storage.nodes.get(node.metadata.name)
        listed = {one.name: one for one in installed.spec.drivers} if installed is not None else {}
        for driver in self._drivers if installed is not None else self._drivers_without_csi:
            if driver not in listed and self._must_be_installed(driver):
                return Reason(code=ReasonCode.VOLUME_DRIVER, subject=f"CSI driver {driver}")
        limits = {
            name: one.allocatable.count
            for name, one in listed.items()
            if one.allocatable is not None and one.allocatable.count is not None
        }
        return self._over_limit(node, limits) if not limits.keys().isdisjoint(self._drivers) else None

    def _must_be_installed(self, driver: str) -> bool:
        known = self._storage.drivers.get(driver)
        return known is not None and bool(known.spec.prevent_pod_scheduling_if_missing)

    def _over_limit(self, node: nodes.Node, limits: Mapping[str, int]) -> Reason | None:
        """A volume several pods use counts once; one that is attached and used by nobody counts too."""
        used = set(self._used_on(node.metadata.name))
        new = set(self._attached) - used
        there = used | self._storage.attached_to(node.metadata.name)
        for driver in sorted({one.driver for one in new} & limits.keys()):
            need = sum(one.driver == driver for one in new)
            have = limits[driver] - sum(one.driver == driver for one in there)
            if need > have:
                code = ReasonCode.VOLUME_LIMIT
                return Reason(code=code, subject=f"CSI driver {driver}", need=need, have=max(have, 0))
        return None

    def _used_on(self, node: str) -> Iterator[Attachable]:
        for key in self._world.crowd.volume_claims_on(node):
            claim = self._storage.claims.get(key)
            one = None if claim is None else self._storage.attachable(claim)
            if one is not None:
                yield one
        yield from _served_by_csi(self._world.crowd.disks_on(node))

    # Volumes for claims that wait for their first consumer

    def _found(self, node: nodes.Node) -> tuple[plan.VolumeStep, ...] | Reason:
        """A volume for each claim, or a promise to provision one; the first claim there is nothing for."""
        for wanted in self._delayed:
            if wanted.selected not in (None, node.metadata.name):
                detail = f"is to be provisioned for node {wanted.selected}"
                return Reason(code=ReasonCode.VOLUME_NODE, subject=str(wanted.use), detail=detail)
        steps: list[plan.VolumeStep] = []
        chosen: set[str] = set()
        left: list[_Wanted] = []
        for wanted in self._delayed:
            name = None if wanted.selected is not None else self._match(wanted, node, chosen)
            if name is None:
                left.append(wanted)
            else:
                chosen.add(name)
                steps.append(plan.VolumeStep(plan.ClaimRef(*wanted.use.key), name))
        for wanted in left:
            if reason := self._not_provisioned(wanted.use, wanted.claim, node):
                return reason
            steps.append(plan.VolumeStep(plan.ClaimRef(*wanted.use.key)))
        return tuple(steps)

    def _match(self, wanted: _Wanted, node: nodes.Node, chosen: set[str]) -> str | None:
        """The volume that names the claim, else the smallest free one in reach. Of equal ones the first by name."""
        for volume in wanted.given:
            if volume.metadata.name not in chosen:
                return volume.metadata.name if offers.reaches(volume, node) else None
        return wanted.offers.smallest(node, self._promised | chosen)

    def _not_provisioned(self, use: Use, claim: Claim, node: nodes.Node) -> Reason | None:
        """Why no volume can be made for the claim at the node."""
        class_ = self._storage.classes.get(claim.storage_class)
        if class_ is None or class_.provisioner in ("", volumes.NO_PROVISIONER):
            return Reason(code=ReasonCode.VOLUME_NONE, subject=str(use))
        if not _is_allowed(class_, node.metadata.labels):
            detail = f"class {class_.metadata.name} makes no volumes there"
            return Reason(code=ReasonCode.VOLUME_NODE, subject=str(use), detail=detail)
        if not self._has_space(class_, claim, node):
            return Reason(code=ReasonCode.VOLUME_SPACE, subject=str(use))
        return None

    def _has_space(self, class_: volumes.StorageClass, claim: Claim, node: nodes.Node) -> bool:
        """Only drivers that say so publish how much they have left."""
        driver = self._storage.drivers.get(class_.provisioner)
        if claim.size is None or driver is None or not driver.spec.storage_capacity:
            return True
        need = claim.size.value()
        for one in self._storage.capacities_of(class_.metadata.name):
            if one.largest is None or one.largest.value() < need or one.node_topology is None:
                continue
            if labels.passes(labels.tests_of(one.node_topology), node.metadata.labels):
                return True
        return False


def _obstacles(use: Use, pod: pods.Pod, world: World) -> Iterator[Reason]:
    """What about one claim keeps the pod from every node."""
    claim = world.storage.claims.get(use.key)
    if claim is None:
        detail = "is not made yet" if use.is_ephemeral else "does not exist"
        yield Reason(code=ReasonCode.VOLUME_MISSING, subject=str(use), detail=detail)
        return
    if claim.status.phase == volumes.LOST:
        detail = f"has lost its volume {claim.spec.volume_name}"
        yield Reason(code=ReasonCode.VOLUME_MISSING, subject=str(use), detail=detail)
        return
    if claim.metadata.deletion_timestamp is not None:
        yield Reason(code=ReasonCode.VOLUME_DELETING, subject=str(use), detail="is being deleted")
    owners = claim.metadata.owner_references
    if use.is_ephemeral and not any(one.controller and one.uid == pod.metadata.uid for one in owners):
        yield Reason(code=ReasonCode.VOLUME_NOT_OURS, subject=str(use), detail="was not made for this pod")
    if not use.is_ephemeral and _is_taken(claim, use.key, world):
        detail = "may be used by one pod at a time, and another one uses it"
        yield Reason(code=ReasonCode.VOLUME_IN_USE, subject=str(use), detail=detail)
    if claim.is_bound:
        if claim.spec.volume_name not in world.storage.volumes:
            detail = f"its volume {claim.spec.volume_name} does not exist"
            yield Reason(code=ReasonCode.VOLUME_MISSING, subject=str(use), detail=detail)
    elif claim.spec.volume_name or not _waits_for_consumer(claim, world.storage):
        yield Reason(code=ReasonCode.VOLUME_UNBOUND, subject=str(use), detail="is not bound to a volume yet")


def _is_taken(claim: Claim, key: ObjectKey, world: World) -> bool:
    """Pods on nodes that are gone do not count, as upstream does not see them."""
    if volumes.READ_WRITE_ONCE_POD not in claim.spec.access_modes:
        return False
    return not world.crowd.nodes_of_volume_claim(key).isdisjoint(world.nodes)


def _waits_for_consumer(claim: Claim, storage: Storage) -> bool:
    class_ = storage.classes.get(claim.storage_class)
    return class_ is not None and class_.volume_binding_mode == volumes.WAIT_FOR_FIRST_CONSUMER


def _served_by_csi(held: Iterable[disks.Disk]) -> set[Attachable]:
    return {Attachable(disk.driver, disk.handle) for disk in held if disk.driver and disk.handle}


def _wanted(use: Use, claim: Claim, storage: Storage) -> _Wanted:
    kind = offers.kind_of(claim)
    given = tuple(one for one in storage.given_to(use.key) if _is_for(one, claim) and offers.holds(kind, one))
    return _Wanted(use, claim, storage.selected_node(claim), given, offers.of(claim, storage))


def _size_order(wanted: _Wanted) -> int:
    """Small claims first, so that large volumes are left for large ones; of equal ones the first the pod names."""
    return 0 if wanted.claim.size is None else wanted.claim.size.nanos


def _is_for(volume: Volume, claim: Claim) -> bool:
    """Whether a volume that names a claim of this name means this very claim; its class must be the one asked for."""
    ref = volume.spec.claim_ref
    is_same = ref is None or not ref.uid or ref.uid == claim.metadata.uid
    return is_same and volume.storage_class == claim.storage_class


def _is_allowed(class_: volumes.StorageClass, known: Mapping[str, str]) -> bool:
    """Whether the class may make volumes for a node with these labels."""
    terms = class_.allowed_topologies
    return not terms or any(
        bool(term.match_label_expressions)
        and all(known.get(one.key) in one.values for one in term.match_label_expressions)
        for term in terms
    )


def _zones(use: Use, volume: Volume) -> Iterator[Zone]:
    for key in ZONE_LABELS:
        text = volume.metadata.labels.get(key)
        if text is None:
            continue
        values = [one.strip() for one in text.split(migration.ZONE_DELIMITER)]
        if all(values):  # a label nobody can read says nothing
            yield Zone(key, frozenset(values), str(use))
