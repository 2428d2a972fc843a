"""Finds the nodes a change names: by name, by GPU type, or by a label such as rack or pool.

Given a replica. A type may be written short (`h100`) if only one type of the cluster fits it. Where only so many nodes
of a selection are wanted, those with the fewest GPUs in use come first. Never changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dovetail import errors, gpus
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import changes, near_names
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

NO_GPUS: Final = "no GPUs"
_WORDS: Final = re.compile(r"[a-z0-9]+")
_NUMBERS: Final = re.compile(r"([0-9]+)")


def selected(replica: Replica, selection: changes.Selection) -> list[nodes.Node]:
    """The nodes, by name. Raises InputError where there are none, or fewer than the selection counts."""
    world = replica.world
    match selection.kind:
        case changes.NODE:
            matches = [_node(world, selection.name)]
        case changes.TYPE:
            matches = _of_type(world, selection.name)
        case label:
            matches = _labelled(world, label, selection.name)
    if selection.count is None:
        return matches
    if selection.count > len(matches):
        raise errors.InputError(
            f"the cluster has {len(matches)} such nodes, {selection.count} were asked for"
        )
    ledger = gpu_ledger.Ledger()
    matches.sort(key=lambda node: (_used(world, ledger, node), natural(node.metadata.name)))
    return sorted(matches[: selection.count], key=lambda node: natural(node.metadata.name))


def gpu_type(world: World, name: str) -> str:
    """The GPUs of a node as people write them: H100 80GB HBM3; `no GPUs` where it has none."""
    for pool in world.view(name).pools:
        if not gpu_ledger.publishes_gpus(pool.driver):
            continue
        column = pool.devices.column("productName")
        for value in column or ():
            if value is not None and value.string_value:
                return _short(value.string_value)
    node = world.nodes[name]
    accelerator = node_pools.pool_of(node).accelerator
    if accelerator:
        return _short(accelerator)
    return "GPU" if node_pools.plugin_gpus(node) else NO_GPUS


def fits(wanted: str, type_: str) -> bool:
    """Whether a type may be called so: all words of the short name are words of the type or of its board's name."""
    board = board_of(type_)
    known = set(_words(type_)) | (set(_words(board.name)) if board is not None else set())
    wanted_words = _words(wanted)
    return bool(wanted_words) and known.issuperset(wanted_words)


def board_of(type_: str) -> gpus.Gpu | None:
    """The board of the catalogue behind a type, by what its driver reports."""
    slug = _words(type_)
    for board in gpus.all_gpus():
        others = board.other_products.value if board.other_products is not None else ()
        for product in (board.product.value, *others):
            if _words(_short(product)) == slug:
                return board
    return None


def board_named(wanted: str) -> gpus.Gpu:
    """The one board of the catalogue that may be called so. Raises InputError."""
    exact = gpus.by_name(wanted)
    if exact is not None:
        return exact
    boards = [
        board for board in gpus.all_gpus() if set(_words(board.name)).issuperset(_words(wanted))
    ]
    # Those whose memory is not known cannot be built.
    usable = [board for board in boards if board.memory_bytes is not None] or boards
    if len(usable) == 1:
        return usable[0]
    if usable:
        names = ", ".join(board.name for board in usable)
        raise errors.InputError(f'"{wanted}" may be any of {names}; write which')
    raise near_names.unknown("GPU type", wanted, [board.name for board in gpus.all_gpus()])


def types_of(world: World) -> dict[str, list[str]]:
    """The names of the nodes with GPUs, by type."""
    by_type: dict[str, list[str]] = {}
    for name in sorted(world.nodes, key=natural):
        type_ = gpu_type(world, name)
        if type_ != NO_GPUS:
            by_type.setdefault(type_, []).append(name)
    return by_type


def the_type(wanted: str, types: Iterable[str]) -> str | None:
    """The one type that may be called so; None if none may. Raises InputError where several may."""
    exact = [type_ for type_ in types if _words(type_) == _words(wanted)]
    matches = exact or [type_ for type_ in types if fits(wanted, type_)]
    if len(matches) > 1:
        raise errors.InputError(f'"{wanted}" may be any of {", ".join(matches)}; write which')
    return matches[0] if matches else None


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that reads numbers: gpu-2 before gpu-10."""
    parts = [part for part in _NUMBERS.split(name) if part]
    return [
        (0, len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (1, 0, part)
        for part in parts
    ]


def _node(world: World, name: str) -> nodes.Node:
    node = world.nodes.get(name)
    if node is None:
        raise near_names.unknown("node", name, world.nodes)
    return node


def _of_type(world: World, wanted: str) -> list[nodes.Node]:
    by_type = types_of(world)
    type_ = the_type(wanted, by_type)
    if type_ is None:
        raise near_names.unknown("node with GPUs of type", wanted, by_type)
    return [world.nodes[name] for name in by_type[type_]]


def _labelled(world: World, word: str, value: str) -> list[nodes.Node]:
    """`rack/r1`: a label whose key ends in this word has this value."""
    values: set[str] = set()
    matches: list[nodes.Node] = []
    for node in world.nodes.values():
        for key, label in node.metadata.labels.items():
            if key.rpartition("/")[2] == word:
                values.add(label)
                if label == value:
                    matches.append(node)
                    break
    if not values:
        raise errors.InputError(
            f'no node has a label "{word}"; expected node/NAME, a GPU type, or a label of nodes '
            "such as rack/r1 or pool/h100"
        )
    if not matches:
        raise near_names.unknown(word, value, values)
    return sorted(matches, key=lambda node: natural(node.metadata.name))


def _used(world: World, ledger: gpu_ledger.Ledger, node: nodes.Node) -> int:
    """What is in use there: milli-GPUs of devices, then requests for a device plugin's."""
    name = node.metadata.name
    used = sum(
        ledger.whole_milli_gpu(pool.devices) - ledger.free_milli_gpu(pool)
        for pool in world.view(name).pools
    )
    offered, free = world.offered(name), world.free(name)
    for resource, count in offered.scalars:
        if node_pools.is_gpu_resource(resource):
            used += gpu_ledger.WHOLE * (count - free.scalar(resource))
    return used


def _short(product: str) -> str:
    return product.replace("-", " ").removeprefix("NVIDIA ")


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())
