"""Decides which volume a claim that waits for its consumer would get on a node: the smallest free one within reach.

Which free volumes suit a kind of claim does not depend on the node: that is worked out once and kept until volumes
change. Given storage and claims. Never looks at competing claims: the caller says which volumes are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.kubetypes import label_selectors, node_selectors
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.storage import csi_translation, volumes
from dovetail.quantity import quantity
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
    tests: label_selectors.Tests


class Offer(NamedTuple):
    """A free volume that suits. Smaller ones come first, of equal ones the first by name."""

    size: int
    name: str
    volume: Volume
    is_settled: bool  # a node that has the label reaches it


class Offers:
    """Free volumes that suit one kind of claim, by where they are."""

    def __init__(self, volumes_: Iterable[Volume]) -> None:
        self._anywhere: list[Offer] = []
        self._near: dict[Place, list[Offer]] = {}
        for volume in volumes_:
            places, is_settled = places_of(volume)
            offer = Offer(size_of(volume), volume.metadata.name, volume, is_settled)
            for listed in [self._near.setdefault(place, []) for place in places] or [
                self._anywhere
            ]:
                listed.append(offer)
        for listed in (self._anywhere, *self._near.values()):
            listed.sort(key=lambda offer: offer[:2])
        self._labels = tuple(dict.fromkeys(label for label, _ in self._near))

    def smallest(self, node: nodes.Node, taken_names: Collection[str]) -> str | None:
        """The name of the smallest one the node reaches that is not taken. Costs little on nodes without any."""
        labels = node.metadata.labels
        best = _first(self._anywhere, node, taken_names)
        for label in self._labels:
            offer = _first(self._near.get((label, labels.get(label, "")), ()), node, taken_names)
            if offer is not None and (best is None or offer[:2] < best[:2]):
                best = offer
        return None if best is None else best.name


_OFFERS: Final = cache.WeakMemo[Storage, Kind, Offers](MAX_KINDS)


def of(claim: Claim, storage: Storage) -> Offers:
    """The free volumes that suit a claim. Linear in free volumes of its class when volumes changed since."""
    kind = kind_of(claim)

    def worked_out() -> Offers:
        return Offers(volume for volume in storage.free_of(kind.class_) if suits(kind, volume))

    return _OFFERS.of(storage, kind, worked_out, version=storage.volumes_version)


def kind_of(claim: Claim) -> Kind:
    """What a claim asks for."""
    spec = claim.spec
    return Kind(
        claim.storage_class,
        0 if claim.size is None else claim.size.nanos,
        frozenset(spec.access_modes),
        spec.volume_mode or volumes.FILESYSTEM,
        spec.volume_attributes_class_name or "",
        label_selectors.EVERYTHING
        if spec.selector is None
        else label_selectors.tests_of(spec.selector),
    )


def suits(kind: Kind, volume: Volume) -> bool:
    """Whether a free volume suits, wherever it is."""
    return (
        holds(kind, volume)
        and kind.access_modes <= set(volume.spec.access_modes)
        and label_selectors.passes(kind.tests, volume.metadata.labels)
    )


def holds(kind: Kind, volume: Volume) -> bool:
    """Whether size, mode and attributes fit: all that a volume needs which was made for the claim."""
    offered = volume.spec
    return (
        size_of(volume) >= kind.size
        and (offered.volume_mode or volumes.FILESYSTEM) == kind.volume_mode
        and (offered.volume_attributes_class_name or "") == kind.attributes
        and volume.metadata.deletion_timestamp is None
    )


def seen_from(volume: Volume, csi_node: volumes.CSINode | None) -> Volume | None:
    """The volume as a node serves it: those of old plugins by CSI where it says so; None if it cannot."""
    plugin = csi_translation.plugin_of(volume)
    if plugin is None or not csi_translation.is_migrated(plugin, csi_node):
        return volume
    return csi_translation.translated(volume)


def reaches(volume: Volume, node: nodes.Node) -> bool:
    """Whether the volume can be used on the node. Its affinity sees labels only; what cannot be read holds nowhere."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    try:
        return node_selectors.picks_node_leniently(
            affinity.required, node.metadata.labels, node_name=""
        )
    except node_selectors.SelectorError:
        return False


def places_of(volume: Volume) -> tuple[tuple[Place, ...], bool]:
    """Labels of which a node must have one to reach the volume, and whether one of them is all it takes.

    No labels where the selector is not of that form.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return (), True
    terms = affinity.required.node_selector_terms
    if len(terms) != 1:
        return (), False
    tests = terms[0].match_expressions
    in_test = next((test for test in tests if test.operator == "In"), None)
    if in_test is None:
        return (), False
    is_settled = (
        len(tests) == 1
        and not terms[0].match_fields
        and not node_selectors.problems(affinity.required)
    )
    return tuple((in_test.key, value) for value in dict.fromkeys(in_test.values)), is_settled


def size_of(volume: Volume) -> int:
    """In nanos, as quantities are compared."""
    amount: quantity.Quantity | None = volume.spec.capacity.get(volumes.STORAGE)
    return 0 if amount is None else amount.nanos


def _first(listed: Iterable[Offer], node: nodes.Node, taken_names: Collection[str]) -> Offer | None:
    for offer in listed:
        if offer.name not in taken_names and (offer.is_settled or reaches(offer.volume, node)):
            return offer
    return None
