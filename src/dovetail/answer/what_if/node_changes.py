"""Changes of nodes: more like one that is there, nodes that go, nodes that take no new pods.

Given a replica as earlier changes left it; returns edits with the assumption behind them. A new node is a copy of a
node and of the slices of its own devices, empty, with the same labels; every device gets identities of its own. Where
no node of a type is there, the caller's catalogue builds a machine. Never places a pod.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import changes, displaced_pods, effect, node_selection
from dovetail.answer.what_if.effect import Effect
from dovetail.gpus import board_facts
from dovetail.kubetypes import codec, meta, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools
from dovetail.world.devices import gpu_ledger

# Builds a machine with a board of the catalogue, under a name: its node and its slices.
BuildMachine = Callable[[board_facts.Gpu, str], Sequence[codec.Stored]]

PASSING_TAINTS: Final = "node.kubernetes.io/"  # of unhealthy or cordoned nodes
IDENTITIES: Final = frozenset({"uuid", "parentUUID"})
PLACES: Final = ("rack", "block", "zone")  # last parts of labels that say where a node stands
_UUID_TAIL: Final = re.compile(r"[0-9a-f]{12}$")


def added(replica: Replica, change: changes.AddNodes, build: BuildMachine) -> Effect:
    """More nodes like one that is there, or like a machine of the catalogue."""
    wanted = change.nodes
    count = wanted.count or 1
    if wanted.kind == changes.NODE:
        model = node_selection.selected(
            replica, changes.Selection(kind=changes.NODE, name=wanted.name)
        )[0]
    else:
        by_type = node_selection.types_of(replica.world)
        type_ = node_selection.the_type(wanted.name, by_type)
        if type_ is None:
            return _built(replica, wanted.name, count, build)
        model = replica.world.nodes[by_type[type_][0]]

    name = model.metadata.name
    edits: list[Edit] = []
    for new_name in _new_names(replica, name, count):
        edits += _copy(replica, model, new_name)
    offer = offer_of(replica, name)
    copies = effect.counted(count, "node")
    where = _where(model)
    return Effect(edits, f"{copies} like {name}: {offer}, empty, with its labels{where}")


def removed(replica: Replica, change: changes.RemoveNodes) -> Effect:
    """Nodes that go with their devices; their pods leave first."""
    leaving = node_selection.selected(replica, change.nodes)
    names = [node.metadata.name for node in leaving]
    gone = displaced_pods.displaced(replica, frozenset(names), is_node_gone=True)
    edits = list(gone.edits)
    edits += [effect.deleted(node) for node in leaving]
    for stored in _slices_of(replica, frozenset(names)):
        edits.append(effect.deleted(stored.struct))
    how = ""
    if change.nodes.count is not None and change.nodes.kind != changes.NODE:
        how = ", those with the fewest GPUs in use"
    counted = effect.counted(len(names), "node")
    leave = "goes with its devices" if len(names) == 1 else "go with their devices"
    text = f"{counted} ({effect.listed(names)}{how}) {leave}"
    return Effect(edits, f"{text}; {fate_of(gone)}", tuple(gone.lost))


def cordoned(replica: Replica, change: changes.Cordon) -> Effect:
    """Nodes that take no new pods, and with a drain lose those they have."""
    selected = node_selection.selected(replica, change.nodes)
    if not change.is_drained and all(node.spec.unschedulable for node in selected):
        raise errors.InputError(f"{_listed(selected)}: cordoned already")
    edits = [_unschedulable(replica, node, is_on=True) for node in selected]
    names = [node.metadata.name for node in selected]
    if not change.is_drained:
        verb = "takes" if len(names) == 1 else "take"
        return Effect(edits, f"{effect.listed(names)} {verb} no new pods; pods there go on")
    gone = displaced_pods.displaced(replica, frozenset(names), is_node_gone=False)
    text = f"{effect.listed(names)} drained: {fate_of(gone)}"
    return Effect(
        [*edits, *gone.edits],
        f"{text}; disruption budgets are not waited for, DaemonSets stay",
        tuple(gone.lost),
    )


def uncordoned(replica: Replica, change: changes.Uncordon) -> Effect:
    """Nodes that take pods again."""
    selected = node_selection.selected(replica, change.nodes)
    if not any(node.spec.unschedulable for node in selected):
        raise errors.InputError(f"{_listed(selected)}: not cordoned")
    edits = [_unschedulable(replica, node, is_on=False) for node in selected]
    names = [node.metadata.name for node in selected]
    return Effect(edits, f"{effect.listed(names)} can take pods again")


def offer_of(replica: Replica, name: str) -> str:
    """What a node offers, for people: `8 x H100 80GB HBM3`."""
    type_ = node_selection.gpu_type(replica.world, name)
    if type_ == node_selection.NO_GPUS:
        return type_
    count = gpu_count(replica, name)
    return f"{count} x {type_}" if count else type_


def gpu_count(replica: Replica, name: str) -> int:
    """How many physical GPUs a node has: by its devices, else by its labels or a device plugin's count."""
    ledger = gpu_ledger.Ledger()
    milli = sum(ledger.whole_milli_gpu(pool.devices) for pool in replica.world.view(name).pools)
    if milli:
        return milli // gpu_ledger.WHOLE
    node = replica.world.nodes[name]
    labelled = node_pools.pool_of(node).gpu_count
    return labelled or node_pools.plugin_gpus(node).get(node_pools.GPU_RESOURCE, 0)


def _built(replica: Replica, wanted: str, count: int, build: BuildMachine) -> Effect:
    board = node_selection.board_named(wanted)
    edits: list[Edit] = []
    offers: list[str] = []
    for name in _new_names(replica, board.name.lower(), count):
        for stored in build(board, name):
            edits.append(effect.created(stored.struct))
            if isinstance(stored.struct, nodes.Node):
                offers.append(node_pools.pool_of(stored.struct).offer)
    text = f"{effect.counted(count, 'node')} of the catalogue ({offers[0]}, empty)"
    return Effect(edits, f"{text}: the cluster has none with {board.name}")


def _new_names(replica: Replica, base: str, count: int) -> Iterator[str]:
    number = 0
    while count:
        number += 1
        name = f"{base}-added-{number}"
        if name not in replica.world.nodes:
            count -= 1
            yield name


def _copy(replica: Replica, model: nodes.Node, name: str) -> Iterator[Edit]:
    """A node like the model, and slices like those of its own devices."""
    old = model.metadata.name
    stored = replica.get(_key_of(model))
    assert stored is not None, "a node of the World that was never stored"
    labels = {key: name if value == old else value for key, value in model.metadata.labels.items()}
    taints = tuple(taint for taint in model.spec.taints if not taint.key.startswith(PASSING_TAINTS))
    spec = nodes.NodeSpec(taints=taints)
    status = msgspec.structs.replace(model.status, volumes_in_use=(), volumes_attached=())
    metadata = meta.ObjectMeta(
        name=name, labels=labels, annotations=model.metadata.annotations, uid=f"node-{name}"
    )
    fresh = msgspec.structs.replace(model, metadata=metadata, spec=spec, status=status)
    yield effect.created(fresh)
    for part in _slices_of(replica, frozenset({old})):
        assert isinstance(part.struct, slices.ResourceSlice)
        yield effect.created(_slice_for(part.struct, old, name))


def _slice_for(part: slices.ResourceSlice, old: str, name: str) -> slices.ResourceSlice:
    """The slice of the same devices on another node. A pool named after its node is named after the new one."""
    pool_name = part.spec.pool.name
    pool_name = pool_name.replace(old, name) if old in pool_name else f"{pool_name}-{name}"
    pool = msgspec.structs.replace(part.spec.pool, name=pool_name)
    devices = tuple(_device_for(device, name) for device in part.spec.devices)
    spec = msgspec.structs.replace(part.spec, node_name=name, pool=pool)
    if part.spec.devices:
        spec = msgspec.structs.replace(spec, devices=devices)
    old_name = part.metadata.name
    slice_name = old_name.replace(old, name) if old in old_name else f"{old_name}-{name}"
    metadata = meta.ObjectMeta(name=slice_name, uid=f"slice-{slice_name}")
    return msgspec.structs.replace(part, metadata=metadata, spec=spec)


def _device_for(device: slices.Device, node: str) -> slices.Device:
    """The device with identities of its own, and without the taints of the other one."""
    attributes = {
        key: _identity(value, node) if key.rpartition("/")[2] in IDENTITIES else value
        for key, value in device.attributes.items()
    }
    return msgspec.structs.replace(device, attributes=attributes, taints=())


def _identity(value: slices.DeviceAttribute, node: str) -> slices.DeviceAttribute:
    text = value.string_value
    if text is None:
        return value
    tail = hashlib.sha256(f"{text}/{node}".encode()).hexdigest()[:12]
    is_uuid = _UUID_TAIL.search(text) is not None
    return slices.DeviceAttribute(
        string_value=_UUID_TAIL.sub(tail, text) if is_uuid else f"{text}-{tail[:6]}"
    )


def _slices_of(replica: Replica, names: frozenset[str]) -> Iterator[codec.Stored]:
    for stored in list(replica.listed(registry.SLICE.unique_name)):
        part = stored.struct
        if isinstance(part, slices.ResourceSlice) and part.spec.node_name in names:
            yield stored


def _unschedulable(replica: Replica, node: nodes.Node, *, is_on: bool) -> Edit:
    stored = replica.get(_key_of(node))
    assert stored is not None, "a node of the World that was never stored"
    spec = msgspec.structs.replace(
        node.spec,
        unschedulable=is_on,
        taints=tuple(
            taint for taint in node.spec.taints if taint.key != f"{PASSING_TAINTS}unschedulable"
        ),
    )
    return effect.changed(stored, msgspec.structs.replace(node, spec=spec))


def _key_of(node: nodes.Node) -> object_set.Key:
    return object_set.Key(registry.NODE.unique_name, "", node.metadata.name)


def _listed(selected: Sequence[nodes.Node]) -> str:
    return effect.listed([node.metadata.name for node in selected])


def _where(model: nodes.Node) -> str:
    places = [
        f"{word} {value}"
        for word in PLACES
        for key, value in sorted(model.metadata.labels.items())
        if key.rpartition("/")[2] == word
    ]
    return f" ({', '.join(places)})" if places else ""


def fate_of(gone: displaced_pods.Displaced) -> str:
    """What happens to the pods that were there."""
    if not gone.again and not gone.lost:
        return "no pods ran there"
    parts = []
    if gone.again:
        number = effect.counted(len(gone.again), "pod")
        verb = "is" if len(gone.again) == 1 else "are"
        parts.append(
            f"{number} {verb} created again by the owner and wait{'s' if verb == 'is' else ''}"
        )
    if gone.lost:
        number = effect.counted(len(gone.lost), "bare pod")
        verb = "is" if len(gone.lost) == 1 else "are"
        parts.append(f"{number} {verb} lost ({effect.listed(gone.lost)})")
    return ", ".join(parts)
