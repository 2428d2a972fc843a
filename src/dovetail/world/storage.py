"""Volumes and their claims as scheduling sees them: facts by name, and decisions that are not yet written.

Updated by events. A decision (a volume for a claim, a node for provisioning a claim) counts as done while it is
assumed; trials undo it. Never evaluates a pod, never chooses a volume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec
from dovetail.kubetypes.storage import csi_translation, volumes
from dovetail.model import plan
from dovetail.world.events import ObjectKey

# Provisioners that kube-scheduler's NodeVolumeLimits plugin does not count.
NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})


class Attachable(NamedTuple):
    """A volume as its CSI driver counts it: once, however many pods use it."""

    driver: str
    handle: str


class Storage:
    """Facts by kind, and assumptions about them. Read the mappings; change them only through `put` and `assume`."""

    def __init__(self) -> None:
        self.claims: dict[ObjectKey, volumes.PersistentVolumeClaim] = {}
        self.volumes: dict[str, volumes.PersistentVolume] = {}
        self.classes: dict[str, volumes.StorageClass] = {}
        self.nodes: dict[str, volumes.CSINode] = {}
        self.drivers: dict[str, volumes.CSIDriver] = {}
        self.capacities: dict[ObjectKey, volumes.CSIStorageCapacity] = {}
        self.attachments: dict[str, volumes.VolumeAttachment] = {}
        self.volumes_version = 0  # grows with every change of a volume
        self._free: dict[str, set[str]] = {}  # class -> volumes without a claim
        self._reserved: dict[ObjectKey, set[str]] = {}  # claim -> volumes whose claimRef names it
        self._capacities: dict[str, set[ObjectKey]] = {}  # class -> keys of capacities
        self._attached: dict[str, set[str]] = {}  # node -> attachments
        self._bindings: Counter[tuple[ObjectKey, str]] = Counter()  # assumed: a volume for a claim
        self._selected: Counter[tuple[ObjectKey, str]] = Counter()  # assumed: a node for a claim

    # Questions

    def volumes_reserved_for(self, key: ObjectKey) -> tuple[volumes.PersistentVolume, ...]:
        """Volumes reserved for a claim, by their claimRef or by assumption, by name."""
        reserved = self._reserved.get(key, set())
        assumed = {name for claim, name in self._bindings if claim == key}
        names = sorted(reserved | assumed)
        return tuple(self.volumes[name] for name in names if name in self.volumes)

    def assumed_volumes(self) -> frozenset[str]:
        """Volumes with an assumed binding, by name."""
        return frozenset(name for _, name in self._bindings)

    def selected_node(self, claim: volumes.PersistentVolumeClaim) -> str | None:
        """The node at which a claim will be provisioned; its annotation takes precedence over an assumption."""
        annotated = claim.metadata.annotations.get(volumes.SELECTED_NODE)
        if annotated is not None:
            return annotated
        key = (claim.metadata.namespace, claim.metadata.name)
        return next((node for assumed_key, node in self._selected if assumed_key == key), None)

    def free_of(self, class_: str) -> Iterable[volumes.PersistentVolume]:
        """Volumes of a class without a claim, by name; volumes with an assumed binding are among them."""
        return (self.volumes[name] for name in sorted(self._free.get(class_, ())))

    def capacities_of(self, class_: str) -> Iterable[volumes.CSIStorageCapacity]:
        """The free capacity that drivers report for a class, topology segment by topology segment."""
        return (self.capacities[key] for key in self._capacities.get(class_, ()))

    def attached_to(self, node: str) -> set[Attachable]:
        """CSI volumes with an attachment to a node, whether or not a pod uses them."""
        attached = set()
        for name in self._attached.get(node, ()):
            spec = self.attachments[name].spec
            volume = self.volumes.get(spec.source.persistent_volume_name or "")
            if spec.attacher and volume is not None and volume.spec.csi is not None:
                attached.add(Attachable(spec.attacher, volume.spec.csi.volume_handle))
        return attached

    def attachable(
        self, claim: volumes.PersistentVolumeClaim, *, has_csi: bool = True
    ) -> Attachable | None:
        """What a claim's volume counts as towards a driver's limit; None if no CSI driver is known to serve it.

        A node without a CSINode cannot serve volumes of in-tree plugins through CSI.
        """
        volume = self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            return self._attachable_by_class(claim, has_csi=has_csi)
        if volume.spec.csi is None and has_csi:
            volume = csi_translation.translated(volume) or volume
        csi = volume.spec.csi
        if csi is None or not csi.driver or not csi.volume_handle:
            return None
        return Attachable(csi.driver, csi.volume_handle)

    def _attachable_by_class(
        self, claim: volumes.PersistentVolumeClaim, *, has_csi: bool
    ) -> Attachable | None:
        class_ = self.classes.get(claim.storage_class)
        if class_ is None or not class_.provisioner or class_.provisioner in NOT_COUNTED:
            return None
        plugin = csi_translation.PLUGINS.get(class_.provisioner)
        if plugin is not None and not has_csi:
            return None
        driver = class_.provisioner if plugin is None else plugin.driver
        # No driver hands out such a handle, so it cannot be mistaken for an existing volume.
        handle = f"<claim {claim.metadata.namespace}/{claim.metadata.name}>"
        return Attachable(driver, handle)

    def find(self, kind: str, key: ObjectKey) -> Any:
        """An object by its kind; None if it does not exist or the kind is not stored here."""
        match kind:
            case "PersistentVolumeClaim":
                return self.claims.get(key)
            case "CSIStorageCapacity":
                return self.capacities.get(key)
            case _:
                return self._by_name().get(kind, {}).get(key[1])

    def dump(self) -> dict[str, Any]:
        """All facts and assumptions, in a fixed order."""
        tables: dict[str, dict[Any, Any]] = dict(self._by_name())
        tables |= {"PersistentVolumeClaim": self.claims, "CSIStorageCapacity": self.capacities}
        facts = {
            kind: {str(key): codec.tree_of(stored) for key, stored in sorted(table.items())}
            for kind, table in sorted(tables.items())
        }
        free = {class_: sorted(names) for class_, names in sorted(self._free.items())}
        assumed = [
            sorted(map(str, self._bindings.elements())),
            sorted(map(str, self._selected.elements())),
        ]
        return {**facts, "free": free, "assumed": assumed}

    def _by_name(self) -> dict[str, dict[str, Any]]:
        return {
            "PersistentVolume": self.volumes,
            "StorageClass": self.classes,
            "CSINode": self.nodes,
            "CSIDriver": self.drivers,
            "VolumeAttachment": self.attachments,
        }

    # Changes

    def put(self, changed: object, *, is_there: bool) -> bool:
        """Takes a fact in; returns whether it is of a kind that is stored here. For deletions the name suffices."""
        stored = changed if is_there else None
        match changed:
            case volumes.PersistentVolumeClaim():
                _set(self.claims, _key(changed), stored)
            case volumes.PersistentVolume():
                self._put_volume(changed, is_there=is_there)
            case volumes.StorageClass():
                _set(self.classes, changed.metadata.name, stored)
            case volumes.CSINode():
                _set(self.nodes, changed.metadata.name, stored)
            case volumes.CSIDriver():
                _set(self.drivers, changed.metadata.name, stored)
            case volumes.CSIStorageCapacity():
                self._put_capacity(changed, is_there=is_there)
            case volumes.VolumeAttachment():
                self._put_attachment(changed, is_there=is_there)
            case _:
                return False
        return True

    def assume(self, node: str, steps: Iterable[plan.VolumeStep], *, sign: int = 1) -> None:
        """Counts volume steps decided for a node as done; with sign -1 undoes that."""
        for step in steps:
            key = (step.claim.namespace, step.claim.name)
            if step.volume:
                table, choice = self._bindings, step.volume
            else:
                table, choice = self._selected, node
            table[key, choice] += sign
            if not table[key, choice]:
                del table[key, choice]

    def _put_volume(self, volume: volumes.PersistentVolume, *, is_there: bool) -> None:
        name = volume.metadata.name
        self.volumes_version += 1
        old = self.volumes.pop(name, None)
        if old is not None:
            self._file_volume(old, is_there=False)
        if is_there:
            self.volumes[name] = volume
            self._file_volume(volume, is_there=True)

    def _file_volume(self, volume: volumes.PersistentVolume, *, is_there: bool) -> None:
        name = volume.metadata.name
        claim = volume.spec.claim_ref
        is_deleted = volume.metadata.deletion_timestamp is not None
        if claim is not None:
            _file(self._reserved, (claim.namespace, claim.name), name, is_there=is_there)
        elif volume.status.phase == volumes.AVAILABLE and not is_deleted:
            _file(self._free, volume.storage_class, name, is_there=is_there)

    def _put_capacity(self, capacity: volumes.CSIStorageCapacity, *, is_there: bool) -> None:
        key = _key(capacity)
        old = self.capacities.pop(key, None)
        if old is not None:
            _file(self._capacities, old.storage_class_name, key, is_there=False)
        if is_there:
            self.capacities[key] = capacity
            _file(self._capacities, capacity.storage_class_name, key, is_there=True)

    def _put_attachment(self, attachment: volumes.VolumeAttachment, *, is_there: bool) -> None:
        name = attachment.metadata.name
        old = self.attachments.pop(name, None)
        if old is not None:
            _file(self._attached, old.spec.node_name, name, is_there=False)
        if is_there:
            self.attachments[name] = attachment
            _file(self._attached, attachment.spec.node_name, name, is_there=True)


def _key(stored: volumes.PersistentVolumeClaim | volumes.CSIStorageCapacity) -> ObjectKey:
    return stored.metadata.namespace, stored.metadata.name


def _set(table: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _file(table: dict[Any, set[Any]], key: object, value: object, *, is_there: bool) -> None:
    entries = table.setdefault(key, set())
    (entries.add if is_there else entries.discard)(value)
    if not entries:
        del table[key]
