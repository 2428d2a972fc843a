"""Tells one story to two schedulers, ours and upstream's filter plugins, and lists what they disagree about.

Both see the same objects and the same changes in the same order. Of every pod both say, node by node, whether it may
run there; ours also says where it goes, and there it runs for both from then on. Never decides who is right.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.model import plan, policy
from dovetail.schedule import decide as cycle
from dovetail.schedule import pod_order
from dovetail.world.events import Changed, Deleted, pod_id
from dovetail.world.world import World
from tests.generators import constraints, constraints_nodes, constraints_pods, constraints_volumes
from tests.support.oracle import Oracle

Tree = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name

FILTERING: Final = (policy.Step.ALLOCATE,)  # the oracle evicts no pod
PLUGINS: Final = {  # what a kind of constraint is refused by upstream
    "node selector": ("NodeAffinity",),
    "node affinity": ("NodeAffinity",),
    "toleration": ("TaintToleration",),
    "pod affinity": ("InterPodAffinity",),
    "pod anti-affinity": ("InterPodAffinity",),
    "topology spread": ("PodTopologySpread",),
    "host port": ("NodePorts",),
    "declared feature": ("NodeDeclaredFeatures",),
    "volume claim": ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"),
    "ephemeral volume": ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"),
    "inline disk": ("VolumeRestrictions",),
    "init container": ("NodeResourcesFit",),
    "sidecar": ("NodeResourcesFit",),
    "overhead": ("NodeResourcesFit",),
    "pod-level resources": ("NodeResourcesFit",),
    "resources": ("NodeResourcesFit",),
    "extended resource": ("NodeResourcesFit",),
}


class Disagreement(NamedTuple):
    """One pod the two see differently, with the cluster as it was then."""

    why: str
    node: str
    ours: str
    theirs: str
    pod: Tree
    objects: list[Tree]


class Tally:
    """What was compared."""

    def __init__(self) -> None:
        self.pods = 0
        self.placed = 0
        self.nodes_asked = 0
        self.refused_by_the_api = 0
        self.refusals: collections.Counter[str] = (
            collections.Counter()
        )  # nodes, by upstream's plugin
        self.carried: collections.Counter[str] = (
            collections.Counter()
        )  # pods, by kind of constraint
        self.refused: collections.Counter[str] = (
            collections.Counter()
        )  # pods whose constraint kept them off a node
        self.disagreements: list[Disagreement] = []


class Verdicts(NamedTuple):
    """What both say of one pod: per node why not, None where it may run."""

    ours: dict[str, str | None]
    theirs: dict[str, str | None]
    plugins: dict[str, str]  # of upstream's refusals
    plan: plan.Plan
    afresh: plan.Plan  # without anything remembered


def admit(oracle: Oracle) -> constraints.Admit:
    """Asks the API server's own code what it would store of pods."""

    def admitted(written: list[Tree]) -> list[Tree | None]:
        answer = oracle.ask({"op": "admit", "pods": written})
        assert "failure" not in answer, answer
        pairs = zip(written, answer["specs"], strict=True)
        return [None if spec is None else {**one, "spec": spec} for one, spec in pairs]

    return admitted


def tell(story: constraints.Story, oracle: Oracle, tally: Tally) -> None:
    """The whole story, every pod compared."""
    both = Both(oracle, story.objects)
    tally.refused_by_the_api += story.refused
    for step in story.steps:
        both.change(step.changed, step.gone)
        if step.pod is not None:
            compare(both, step.pod, tally)


def compare(both: Both, pod: Tree, tally: Tally) -> None:
    """Asks both about a pod, counts, and lets it run where ours puts it."""
    messages = both.judge(pod)
    tally.pods += 1
    tally.nodes_asked += len(messages.theirs)
    tally.refusals.update(messages.plugins.values())
    kinds = constraints_pods.kinds_of(pod)
    tally.carried.update(kinds)
    refusing = set(messages.plugins.values())
    tally.refused.update(
        kind for kind in kinds if refusing & set(PLUGINS.get(kind.partition(":")[0], ()))
    )
    for why, node, ours, theirs in disagreements(messages):
        tally.disagreements.append(Disagreement(why, node, ours, theirs, pod, both.picture()))
    for placement in messages.plan.placements:
        tally.placed += 1
        both.bind(pod, placement)


def disagreements(verdicts: Verdicts) -> Iterable[tuple[str, str, str, str]]:
    """Nodes only one side would use, and a choice upstream would not make."""
    for node, theirs in verdicts.theirs.items():
        ours = verdicts.ours[node]
        if (ours is None) != (theirs is None):
            why = (
                f"we accept, {verdicts.plugins[node]} refuses"
                if ours is None
                else "we refuse, upstream accepts"
            )
            yield why, node, str(ours), str(theirs)
    if verdicts.plan != verdicts.afresh:
        yield "what we remember changes the plan", "", str(verdicts.afresh), str(verdicts.plan)
    chosen = [placement.node for placement in verdicts.plan.placements]
    if any(verdicts.theirs[node] is not None for node in chosen):
        yield (
            "we place where upstream refuses",
            chosen[0],
            "placed",
            str(verdicts.theirs[chosen[0]]),
        )
    if not chosen and any(theirs is None for theirs in verdicts.theirs.values()):
        fits = next(node for node, theirs in verdicts.theirs.items() if theirs is None)
        yield (
            "we place nowhere, upstream could",
            fits,
            verdicts.plan.refusals[0].summary,
            "accepted",
        )


def tell_at_once(story: constraints.Story, oracle: Oracle, tally: Tally) -> None:
    """All pods between two changes in one decision: what it assumes of the first ones is true of the later ones."""
    both = Both(oracle, story.objects)
    tally.refused_by_the_api += story.refused
    waiting: list[Tree] = []
    for step in (*story.steps, constraints.Step()):
        if step.changed or step.gone or step.pod is None:
            compare_together(both, waiting, tally)
            waiting = []
        both.change(step.changed, step.gone)
        if step.pod is not None:
            waiting.append(step.pod)


def compare_together(both: Both, waiting: list[Tree], tally: Tally) -> None:
    """One decision about several pods, followed by upstream in the order in which they chose."""
    by_id = {pod["metadata"]["uid"]: pod for pod in waiting}
    decided = both.decide(waiting)
    placed = {item.pod.uid: item for item in decided.placements}
    for struct in pod_order.waiting([_struct(pod) for pod in waiting]):
        pod, placement = by_id[struct.metadata.uid], placed.get(struct.metadata.uid)
        theirs, plugins = both.upstream(pod)
        tally.pods += 1
        tally.nodes_asked += len(theirs)
        tally.refusals.update(plugins.values())
        if placement is None:
            fits = [node for node, why in theirs.items() if why is None]
            if fits:
                why = next(
                    refusal.summary
                    for refusal in decided.refusals
                    if refusal.pod.uid == struct.metadata.uid
                )
                result = ("we place nowhere, upstream could", fits[0], why, "accepted")
                tally.disagreements.append(Disagreement(*result, pod, both.picture()))
            continue
        tally.placed += 1
        if theirs[placement.node] is not None:
            result = (
                "we place where upstream refuses",
                placement.node,
                "placed",
                str(theirs[placement.node]),
            )
            tally.disagreements.append(Disagreement(*result, pod, both.picture()))
        both.assume(pod, placement)
    for item in decided.placements:
        both.bind(by_id[item.pod.uid], item)


class Both:
    """One cluster as both schedulers know it."""

    def __init__(self, oracle: Oracle, begin: Iterable[Tree]) -> None:
        self._oracle = oracle
        self._world = World()
        self._known: dict[Key, Tree] = {}
        result = list(begin)
        self._learn(result)
        self._asked({"op": "filters", "objects": result})

    def change(self, changed: Iterable[Tree], gone: Iterable[Tree] = ()) -> None:
        """Something happened. A pod that is gone already stays gone."""
        there = [
            item
            for item in changed
            if item["kind"] != "Pod" or _key(item) in self._known or not _is_bound(item)
        ]
        left = [tree for tree in gone if _key(tree) in self._known]
        if not there and not left:
            return
        self._learn(there)
        for tree in left:
            del self._known[_key(tree)]
            self._world.apply(Deleted(_struct(tree)))
        self._asked({"op": "filters", "changed": there, "gone": left})

    def judge(self, pod: Tree) -> Verdicts:
        """Both asked about a pod, which is not there before and not after."""
        theirs, plugins = self.upstream(pod)
        struct = _struct(pod)
        self._world.apply(Changed(struct))
        decided = cycle.decide(self._world, policy.Policy(steps=FILTERING), among=[pod_id(struct)])
        afresh = cycle.decide(
            self._world, policy.Policy(memo=False, steps=FILTERING), among=[pod_id(struct)]
        )
        ours = {node: self._alone(struct, node) for node in theirs}
        self._world.apply(Deleted(struct))
        return Verdicts(ours, theirs, plugins, decided, afresh)

    def upstream(self, pod: Tree) -> tuple[dict[str, str | None], dict[str, str]]:
        """What upstream says of each node, and which plugin says no."""
        answer = self._asked({"op": "filters", "pod": pod})
        refused = answer["refused"]
        theirs: dict[str, str | None] = dict.fromkeys(answer["accepted"])
        theirs |= {
            node: f"{one['plugin']}: {'; '.join(one['reasons'] or ())}"
            for node, one in refused.items()
        }
        return theirs, {node: one["plugin"] for node, one in refused.items()}

    def decide(self, waiting: list[Tree]) -> plan.Plan:
        """Ours about several pods at once."""
        structs = [_struct(pod) for pod in waiting]
        for struct in structs:
            self._world.apply(Changed(struct))
        decided = cycle.decide(
            self._world,
            policy.Policy(steps=FILTERING),
            among=[pod_id(struct) for struct in structs],
        )
        for struct in structs:
            self._world.apply(Deleted(struct))
        return decided

    def assume(self, pod: Tree, placement: plan.Placement) -> None:
        """Upstream takes a placement for granted: the volumes are chosen, not bound."""
        changed = [self._assumed_volume(step, placement.node) for step in placement.volumes]
        self._asked({"op": "filters", "changed": [*changed, _running(pod, placement.node)]})

    def bind(self, pod: Tree, placement: plan.Placement) -> None:
        """The pod runs, and its volumes are as a controller leaves them."""
        for step in placement.volumes:
            self._happens(self._bound_volume(step, placement.node))
        self.run(pod, placement.node)

    def run(self, pod: Tree, node: str) -> None:
        """The pod runs on the node, whichever side put it there."""
        self._happens([_running(pod, node)])

    def forget(self, trees: Iterable[Tree]) -> None:
        """Our side alone loses sight of objects."""
        for tree in trees:
            self._world.apply(Deleted(_struct(tree)))

    def picture(self) -> list[Tree]:
        """Everything that is there."""
        return list(self._known.values())

    def _alone(self, pod: pods.Pod, node: str) -> str | None:
        """Why the pod cannot run on the node, where all other nodes are not ours. Nodes without a mark are not ours."""
        if constraints_nodes.OWN not in self._known["Node", "", node]["metadata"].get("labels", {}):
            return "not asked"
        only = policy.Policy(
            ownership=policy.Ownership(node_labels={constraints_nodes.OWN: node}), steps=FILTERING
        )
        decided = cycle.decide(self._world, only, among=[pod_id(pod)])
        return None if decided.placements else decided.refusals[0].summary

    def _happens(self, changed: list[Tree]) -> None:
        self._learn(changed)
        self._asked({"op": "filters", "changed": changed})

    def _learn(self, trees: Iterable[Tree]) -> None:
        for tree in trees:
            self._known[_key(tree)] = tree
            self._world.apply(Changed(_struct(tree)))

    def _bound_volume(self, step: plan.VolumeStep, node: str) -> list[Tree]:
        claim = self._known["PersistentVolumeClaim", step.claim.namespace, step.claim.name]
        if step.volume:
            volume = self._known["PersistentVolume", "", step.volume]
        else:
            volume = self._provisioned(claim, node)
        return constraints_volumes.bound_together(claim, volume)

    def _assumed_volume(self, step: plan.VolumeStep, node: str) -> Tree:
        claim = self._known["PersistentVolumeClaim", step.claim.namespace, step.claim.name]
        if step.volume:
            return constraints_volumes.promised(
                self._known["PersistentVolume", "", step.volume], claim
            )
        return constraints_volumes.destined(claim, node)

    def _provisioned(self, claim: Tree, node: str) -> Tree:
        class_ = self._known["StorageClass", "", claim["spec"]["storageClassName"]]
        return constraints_volumes.provisioned(claim, class_, self._known["Node", "", node])

    def _asked(self, request: Tree) -> Tree:
        answer = self._oracle.ask(request)
        assert "failure" not in answer, answer["failure"]
        return answer


def _running(pod: Tree, node: str) -> Tree:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _struct(tree: Tree) -> Any:
    return codec.decode(tree).struct


def _key(tree: Tree) -> Key:
    return tree["kind"], tree["metadata"].get("namespace", ""), tree["metadata"]["name"]


def _is_bound(pod: Tree) -> bool:
    return bool(pod["spec"].get("nodeName"))
