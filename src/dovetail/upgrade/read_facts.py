"""Reads the facts of an upgrade off the objects of a cluster: nodes with their fences, and the pods that have to leave.

Given objects that were read at one time. Which pods of a gang go together is judged as the scheduler does: all of it,
unless it can do without those on the node. Disruption budgets are counted from pod to pod. Never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dovetail import timestamps
from dovetail.answer.drain import disruption_account, drain_filters, pod_details, unrequested_gpus
from dovetail.answer.rollout import rollout_policy, rollout_units
from dovetail.answer.stack import node_stack
from dovetail.answer.what_if import node_selection
from dovetail.kubetypes import codec, label_selectors, object_set, registry
from dovetail.kubetypes.core import disruption_budgets, nodes, pods
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, Phase, StackUpgrade
from dovetail.kubetypes.resource import slices, taint_rules
from dovetail.model import gangs, node_annotations, workload_annotations
from dovetail.schedule.gang import jobs
from dovetail.upgrade.adapters import fence_toleration, node_facts
from dovetail.upgrade.machine import upgrade_machine
from dovetail.upgrade.machine.cluster_facts import Facts, NodeView, PodView, Pool, Xid
from dovetail.world import events
from dovetail.world.devices import gpu_ledger
from dovetail.world.owners import facts_of_objects
from dovetail.world.world import World

FENCE: Final = fence_toleration.FENCE  # taint on nodes and devices, label of rules
NODE: Final = "dovetail.dev/node"  # annotation of a rule: the node that it fences
SIGNAL: Final = "dovetail.dev/checkpoint-requested"  # annotation of a pod: when it was asked
XID: Final = "gpu.nvidia.com/xid"  # device taint of our node agent and of NVIDIA's driver
_POD: Final = registry.POD.unique_name


def facts_of(
    objects: object_set.ObjectSet,
    upgrade: StackUpgrade,
    *,
    has_rules: bool,
    now: datetime.datetime,
) -> Facts:
    """The facts. Linear in nodes, pods and devices."""
    world = facts_of_objects.world_of(objects)
    draining = {node.name for node in upgrade.status.nodes if node.phase is NodePhase.DRAINING}
    return Facts(
        nodes=_nodes(world, objects, upgrade),
        pods=_PodReader(world, objects, upgrade, now).views(draining),
        active=_active(objects, upgrade),
        has_rules=has_rules,
    )


def upgrades_of(objects: object_set.ObjectSet) -> list[StackUpgrade]:
    """The upgrades, the oldest first."""
    stored = objects.listed(registry.STACK_UPGRADE.unique_name)
    known = [each.struct for each in stored if isinstance(each.struct, StackUpgrade)]
    return sorted(known, key=_age)


def _age(upgrade: StackUpgrade) -> tuple[str, str]:
    return (upgrade.metadata.creation_timestamp or "", upgrade.metadata.name)


def _active(objects: object_set.ObjectSet, upgrade: StackUpgrade) -> str:
    """The upgrade that goes before this one: one under way, else an older one that waits."""
    others = [
        each
        for each in upgrades_of(objects)
        if each.metadata.name != upgrade.metadata.name
        and each.status.phase not in upgrade_machine.ENDED
    ]
    begun = [each for each in others if each.status.phase is not Phase.PENDING]
    older = [each for each in others if _age(each) < _age(upgrade) and not each.spec.paused]
    return next((each.metadata.name for each in (*begun, *older)), "")


# Nodes


def _nodes(
    world: World, objects: object_set.ObjectSet, upgrade: StackUpgrade
) -> Mapping[str, NodeView]:
    tests = label_selectors.tests_of(upgrade.spec.node_selector)
    only_gpus = rollout_policy.GPU_PARTS.issuperset(upgrade.spec.to)
    units = _units(world, upgrade.spec.waves.together)
    pools = _pools(objects)
    rules = _rules(objects)
    of_nodes = _pods_by_node(world)
    mig = upgrade.spec.mig
    partitioned = None if mig is None else frozenset(each.node for each in mig.nodes)
    views: dict[str, NodeView] = {}
    for name, node in world.nodes.items():
        has_gpus = node_selection.gpu_type(world, name) != node_selection.NO_GPUS
        selector = upgrade.spec.node_selector
        is_chosen = selector is None or label_selectors.passes(tests, node.metadata.labels)
        if partitioned is not None:
            is_chosen = is_chosen and name in partitioned
        of_node = pools.get(name, {})
        fenced = rules.get(name, {})
        views[name] = NodeView(
            name=name,
            fence=_fence(node),
            marks=frozenset(filter(None, (_tainted_by(node), _cordoned_by(node)))),
            needs_cordon=bool(_cordoned_by(node)) or fence_toleration.kept_away(of_nodes[name]),
            rules=frozenset(fenced),
            covered=frozenset(each for each, at in fenced.items() if at.issuperset(of_node)),
            pools=tuple(sorted(of_node)),
            is_unavailable=node.spec.unschedulable or not node_facts.is_ready(node),
            is_selected=is_chosen and (has_gpus or not only_gpus),
            unit=units.get(name, ""),
            versions=_versions(world, node, upgrade),
            xids=tuple(xid for found in of_node.values() for xid in found),
        )
    return views


def _versions(world: World, node: nodes.Node, upgrade: StackUpgrade) -> dict[str, str]:
    """What the node has of what the upgrade changes, as far as that is known."""
    if upgrade.spec.mig is not None:
        config = node.metadata.labels.get(node_stack.MIG_CONFIG, "")
        return {stack_upgrades.MIG_CONFIG: config} if config else {}
    loaded = rollout_units.loaded_driver(world, node.metadata.name)
    return {"driver": loaded} if loaded else {}


def _fence(node: nodes.Node) -> str:
    """The upgrade whose taint or cordon keeps work away; a cordon that a person lifted keeps none away."""
    return _tainted_by(node) or (_cordoned_by(node) if node.spec.unschedulable else "")


def _tainted_by(node: nodes.Node) -> str:
    return next((taint.value for taint in node.spec.taints if taint.key == FENCE), "")


def _cordoned_by(node: nodes.Node) -> str:
    return node.metadata.annotations.get(node_annotations.CORDON, "")


def _pods_by_node(world: World) -> dict[str, list[pods.Pod]]:
    by_node: dict[str, list[pods.Pod]] = {name: [] for name in world.nodes}
    for pod in world.pods.values():
        if pods.occupies_node(pod) and pod.spec.node_name in by_node:
            by_node[pod.spec.node_name].append(pod)
    return by_node


def _units(world: World, together: str) -> dict[str, str]:
    units = rollout_units.units_of(world, world.nodes, together)
    return {name: unit.name for unit in units if len(unit.nodes) > 1 for name in unit.nodes}


def _pools(objects: object_set.ObjectSet) -> dict[str, dict[Pool, list[Xid]]]:
    """The pools of GPUs of each node, with the errors that their devices carry."""
    pools: dict[str, dict[Pool, list[Xid]]] = {}
    for stored in objects.listed(registry.SLICE.unique_name):
        slice_ = stored.struct
        if not isinstance(slice_, slices.ResourceSlice) or not slice_.spec.node_name:
            continue
        if not gpu_ledger.publishes_gpus(slice_.spec.driver):
            continue
        pool = Pool(slice_.spec.driver, slice_.spec.pool.name)
        xids = pools.setdefault(slice_.spec.node_name, {}).setdefault(pool, [])
        xids += _xids(slice_)
    return pools


def _xids(slice_: slices.ResourceSlice) -> Iterator[Xid]:
    taints = [taint for device in slice_.spec.devices for taint in device.taints]
    for taint in taints:
        if taint.key == XID and taint.value.isdecimal():
            yield Xid(int(taint.value), timestamps.parse_or_none(taint.time_added))


def _rules(objects: object_set.ObjectSet) -> dict[str, dict[str, set[Pool]]]:
    """The pools that our rules fence, by node and upgrade."""
    rules: dict[str, dict[str, set[Pool]]] = {}
    for rule in taint_rules_of(objects):
        node = rule.metadata.annotations.get(NODE, "")
        name = rule.metadata.labels.get(FENCE, "")
        selector = rule.spec.device_selector
        if node and name and selector is not None:
            pool = Pool(selector.driver or "", selector.pool or "")
            rules.setdefault(node, {}).setdefault(name, set()).add(pool)
    return rules


def taint_rules_of(objects: object_set.ObjectSet) -> list[taint_rules.DeviceTaintRule]:
    """All device taint rules."""
    stored = objects.listed(registry.TAINT_RULE.unique_name)
    return [each.struct for each in stored if isinstance(each.struct, taint_rules.DeviceTaintRule)]


# Pods


class _PodReader:
    """Reads the pods that have to leave."""

    def __init__(
        self,
        world: World,
        objects: object_set.ObjectSet,
        upgrade: StackUpgrade,
        now: datetime.datetime,
    ) -> None:
        drain = upgrade.spec.drain
        options = drain_filters.Options(
            force=drain.force,
            ignore_daemon_sets=True,
            delete_empty_dir_data=drain.delete_empty_dir_data,
        )
        self._world = world
        self._filters = drain_filters.DrainFilters(options, drain_filters.DaemonSets(None), now)
        self._only_gpus = rollout_policy.GPU_PARTS.issuperset(upgrade.spec.to)
        self._leaving = frozenset(upgrade.status.drain.pods if upgrade.status.drain else ())
        self._documents = {
            events.pod_id(stored.struct): stored
            for stored in objects.listed(_POD)
            if isinstance(stored.struct, pods.Pod)
        }
        budgets = [
            codec.decode_struct(disruption_budgets.PodDisruptionBudget, stored.document)
            for stored in objects.listed(registry.BUDGET.unique_name)
        ]
        self._budgets = budgets
        # By the pods that go together: an account of the budgets looks at every pod.
        self._refusals: dict[tuple[str, ...], str] = {}

    def views(self, draining: Iterable[str]) -> Mapping[str, PodView]:
        """The pods by uid: those on draining nodes, what goes with them, and the gang that is leaving."""
        views: dict[str, PodView] = {}
        by_node = self._by_node()
        for node in sorted(draining):
            concerned = [each for each in by_node.get(node, ()) if self._has_to_leave(each)]
            for pod_id in concerned:
                together = self._together(pod_id, node)
                refusal = self._refusal(together)
                for member in together:
                    view = self._view(member, together, refusal)
                    views.setdefault(view.uid, view)
        for pod_id, pod in self._world.pods.items():
            if pod.metadata.uid in self._leaving and pods.occupies_node(pod):
                views.setdefault(pod.metadata.uid, self._view(pod_id, (pod_id,), ""))
        return views

    def _by_node(self) -> dict[str, list[str]]:
        by_node: dict[str, list[str]] = {}
        for pod_id, pod in self._world.pods.items():
            if pods.occupies_node(pod):
                by_node.setdefault(pod.spec.node_name, []).append(pod_id)
        return by_node

    def _has_to_leave(self, pod_id: str) -> bool:
        return not self._stays(pod_id) or self._holds_gpus(pod_id)

    def _stays(self, pod_id: str) -> bool:
        """Whether no drain concerns it: it belongs to its node, or has no part in what is upgraded."""
        if self._verdict(pod_id).by in drain_filters.BOUND_TO_NODE:
            return True
        pod = self._world.pods[pod_id]
        return self._only_gpus and not unrequested_gpus.requests_gpus(pod, self._world.claims)

    def _holds_gpus(self, pod_id: str) -> bool:
        """Whether it belongs to its node and holds GPUs: then nothing can be installed under it."""
        pod = self._world.pods[pod_id]
        is_bound = self._verdict(pod_id).by in drain_filters.BOUND_TO_NODE
        requests = unrequested_gpus.requests_gpus(pod, self._world.claims)
        return self._only_gpus and is_bound and requests

    def _verdict(self, pod_id: str) -> drain_filters.Verdict:
        pod = self._world.pods[pod_id]
        stored = self._documents.get(pod_id)
        details = pod_details.of(stored) if stored is not None else pod_details.PodDetails()
        return self._filters.verdict(pod, details)

    def _together(self, pod_id: str, node: str) -> tuple[str, ...]:
        """The pods of the gang on this node, or all that are placed where it cannot do without them."""
        member = self._world.gangs.of(pod_id)
        if member is None:
            return (pod_id,)
        definition = self._world.gangs.definition(member.gang)
        members = {
            each: (self._world.pods[each], group)
            for each, group in self._world.gangs.members(member.gang).items()
            if each in self._world.pods
        }
        if len(members) < 2 or definition.is_loose:
            return (pod_id,)
        placed = [each for each, (pod, _) in members.items() if pods.occupies_node(pod)]
        here = [each for each in placed if members[each][0].spec.node_name == node]
        without = {each: entry for each, entry in members.items() if each not in here}
        job = jobs.job_of(definition, without, queue="")
        is_enough = bool(without) and job.is_satisfied(job.root) and not definition.evicts_whole
        return tuple(sorted(here if is_enough else placed))

    def _refusal(self, together: tuple[str, ...]) -> str:
        """Why disruption budgets do not let all of them go."""
        if not self._budgets:
            return ""
        if together not in self._refusals:
            self._refusals[together] = self._asked(together)
        return self._refusals[together]

    def _asked(self, together: tuple[str, ...]) -> str:
        account = disruption_account.Account(self._budgets, self._world.pods.values())
        for pod_id in together:
            refusal = account.evict(self._world.pods[pod_id])
            if refusal is not None:
                return refusal.message
        return ""

    def _view(self, pod_id: str, together: tuple[str, ...], refusal: str) -> PodView:
        pod = self._world.pods[pod_id]
        member = self._world.gangs.of(pod_id) or gangs.lone_membership(pod)
        verdict = self._verdict(pod_id)
        annotations = pod.metadata.annotations
        uids = frozenset(self._world.pods[each].metadata.uid for each in together)
        checkpoint = annotations.get(workload_annotations.LAST_CHECKPOINT)
        return PodView(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            node=pod.spec.node_name,
            gang="/".join(member.gang),
            priority=pod.spec.priority or 0,
            together=uids,
            is_ending=pod.metadata.deletion_timestamp is not None,
            obstacle=drain_filters.HOLDS_GPUS if self._holds_gpus(pod_id) else _obstacle(verdict),
            refusal=refusal,
            checkpoint=timestamps.parse_or_none(checkpoint),
            signal=annotations.get(SIGNAL, ""),
        )


def _obstacle(verdict: drain_filters.Verdict) -> str:
    return "" if verdict.leaves else verdict.message
