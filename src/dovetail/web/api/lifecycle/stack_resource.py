"""`GET /stack`: the versions of the GPU stack, nodes of a pool with the same ones together, skew and unknowns named.

The inventory is made of the objects that the user may list, so a fact that only others show is unknown to them, and
`notListed` says which kinds they may not list. Refused to users who may not list nodes.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.answer.stack import stack_inventory
from dovetail.answer.stack.node_stack import NodeStack
from dovetail.answer.stack.stack_facts import Fact
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.tables.stack import inventory_table
from dovetail.web import asked, endpoints
from dovetail.web.api import read_kinds, rights

# Facts of which two nodes of a pool should have the same.
COMPARED: Final = (
    "driver_loaded",
    "driver_desired",
    "cuda",
    "toolkit",
    "runtime",
    "kubelet",
    "kernel",
    "mig_manager",
    "dra_driver",
)
_KINDS: Final = (registry.NODE, registry.POD, registry.SLICE, *gpu_stack_kinds.ALL)


class StackRow(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a pool that have the same stack, and that of the first of them."""

    nodes: tuple[str, ...]
    stack: NodeStack


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of which the nodes of a pool have several values."""

    pool: str
    gpu: str
    fact: str
    values: dict[str, int]  # nodes by value


class StackView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The stack of a cluster in brief."""

    as_of: datetime.datetime
    version: int
    kubernetes: Fact
    operator: Fact
    objects: tuple[stack_inventory.OperatorObject, ...]
    rows: tuple[StackRow, ...]
    skew: tuple[Skew, ...]
    unknown: tuple[stack_inventory.UnknownFact, ...]
    not_listed: tuple[str, ...]  # kinds that the user may not list everywhere
    problems: tuple[str, ...]


def answer(question: asked.Asked, params: endpoints.Nothing) -> StackView:
    """The stack as the user may see it."""
    rights.must_list(question, registry.NODE)
    return question.memo(("stack", question.may), lambda: _made(question))


def _made(question: asked.Asked) -> StackView:
    inventory = stack_inventory.of_nodes(
        _visible(question), server_version=question.view.server_version
    )
    return StackView(
        as_of=question.view.now,
        version=question.version,
        kubernetes=inventory.kubernetes,
        operator=inventory.operator,
        objects=inventory.objects,
        rows=tuple(_row(members) for members in inventory_table.groups(inventory.nodes)),
        skew=tuple(skew_of(inventory.nodes)),
        unknown=inventory.unknown,
        not_listed=tuple(
            kind.plural for kind in _KINDS if not question.may.lists(kind.unique_name)
        ),
        problems=inventory.problems,
    )


def _visible(question: asked.Asked) -> object_set.ObjectSet:
    """The objects of a stack that the user may list."""
    objects, may = question.view.objects, question.may
    if may.sees_everything:
        return objects
    by_kind = {}
    for kind in _KINDS:
        name = kind.unique_name
        table = objects.by_kind.get(name, {})
        by_kind[name] = {
            key: stored for key, stored in table.items() if may.sees(name, key.namespace)
        }
    return msgspec.structs.replace(objects, by_kind=by_kind)


def skew_of(stacks: Iterable[NodeStack]) -> list[Skew]:
    """Facts that differ between nodes with the same GPU in the same pool. What is unknown differs from nothing."""
    pools: dict[tuple[str, str], list[NodeStack]] = {}
    for stack in stacks:
        if stack.has_gpu:
            pools.setdefault((stack.pool, str(stack.gpu)), []).append(stack)
    differing: list[Skew] = []
    for (pool, gpu), members in sorted(pools.items()):
        for name in COMPARED:
            facts: list[Fact] = [getattr(stack, name) for stack in members]
            values = Counter(fact.value for fact in facts if fact.is_known)
            if len(values) > 1:
                ordered = dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
                words = name.replace("_", " ")
                differing.append(Skew(pool=pool, gpu=gpu, fact=words, values=ordered))
    return differing


def _row(members: list[NodeStack]) -> StackRow:
    return StackRow(nodes=tuple(stack.node for stack in members), stack=members[0])


ENDPOINTS = (
    endpoints.Endpoint(
        "/stack",
        endpoints.Nothing,
        StackView,
        answer,
        summary="Versions of the GPU stack",
        reads=(read_kinds.NODES, read_kinds.PODS, read_kinds.SLICES, read_kinds.PLATFORM),
        is_quick=True,
    ),
)
