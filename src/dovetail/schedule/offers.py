"""Decides which volume a claim that waits for its consumer would get on a node: the smallest free one within reach.

What of free volumes suits a kind of claim does not depend on the node: it is worked out once and kept until volumes
change. Given storage and claims. Never looks at who else wants a volume: whoever asks says what is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from dovetail.model import labels, migration, nodes, quantity, selectors, volumes
from dovetail.world.storage import Storage

MAX_KINDS: Final = 256  # of claims, remembered for one storage
Claim = volumes.PersistentVolumeClaim
Volume = volumes.PersistentVolume
Place = tuple[str, str]  # a label of nodes and its value


class Kind(NamedTuple):
    """What a claim asks of a volume."""

    class_: str
    size: int
    access_modes: frozenset[str]
    volume_mode: str
    attributes: str
    tests: labels.Tests


class Offer(NamedTuple):
    """A free volume that suits. Smaller ones come first, of equal ones the first by name."""

    size: int
    name: str
    volume: Volume
    is_settled: bool  # whoever finds it by its place reaches it


class Offers:
    """Free volumes that suit one kind of claim, by where they are."""

    def __init__(self, found: Iterable[Volume]) -> None:
        self._anywhere: list[Offer] = []
        self._near: dict[Place, list[Offer]] = {}
        for volume in found:
            places, is_settled = places_of(volume)
            offer = Offer(size_of(volume), volume.metadata.name, volume, is_settled)
            for listed in [self._near.setdefault(place, []) for place in places] or [self._anywhere]:
                listed.append(offer)
        for listed in (self._anywhere, *self._near.values()):
            listed.sort(key=lambda one: one[:2])
        self._labels = tuple(dict.fromkeys(label for label, _ in self._near))

    def smallest(self, node: nodes.Node, taken: Collection[str]) -> str | None:
        """The name of the smallest one the node reaches that is not taken. Costs little on nodes without any."""
        known = node.metadata.labels
        best = _first(self._anywhere, node, taken)
        for label in self._labels:
            offer = _first(self._near.get((label, known.get(label, "")), ()), node, taken)
            if offer is not None and (best is None or offer[:2] < best[:2]):
                best = offer
        return None if best is None else best.name


_KEPT: WeakKeyDictionary[Storage, tuple[int, dict[Kind, Offers]]] = WeakKeyDictionary()


def of(claim: Claim, storage: Storage) -> Offers:
    """The free volumes that suit a claim. Linear in free volumes of its class when volumes changed since."""
    version, known = _KEPT.get(storage, (-1, {}))
    if version != storage.volumes_version or len(known) > MAX_KINDS:
        known = {}
        _KEPT[storage] = (storage.volumes_version, known)
    kind = kind_of(claim)
    if kind not in known:
        known[kind] = Offers(one for one in storage.free_of(kind.class_) if suits(kind, one))
    return known[kind]


def kind_of(claim: Claim) -> Kind:
    """What a claim asks for."""
    spec = claim.spec
    return Kind(
        claim.storage_class,
        0 if claim.size is None else claim.size.nanos,
        frozenset(spec.access_modes),
        spec.volume_mode or volumes.FILESYSTEM,
        spec.volume_attributes_class_name or "",
        labels.EVERYTHING if spec.selector is None else labels.tests_of(spec.selector),
    )


def suits(kind: Kind, volume: Volume) -> bool:
    """Whether a free volume suits, wherever it is."""
    return (
        holds(kind, volume)
        and kind.access_modes <= set(volume.spec.access_modes)
        and labels.passes(kind.tests, volume.metadata.labels)
    )


def holds(kind: Kind, volume: Volume) -> bool:
    """Whether size, mode and attributes fit: all that is asked of a volume its owner meant for the claim."""
    offered = volume.spec
    return (
        size_of(volume) >= kind.size
        and (offered.volume_mode or volumes.FILESYSTEM) == kind.volume_mode
        and (offered.volume_attributes_class_name or "") == kind.attributes
        and volume.metadata.deletion_timestamp is None
    )


def seen_from(volume: Volume, csi_node: volumes.CSINode | None) -> Volume | None:
    """The volume as a node serves it: those of old plugins by CSI where it says so; None if it cannot."""
    plugin = migration.plugin_of(volume)
    if plugin is None or not migration.is_migrated(plugin, csi_node):
        return volume
    return migration.translated(volume)


def reaches(volume: Volume, node: nodes.Node) -> bool:
    """Whether the volume can be used on the node. Its affinity sees labels only; what cannot be read holds nowhere."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    try:
        return selectors.picks_node_leniently(affinity.required, node.metadata.labels, node_name="")
    except selectors.SelectorError:
        return False


def places_of(volume: Volume) -> tuple[tuple[Place, ...], bool]:
    """Labels of which a node must have one to reach the volume, and whether one of them is all it takes.

    No labels where that cannot be said so simply.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return (), True
    terms = affinity.required.node_selector_terms
    if len(terms) != 1:
        return (), False
    tests = terms[0].match_expressions
    one = next((test for test in tests if test.operator == "In"), None)
    if one is None:
        return (), False
    is_settled = len(tests) == 1 and not terms[0].match_fields and not selectors.problems(affinity.required)
    return tuple((one.key, value) for value in dict.fromkeys(one.values)), is_settled


def size_of(volume: Volume) -> int:
    """In nanos, as quantities are compared."""
    amount: quantity.Quantity | None = volume.spec.capacity.get(volumes.STORAGE)
    return 0 if amount is None else amount.nanos


def _first(listed: Iterable[Offer], node: nodes.Node, taken: Collection[str]) -> Offer | None:
    for offer in listed:
        if offer.name not in taken and (offer.is_settled or reaches(offer.volume, node)):
            return offer
    return None
