"""Decides which nodes a pod's volumes allow, and what has to be written about them before the pod may be bound.

The filters VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits of kube-scheduler: bound volumes tie the
pod to where they are; claims that wait for their first consumer get the smallest free volume in reach of the node, or
one that will be provisioned there. Given a pod and the World. Never writes, never prefers a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.storage import csi_translation, inline_disks, volumes
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node.filters import volume_matching
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
    selected: str | None  # the node it will be provisioned at
    given: tuple[Volume, ...]  # volumes that name it
    offers: volume_matching.Offers


def uses_of(pod: pods.Pod) -> tuple[Use, ...]:
    """The claims behind a pod's volumes, each once. Those of ephemeral volumes follow from the pod's name."""
    uses: dict[Use, None] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            key = (pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
            uses[Use(key, is_ephemeral=False)] = None
        elif volume.ephemeral is not None:
            key = (pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}")
            uses[Use(key, is_ephemeral=True)] = None
    return tuple(uses)


def filter_(pod: pods.Pod, world: World) -> VolumeFilter | tuple[Reason, ...] | None:
    """The filter for the pod's volumes; reasons if they rule out every node; None if it has none."""
    if not pod.spec.volumes:
        return None
    uses = uses_of(pod)
    disks = inline_disks.disks_of(pod)
    if not uses and not disks:
        return None
    storage = world.storage
    if reasons := tuple(reason for use in uses for reason in _obstacles(use, pod, world)):
        return reasons
    claim_of = {use: storage.claims[use.key] for use in uses}
    bound = {use: claim for use, claim in claim_of.items() if claim.is_bound}
    return VolumeFilter(
        world,
        bound=tuple((use, storage.volumes[claim.spec.volume_name]) for use, claim in bound.items()),
        delayed=tuple(
            sorted(
                (_wanted(u, c, storage) for u, c in claim_of.items() if u not in bound),
                key=_size_order,
            )
        ),
        claims=tuple(claim_of.values()),
        disks=disks,
    )


class VolumeFilter:
    """One pod's volumes as a filter, valid until the World changes."""

    def __init__(
        self,
        world: World,
        *,
        bound: tuple[tuple[Use, Volume], ...],
        delayed: tuple[_Wanted, ...],
        claims: tuple[Claim, ...],
        disks: tuple[inline_disks.Disk, ...],
    ) -> None:
        self._world = world
        self._storage = world.storage
        self._bound = tuple(
            (use, volume, volume_matching.places_of(volume)) for use, volume in bound
        )
        self._is_old = any(csi_translation.plugin_of(volume) is not None for _, volume in bound)
        self._zones = tuple(
            zone for use, volume in bound if not use.is_ephemeral for zone in _zones(use, volume)
        )
        self._delayed = delayed
        self._attached = {
            attachable
            for claim in claims
            if (attachable := self._storage.attachable(claim)) is not None
        }
        self._attached |= _served_by_csi(disks)
        self._drivers = sorted({attachable.driver for attachable in self._attached})
        without = (self._storage.attachable(claim, has_csi=False) for claim in claims)
        self._drivers_without_csi = sorted(
            {attachable.driver for attachable in without if attachable is not None}
        )
        self._held = disks
        self._promised = self._storage.assumed_volumes() if delayed else frozenset()

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the pod's volumes rule the node out; None if they do not."""
        far = self._far_as_seen(node) if self._is_old else self._far(node)
        if far is not None:
            return Reason(code=ReasonCode.VOLUME_NODE, subject=str(far))
        if reason := self._zone_misfit(node) or self._disk_misfit(node) or self._limit_misfit(node):
            return reason
        matches = self._found(node) if self._delayed else ()
        return matches if isinstance(matches, Reason) else None

    def steps(self, node: nodes.Node) -> tuple[plan.VolumeStep, ...]:
        """What has to be written and observed before the pod may be bound to a node that fits."""
        matches = self._found(node) if self._delayed else ()
        assert not isinstance(matches, Reason), "the same pod on the same node got another answer"
        return matches

    # Where volumes are

    def _far(self, node: nodes.Node) -> Use | None:
        """The first bound volume out of reach. One label decides for most nodes; the others need the full check."""
        labels = node.metadata.labels
        for use, volume, (places, is_settled) in self._bound:
            if places and not any(labels.get(label) == value for label, value in places):
                return use
            if not is_settled and not volume_matching.reaches(volume, node):
                return use
        return None

    def _far_as_seen(self, node: nodes.Node) -> Use | None:
        """The same where some volumes are of old plugins: nodes that serve them by CSI see them differently."""
        csi_node = self._storage.nodes.get(node.metadata.name)
        for use, volume, _ in self._bound:
            translated = volume_matching.seen_from(volume, csi_node)
            if translated is None or not volume_matching.reaches(translated, node):
                return use
        return None

    def _zone_misfit(self, node: nodes.Node) -> Reason | None:
        """Nodes without any zone are in a cluster without zones: they suit."""
        labels = node.metadata.labels
        if not self._zones or labels.keys().isdisjoint(ZONE_LABELS):
            return None
        for zone in self._zones:
            value = labels.get(zone.key, labels.get(ZONE_LABELS[zone.key]))
            if value not in zone.values:
                return Reason(code=ReasonCode.VOLUME_NODE, subject=zone.subject)
        return None

    def _disk_misfit(self, node: nodes.Node) -> Reason | None:
        disks_in_use = self._world.pod_index.disks_on(node.metadata.name) if self._held else ()
        if any(disk.excludes(disk_in_use) for disk in self._held for disk_in_use in disks_in_use):
            return Reason(code=ReasonCode.VOLUME_IN_USE, detail="a pod there uses the same disk")
        return None

    # How many volumes a node takes

    def _limit_misfit(self, node: nodes.Node) -> Reason | None:
        if not self._attached or not (self._storage.nodes or self._storage.drivers):
            return None
        installed = self._storage.nodes.get(node.metadata.name)
        installed_drivers = installed.spec.drivers if installed is not None else ()
        names = {driver.name for driver in installed_drivers}
        for name in self._drivers if installed is not None else self._drivers_without_csi:
            if name not in names and self._must_be_installed(name):
                return Reason(code=ReasonCode.VOLUME_DRIVER, subject=f"CSI driver {name}")

        limits: dict[str, int] = {}
        for driver in installed_drivers:
            allocatable = driver.allocatable
            if allocatable is not None and allocatable.count is not None:
                limits[driver.name] = allocatable.count
        if limits.keys().isdisjoint(self._drivers):
            return None
        return self._over_limit(node, limits)

    def _must_be_installed(self, driver: str) -> bool:
        csi_driver = self._storage.drivers.get(driver)
        return csi_driver is not None and bool(csi_driver.spec.prevent_pod_scheduling_if_missing)

    def _over_limit(self, node: nodes.Node, limits: Mapping[str, int]) -> Reason | None:
        """A volume several pods use counts once; one that is attached and unused counts too."""
        used = set(self._used_on(node.metadata.name))
        new = set(self._attached) - used
        attached = used | self._storage.attached_to(node.metadata.name)
        for driver in sorted({attachable.driver for attachable in new} & limits.keys()):
            need = sum(attachable.driver == driver for attachable in new)
            have = limits[driver] - sum(attachable.driver == driver for attachable in attached)
            if need > have:
                code = ReasonCode.VOLUME_LIMIT
                return Reason(
                    code=code, subject=f"CSI driver {driver}", need=need, have=max(have, 0)
                )
        return None

    def _used_on(self, node: str) -> Iterator[Attachable]:
        for key in self._world.pod_index.volume_claims_on(node):
            claim = self._storage.claims.get(key)
            attachable = None if claim is None else self._storage.attachable(claim)
            if attachable is not None:
                yield attachable
        yield from _served_by_csi(self._world.pod_index.disks_on(node))

    # Volumes for claims that wait for their first consumer

    def _found(self, node: nodes.Node) -> tuple[plan.VolumeStep, ...] | Reason:
        """A volume for each claim, or a promise to provision one; the first claim there is nothing for."""
        for delayed in self._delayed:
            if delayed.selected not in (None, node.metadata.name):
                detail = f"will be provisioned for node {delayed.selected}"
                return Reason(code=ReasonCode.VOLUME_NODE, subject=str(delayed.use), detail=detail)
        steps: list[plan.VolumeStep] = []
        chosen: set[str] = set()
        unmatched: list[_Wanted] = []
        for delayed in self._delayed:
            name = None if delayed.selected is not None else self._match(delayed, node, chosen)
            if name is None:
                unmatched.append(delayed)
            else:
                chosen.add(name)
                steps.append(plan.VolumeStep(plan.ClaimRef(*delayed.use.key), name))
        for delayed in unmatched:
            if reason := self._not_provisioned(delayed.use, delayed.claim, node):
                return reason
            steps.append(plan.VolumeStep(plan.ClaimRef(*delayed.use.key)))
        return tuple(steps)

    def _match(self, delayed: _Wanted, node: nodes.Node, chosen: set[str]) -> str | None:
        """The volume that names the claim, else the smallest free one in reach. Of equal ones the first by name."""
        for volume in delayed.given:
            if volume.metadata.name not in chosen:
                return volume.metadata.name if volume_matching.reaches(volume, node) else None
        return delayed.offers.smallest(node, self._promised | chosen)

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
        for capacity in self._storage.capacities_of(class_.metadata.name):
            if (
                capacity.largest is None
                or capacity.largest.value() < need
                or capacity.node_topology is None
            ):
                continue
            if label_selectors.passes(
                label_selectors.tests_of(capacity.node_topology), node.metadata.labels
            ):
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
    if use.is_ephemeral and not any(
        owner.controller and owner.uid == pod.metadata.uid for owner in owners
    ):
        yield Reason(
            code=ReasonCode.VOLUME_NOT_OURS, subject=str(use), detail="was not made for this pod"
        )
    if not use.is_ephemeral and _is_taken(claim, use.key, world):
        detail = "may be used by one pod at a time, and another one uses it"
        yield Reason(code=ReasonCode.VOLUME_IN_USE, subject=str(use), detail=detail)
    if claim.is_bound:
        if claim.spec.volume_name not in world.storage.volumes:
            detail = f"its volume {claim.spec.volume_name} does not exist"
            yield Reason(code=ReasonCode.VOLUME_MISSING, subject=str(use), detail=detail)
    elif claim.spec.volume_name or not _waits_for_consumer(claim, world.storage):
        yield Reason(
            code=ReasonCode.VOLUME_UNBOUND, subject=str(use), detail="is not bound to a volume yet"
        )


def _is_taken(claim: Claim, key: ObjectKey, world: World) -> bool:
    """Pods on nodes that are gone do not count, as upstream does not see them."""
    if volumes.READ_WRITE_ONCE_POD not in claim.spec.access_modes:
        return False
    return not world.pod_index.nodes_of_volume_claim(key).isdisjoint(world.nodes)


def _waits_for_consumer(claim: Claim, storage: Storage) -> bool:
    class_ = storage.classes.get(claim.storage_class)
    return class_ is not None and class_.volume_binding_mode == volumes.WAIT_FOR_FIRST_CONSUMER


def _served_by_csi(disks: Iterable[inline_disks.Disk]) -> set[Attachable]:
    return {Attachable(disk.driver, disk.handle) for disk in disks if disk.driver and disk.handle}


def _wanted(use: Use, claim: Claim, storage: Storage) -> _Wanted:
    kind = volume_matching.kind_of(claim)
    prebound = tuple(
        volume
        for volume in storage.volumes_reserved_for(use.key)
        if _is_for(volume, claim) and volume_matching.holds(kind, volume)
    )
    return _Wanted(
        use, claim, storage.selected_node(claim), prebound, volume_matching.of(claim, storage)
    )


def _size_order(delayed: _Wanted) -> int:
    """Small claims first, so that large volumes are left for large ones; of equal ones the first the pod names."""
    return 0 if delayed.claim.size is None else delayed.claim.size.nanos


def _is_for(volume: Volume, claim: Claim) -> bool:
    """Whether a volume that names a claim of this name means this very claim; its class must be the claim's."""
    ref = volume.spec.claim_ref
    is_same = ref is None or not ref.uid or ref.uid == claim.metadata.uid
    return is_same and volume.storage_class == claim.storage_class


def _is_allowed(class_: volumes.StorageClass, labels: Mapping[str, str]) -> bool:
    """Whether the class may make volumes for a node with these labels."""
    terms = class_.allowed_topologies
    return not terms or any(
        bool(term.match_label_expressions)
        and all(
            labels.get(expression.key) in expression.values
            for expression in term.match_label_expressions
        )
        for term in terms
    )


def _zones(use: Use, volume: Volume) -> Iterator[Zone]:
    for key in ZONE_LABELS:
        text = volume.metadata.labels.get(key)
        if text is None:
            continue
        values = [zone.strip() for zone in text.split(csi_translation.ZONE_DELIMITER)]
        if all(values):  # an unreadable label counts for nothing
            yield Zone(key, frozenset(values), str(use))
