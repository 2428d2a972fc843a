"""Carries out instructions of the machine on an API server. Given an API, the object of the upgrade and what was read.

Every write names the version or uid that it was decided on, where it could harm another object otherwise: the taints of
a node are written back with the version that they were read at, so that those of others stay. Never decides.
"""

from __future__ import annotations

import hashlib
from typing import Any, assert_never

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade, StackUpgradeStatus
from dovetail.model import node_annotations
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.upgrade import read_facts
from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.machine import instructions
from dovetail.upgrade.machine.cluster_facts import Facts, Pool
from dovetail.upgrade.validation import validation_facts

Tree = dict[str, Any]
EFFECT = "NoSchedule"
MAX_NAME = 253  # of an object


class InstructionWriter:
    """Writes for one upgrade, after one reading."""

    def __init__(
        self,
        api: apis.Api,
        upgrade: StackUpgrade,
        objects: object_set.ObjectSet,
        facts: Facts,
        *,
        rules: registry.Kind = registry.TAINT_RULE,
    ) -> None:
        self._api = api
        self._upgrade = upgrade
        self._name = upgrade.metadata.name
        self._objects = objects
        self._facts = facts
        self._rules = rules
        self.version = ""  # of the upgrade after our last write to it

    async def write_status(self, status: StackUpgradeStatus) -> None:
        """Writes the status, unless the object has changed since it was read."""
        before = codec.tree_of(self._upgrade).get("status", {})
        tree: Tree = codec.tree_of(status)
        gone: Tree = {key: None for key in before if key not in tree}
        await self._patch_upgrade({"status": tree | gone}, subresource="status")

    async def carry_out(self, order: instructions.Instruction) -> None:
        """Carries out one instruction."""
        match order:
            case instructions.Protect():
                finalizers = [*self._upgrade.metadata.finalizers, stack_upgrades.FINALIZER]
                await self._patch_upgrade({"metadata": {"finalizers": finalizers}})
            case instructions.Release():
                kept = [
                    each
                    for each in self._upgrade.metadata.finalizers
                    if each != stack_upgrades.FINALIZER
                ]
                await self._patch_upgrade({"metadata": {"finalizers": kept}})
            case instructions.Fence():
                await self._fence(order)
            case instructions.Unfence():
                await self._unfence(order)
            case instructions.Signal():
                await self._signal(order)
            case instructions.Evict():
                await self._evict(order)
            case instructions.Install():
                await self._install(order.write)
            case _:
                assert_never(order)

    async def _patch_upgrade(self, patch: Tree, *, subresource: str = "") -> None:
        version = self._upgrade.metadata.resource_version
        metadata = patch.get("metadata", {}) | {"resourceVersion": version}
        target = apis.Target(registry.STACK_UPGRADE, "", self._name, subresource)
        answer = await self._api.patch(target, codec.encode_tree(patch | {"metadata": metadata}))
        self.version = codec.decode_struct(codec.Generic, answer).metadata.resource_version

    # Fences

    async def _fence(self, order: instructions.Fence) -> None:
        """The rules first: a taint that stands means that the fence is whole."""
        standing = {rule.metadata.name for rule in read_facts.taint_rules_of(self._objects)}
        if self._facts.has_rules:
            for number, pool in enumerate(order.pools):
                if rule_name(self._name, order.node, number) not in standing:
                    await self._create_rule(order.node, number, pool)
        if self._facts.nodes[order.node].fence == self._name:
            return
        node = self._node(order.node)
        annotations: dict[str, str | None] = {}
        before = validation_facts.of_node(self._objects, order.node)
        if before is not None and node_annotations.BASELINE not in node.metadata.annotations:
            baseline = validation_facts.recorded(before)
            annotations[node_annotations.BASELINE] = validation_facts.encoded(baseline)
        if not order.is_cordon:
            ours = nodes.Taint(key=read_facts.FENCE, value=self._name, effect=EFFECT)
            kept = [taint for taint in node.spec.taints if taint.key != read_facts.FENCE]
            await self._patch_node(node, annotations, taints=[*kept, ours])
            return
        if node.metadata.annotations.get(node_annotations.CORDON) != self._name:
            annotations[node_annotations.WAS_CORDONED] = "true" if node.spec.unschedulable else None
        annotations[node_annotations.CORDON] = self._name
        await self._patch_node(node, annotations, is_cordoned=True)

    async def _create_rule(self, node: str, number: int, pool: Pool) -> None:
        rule: Tree = {
            "apiVersion": self._rules.api_version,
            "kind": self._rules.name,
            "metadata": {
                "name": rule_name(self._name, node, number),
                "labels": {read_facts.FENCE: self._name},
                "annotations": {read_facts.NODE: node},
            },
            "spec": {
                "deviceSelector": {"driver": pool.driver, "pool": pool.name},
                "taint": {"key": read_facts.FENCE, "value": self._name, "effect": EFFECT},
            },
        }
        try:
            await self._api.create(apis.Target(self._rules), codec.encode_tree(rule))
        except failures.AlreadyThere:
            return

    async def _unfence(self, order: instructions.Unfence) -> None:
        for rule in read_facts.taint_rules_of(self._objects):
            is_ours = rule.metadata.labels.get(read_facts.FENCE) == self._name
            if is_ours and rule.metadata.annotations.get(read_facts.NODE) == order.node:
                await self._delete_rule(rule.metadata.name, rule.metadata.uid)
        node = self._node(order.node)
        kept = [taint for taint in node.spec.taints if not self._is_ours(taint)]
        annotations: dict[str, str | None] = {node_annotations.BASELINE: None}
        noted = node.metadata.annotations
        if noted.get(node_annotations.CORDON) == self._name:
            # A cordon that stood before is not ours to lift.
            is_left = node.spec.unschedulable and node_annotations.WAS_CORDONED in noted
            annotations[node_annotations.CORDON] = None
            annotations[node_annotations.WAS_CORDONED] = None
            await self._patch_node(node, annotations, taints=kept, is_cordoned=is_left)
        elif len(kept) < len(node.spec.taints):
            await self._patch_node(node, annotations, taints=kept)

    async def _delete_rule(self, name: str, uid: str) -> None:
        try:
            await self._api.delete(apis.Target(self._rules, "", name), uid=uid)
        except failures.Missing:
            return

    def _is_ours(self, taint: nodes.Taint) -> bool:
        return taint.key == read_facts.FENCE and taint.value == self._name

    async def _patch_node(
        self,
        node: nodes.Node,
        annotations: dict[str, str | None],
        *,
        taints: list[nodes.Taint] | None = None,
        is_cordoned: bool | None = None,
    ) -> None:
        """Writes these; None leaves taints, or the cordon, as they are."""
        spec: Tree = {}
        if taints is not None:
            spec["taints"] = [codec.tree_of(taint) for taint in taints] or None
        if is_cordoned is not None:
            spec["unschedulable"] = is_cordoned or None
        version = node.metadata.resource_version
        metadata = {"resourceVersion": version, "annotations": annotations}
        patch = {"metadata": metadata, "spec": spec}
        target = apis.Target(registry.NODE, "", node.metadata.name)
        await self._api.patch(target, codec.encode_tree(patch), brief=True)

    def _node(self, name: str) -> nodes.Node:
        stored = self._objects.get(object_set.Key(registry.NODE.unique_name, "", name))
        if stored is None or not isinstance(stored.struct, nodes.Node):
            raise failures.Missing(f"node {name} is gone")
        return stored.struct

    # Pods and installers

    async def _signal(self, order: instructions.Signal) -> None:
        pod = self._facts.pods[order.uid]
        metadata = {"uid": order.uid, "annotations": {read_facts.SIGNAL: order.at}}
        target = apis.Target(registry.POD, pod.namespace, pod.name)
        await self._api.patch(target, codec.encode_tree({"metadata": metadata}), brief=True)

    async def _evict(self, order: instructions.Evict) -> None:
        pod = self._facts.pods[order.uid]
        target = apis.Target(registry.POD, pod.namespace, pod.name)
        try:
            await self._api.evict(target, uid=order.uid, grace_seconds=order.grace_seconds)
        except failures.Missing:
            return

    async def _install(self, write: adapter.Write) -> None:
        match write:
            case adapter.NodePatch():
                metadata = {"labels": write.labels, "annotations": write.annotations}
                target = apis.Target(registry.NODE, "", write.node)
                body = codec.encode_tree({"metadata": metadata})
                await self._api.patch(target, body, brief=True)
            case adapter.ObjectPatch():
                target = apis.Target(write.kind, write.namespace, write.name)
                await self._api.patch(target, codec.encode_tree(write.patch), brief=True)
            case adapter.PodDelete():
                target = apis.Target(registry.POD, write.namespace, write.name)
                try:
                    await self._api.delete(target, uid=write.uid)
                except failures.Missing:
                    return
            case _:
                assert_never(write)


def rule_name(upgrade: str, node: str, number: int) -> str:
    """The same name each time, so that a rule is created once."""
    name = f"stack-upgrade.{upgrade}.{node}.{number}"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(digest) - 1].rstrip('.-')}.{digest}"
