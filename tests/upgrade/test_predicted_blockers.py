"""What a plan names as a blocker is the work that the lifecycle process then does not evict, no more and no less."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.answer.drain import drain_filters
from dovetail.answer.rollout import rollout, rollout_policy
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus
from dovetail.upgrade import read_facts
from tests.answer.what_if import building
from tests.support import lengths

Tree = dict[str, Any]
NODES = ("a", "b", "c")
SPARE = "spare"  # where lone pods come back
TIMES = rollout_policy.Durations(60, 60, "test")
BUDGETS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"maxUnavailable": 0},
    {"maxUnavailable": 1},
    {"minAvailable": "100%"},
)
WORK = st.fixed_dictionaries(
    {
        "nodes": st.lists(st.sampled_from(NODES), min_size=1, max_size=4),
        "spares": st.integers(0, 2),  # pods that the gang can do without
        "is_gang": st.booleans(),
        "is_managed": st.booleans(),
        "has_volume": st.booleans(),
        "is_of_daemon_set": st.booleans(),
        "has_gpus": st.booleans(),
        "is_even": st.booleans(),  # else only the first pod is bare, or has a volume
        "budgets": st.lists(st.sampled_from(BUDGETS), max_size=2),
    }
)


@settings(max_examples=lengths.length(short=150, full=1500))
@given(
    works=st.lists(WORK, max_size=4),
    chosen=st.sets(st.sampled_from(NODES), min_size=1),
    force=st.booleans(),
    deletes=st.booleans(),
)
def test_the_work_that_a_plan_names_is_the_work_that_stays(
    works: list[Tree], chosen: set[str], force: bool, deletes: bool
) -> None:
    trees = [building.plugin_node(name, gpus=40) for name in (*NODES, SPARE)]
    for number, work in enumerate(works):
        trees += _trees(f"w{number}", work)
    drain = stack_upgrades.DrainPolicy(force=force, delete_empty_dir_data=deletes)
    assert _planned(trees, sorted(chosen), drain) == _kept(trees, sorted(chosen), drain)


def _planned(trees: list[Tree], chosen: list[str], drain: stack_upgrades.DrainPolicy) -> set[str]:
    options = drain_filters.Options(
        force=drain.force,
        ignore_daemon_sets=True,
        delete_empty_dir_data=drain.delete_empty_dir_data,
    )
    policy = rollout_policy.Policy(
        durations=TIMES, max_unavailable="100%", canary=0, drain=options, order="by-name"
    )
    replica = building.replica_of(*trees)
    wish = rollout.Wish({"driver": "580.95.05"}, chosen, (), building.NOW, building.DAY, {})
    plan = rollout.planned(replica, wish, policy, drain_filters.DaemonSets(None))
    return {
        _work_of(subject.partition("/")[2])
        for blocker in plan.blockers
        if blocker.code in ("LocalStorage", "NoController", "DisruptionBudget", "DaemonSet")
        for subject in blocker.subjects
    }


def _kept(trees: list[Tree], chosen: list[str], drain: stack_upgrades.DrainPolicy) -> set[str]:
    draining = tuple(NodeStatus(name=name, phase=NodePhase.DRAINING) for name in chosen)
    upgrade = stack_upgrades.StackUpgrade(
        spec=stack_upgrades.StackUpgradeSpec(to={"driver": "580.95.05"}, drain=drain),
        status=stack_upgrades.StackUpgradeStatus(nodes=draining),
    )
    objects = object_set.of("test", [codec.decode(tree) for tree in trees])
    facts = read_facts.facts_of(objects, upgrade, has_rules=True, now=building.NOW)
    return {
        _work_of(pod.name)
        for pod in facts.pods.values()
        if any(
            facts.pods[uid].obstacle or facts.pods[uid].refusal
            for uid in pod.together
            if uid in facts.pods
        )
    }


def _work_of(pod: str) -> str:
    return pod.partition("-")[0]


def _trees(name: str, work: Tree) -> list[Tree]:
    # An elastic gang with several pods on one node is planned pod by pod, and leaves whole.
    is_elastic = work["is_gang"] and work["spares"]
    nodes = sorted(set(work["nodes"]) if is_elastic else work["nodes"])
    trees = []
    for number, node in enumerate(nodes):
        # Budgets count by controller: over mixed pods they would change while the drain goes on.
        is_odd = number == 0 or work["is_even"] or bool(work["budgets"])
        job = name if work["is_managed"] or not is_odd else ""
        pod = building.pod(f"{name}-{number}", node=node, job=job)
        pod["metadata"]["labels"] |= {"work": name}
        if work["is_gang"]:
            pod["metadata"]["labels"] |= {
                "dovetail.dev/gang": name,
                "dovetail.dev/gang-min": str(max(1, len(nodes) - work["spares"])),
            }
        if work["is_of_daemon_set"] and job and not work["is_gang"]:
            (owner,) = pod["metadata"]["ownerReferences"]
            owner |= {"apiVersion": "apps/v1", "kind": "DaemonSet"}
        if work["has_volume"] and is_odd:
            pod["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
        if not work["has_gpus"]:
            pod["spec"]["containers"][0]["resources"] = {}
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        trees.append(pod)
    for number, spec in enumerate(each for each in work["budgets"] if each is not None):
        metadata = {"namespace": "default", "name": f"{name}-{number}", "generation": 1}
        selector = {"matchLabels": {"work": name}}
        trees.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": metadata,
                "spec": {"selector": selector} | spec,
            }
        )
    return trees
