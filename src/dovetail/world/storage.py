"""Volumes and their claims as scheduling sees them: facts by name, and what was decided about them but not yet written.

Kept current by events. Decisions (a volume for a claim, a node for a claim to be provisioned at) count as done while
they are assumed; trials take them back. Never judges a pod, never chooses a volume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dovetail.model import migration, objects, plan, volumes
from dovetail.world.events import ObjectKey

NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})  # nodevolumelimits


class Attachable(NamedTuple):
    """A volume as its CSI driver counts it: the same one however many pods use it."""

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
        self._free: dict[str, set[str]] = {}  # by class: volumes nobody has
        self._given: dict[ObjectKey, set[str]] = {}  # by claim: volumes that name it
        self._roomy: dict[str, set[ObjectKey]] = {}  # by class: capacities
        self._attached: dict[str, set[str]] = {}  # by node: attachments
        self._bindings: Counter[tuple[ObjectKey, str]] = Counter()  # assumed: a volume for a claim
        self._selected: Counter[tuple[ObjectKey, str]] = Counter()  # assumed: a node for a claim

    # Questions

    def given_to(self, key: ObjectKey) -> tuple[volumes.PersistentVolume, ...]:
        """Volumes that are meant for a claim, by their own word or by assumption, by name."""
        names = self._given.get(key, set()) | {name for claim, name in self._bindings if claim == key}
        return tuple(self.volumes[name] for name in sorted(names) if name in self.volumes)

    def promised(self) -> frozenset[str]:
        """Volumes that were decided on for some claim, by name."""
        return frozenset(name for _, name in self._bindings)

    def selected_node(self, claim: volumes.PersistentVolumeClaim) -> str | None:
        """The node a claim is to be provisioned at; what is written counts before what is assumed."""
        written = claim.metadata.annotations.get(volumes.SELECTED_NODE)
        if written is not None:
            return written
        key = (claim.metadata.namespace, claim.metadata.name)
        return next((node for other, node in self._selected if other == key), None)

    def free_of(self, class_: str) -> Iterable[volumes.PersistentVolume]:
        """Volumes of a class that no claim has, by name. Promised ones are among them."""
        return (self.volumes[name] for name in sorted(self._free.get(class_, ())))

    def capacities_of(self, class_: str) -> Iterable[volumes.CSIStorageCapacity]:
        """What drivers say is left of a class, in different places."""
        return (self.capacities[key] for key in self._roomy.get(class_, ()))

    def attached_to(self, node: str) -> set[Attachable]:
        """CSI volumes that attachments say are at a node, whether or not a pod uses them."""
        found = set()
        for name in self._attached.get(node, ()):
            spec = self.attachments[name].spec
            volume = self.volumes.get(spec.source.persistent_volume_name or "")
            if spec.attacher and volume is not None and volume.spec.csi is not None:
                found.add(Attachable(spec.attacher, volume.spec.csi.volume_handle))
        return found

    def attachable(self, claim: volumes.PersistentVolumeClaim, *, has_csi: bool = True) -> Attachable | None:
        """What a claim's volume counts as; None if no CSI driver serves it, as far as one can tell.

        A node without CSI (no CSINode) has nothing to serve volumes of the old plugins with.
        """
        volume = self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            return self._attachable_by_class(claim, has_csi=has_csi)
        if volume.spec.csi is None and has_csi:
            volume = migration.translated(volume) or volume
        csi = volume.spec.csi
        return Attachable(csi.driver, csi.volume_handle) if csi and csi.driver and csi.volume_handle else None

    def _attachable_by_class(self, claim: volumes.PersistentVolumeClaim, *, has_csi: bool) -> Attachable | None:
        class_ = self.classes.get(claim.storage_class)
        if class_ is None or not class_.provisioner or class_.provisioner in NOT_COUNTED:
            return None
        plugin = migration.PLUGINS.get(class_.provisioner)
        if plugin is not None and not has_csi:
            return None
        # No driver knows such a handle, so it cannot be taken for a volume that is there.
        handle = f"<claim {claim.metadata.namespace}/{claim.metadata.name}>"
        return Attachable(class_.provisioner if plugin is None else plugin.driver, handle)

    def find(self, kind: str, key: ObjectKey) -> Any:
        """An object by its kind; None if there is none or the kind is not kept here."""
        match kind:
            case "PersistentVolumeClaim":
                return self.claims.get(key)
            case "CSIStorageCapacity":
                return self.capacities.get(key)
            case _:
                return self._by_name().get(kind, {}).get(key[1])

    def dump(self) -> dict[str, Any]:
        """Everything known and assumed, in a fixed order."""
        tables: dict[str, dict[Any, Any]] = dict(self._by_name())
        tables |= {"PersistentVolumeClaim": self.claims, "CSIStorageCapacity": self.capacities}
        facts = {
            kind: {str(key): objects.tree_of(found) for key, found in sorted(table.items())}
            for kind, table in sorted(tables.items())
        }
        free = {class_: sorted(names) for class_, names in sorted(self._free.items())}
        assumed = [sorted(map(str, self._bindings.elements())), sorted(map(str, self._selected.elements()))]
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

    def put(self, found: object, *, is_there: bool) -> bool:
        """Takes a fact in; whether it is of a kind that is kept here. Of what is gone the name suffices."""
        match found:
            case volumes.PersistentVolumeClaim():
                _set(self.claims, _key(found), found if is_there else None)
            case volumes.PersistentVolume():
                self._put_volume(found, is_there=is_there)
            case volumes.StorageClass():
                _set(self.classes, found.metadata.name, found if is_there else None)
            case volumes.CSINode():
                _set(self.nodes, found.metadata.name, found if is_there else None)
            case volumes.CSIDriver():
                _set(self.drivers, found.metadata.name, found if is_there else None)
            case volumes.CSIStorageCapacity():
                self._put_capacity(found, is_there=is_there)
            case volumes.VolumeAttachment():
                self._put_attachment(found, is_there=is_there)
            case _:
                return False
        return True

    def assume(self, node: str, steps: Iterable[plan.VolumeStep], *, sign: int = 1) -> None:
        """Takes steps decided for a node as taken; with sign -1 takes that back."""
        for step in steps:
            key = (step.claim.namespace, step.claim.name)
            table, what = (self._bindings, step.volume) if step.volume else (self._selected, node)
            table[key, what] += sign
            if not table[key, what]:
                del table[key, what]

    def _put_volume(self, found: volumes.PersistentVolume, *, is_there: bool) -> None:
        name = found.metadata.name
        self.volumes_version += 1
        old = self.volumes.pop(name, None)
        if old is not None:
            self._file_volume(old, is_there=False)
        if is_there:
            self.volumes[name] = found
            self._file_volume(found, is_there=True)

    def _file_volume(self, found: volumes.PersistentVolume, *, is_there: bool) -> None:
        name, ref = found.metadata.name, found.spec.claim_ref
        if ref is not None:
            _file(self._given, (ref.namespace, ref.name), name, is_there=is_there)
        elif found.status.phase == volumes.AVAILABLE and found.metadata.deletion_timestamp is None:
            _file(self._free, found.storage_class, name, is_there=is_there)

    def _put_capacity(self, found: volumes.CSIStorageCapacity, *, is_there: bool) -> None:
        key = _key(found)
        old = self.capacities.pop(key, None)
        if old is not None:
            _file(self._roomy, old.storage_class_name, key, is_there=False)
        if is_there:
            self.capacities[key] = found
            _file(self._roomy, found.storage_class_name, key, is_there=True)

    def _put_attachment(self, found: volumes.VolumeAttachment, *, is_there: bool) -> None:
        name = found.metadata.name
        old = self.attachments.pop(name, None)
        if old is not None:
            _file(self._attached, old.spec.node_name, name, is_there=False)
        if is_there:
            self.attachments[name] = found
            _file(self._attached, found.spec.node_name, name, is_there=True)


def _key(found: volumes.PersistentVolumeClaim | volumes.CSIStorageCapacity) -> ObjectKey:
    return found.metadata.namespace, found.metadata.name


def _set(table: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _file(table: dict[Any, set[Any]], key: object, value: object, *, is_there: bool) -> None:
    held = table.setdefault(key, set())
    (held.add if is_there else held.discard)(value)
    if not held:
        del table[key]
