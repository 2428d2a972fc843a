"""For every small cluster: an answer comes, its verdict is the engine's, its numbers add up, nothing is left behind."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.answer.replica.patches import ObjectRef
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import why
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.why_answer import Why
from dovetail.world import dump
from tests.answer.why import clusters
from tests.answer.why.clusters import claim, device_class, gpus, member, node, pod, taint

Tree = dict[str, Any]
NAMES = "abcd"
LABELS = st.dictionaries(st.sampled_from(("zone", "rack", "tier")), st.sampled_from("xyX"))
TAINTS = st.lists(
    st.builds(
        taint,
        st.sampled_from(("sku", "node.kubernetes.io/not-ready", "team")),
        st.sampled_from(("", "gpu")),
        st.sampled_from(("NoSchedule", "PreferNoSchedule")),
    ),
    max_size=2,
)
SELECTORS = st.sampled_from(
    (
        "",
        f'{clusters.ATTRIBUTES}.architecture == "Hopper"',
        f'{clusters.ATTRIBUTES}.architecture == "hopper"',
        f'{clusters.CAPACITY}.memory.compareTo(quantity("90Gi")) >= 0',
        f'{clusters.ATTRIBUTES}.missing == 1 && device.driver == "{clusters.DRIVER}"',
        "device.nothing",
    )
)
RELATIONS = st.sampled_from(({}, {"podAffinity": 1}, {"podAntiAffinity": 1}))


@st.composite
def nodes(draw: st.DrawFn) -> list[Tree]:
    trees = []
    for name in NAMES[: draw(st.integers(0, 4))]:
        is_plugin = draw(st.booleans())
        trees.append(
            node(
                name,
                draw(st.sampled_from((0, 2, 8))) if is_plugin else 0,
                labels=draw(LABELS),
                taints=draw(TAINTS),
                unschedulable=draw(st.integers(0, 3)) == 0,
            )
        )
        if not is_plugin:
            trees.append(
                gpus(name, draw(st.integers(1, 4)), slices=draw(st.sampled_from((1, 1, 2))))
            )
    return trees


@st.composite
def running(draw: st.DrawFn) -> list[Tree]:
    trees = []
    for number in range(draw(st.integers(0, 4))):
        on = draw(st.sampled_from(NAMES))
        if draw(st.booleans()):
            trees.append(pod(f"r{number}", draw(st.integers(0, 8)), on=on, cpu="20"))
        else:
            device = f"gpu-{draw(st.integers(0, 3))}"
            trees += clusters.holding(f"r{number}", on, device)
    for tree in trees:
        tree["metadata"]["labels"] = draw(st.sampled_from(({}, {"app": "x"})))
    return trees


@st.composite
def waiting(draw: st.DrawFn) -> list[Tree]:
    tree = pod(
        "waits",
        draw(st.sampled_from((0, 1, 8, 16))),
        cpu=draw(st.sampled_from(("1", "50", "100"))),
        nodeSelector=draw(LABELS),
        tolerations=draw(st.sampled_from(([], [{"key": "sku", "operator": "Exists"}]))),
        priority=draw(st.sampled_from((0, 10))),
        preemptionPolicy=draw(st.sampled_from(("PreemptLowerPriority", "Never"))),
    )
    tree["metadata"]["labels"] = draw(st.sampled_from(({}, {"app": "x"})))
    for relation in draw(RELATIONS):
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        tree["spec"]["affinity"] = {relation: required}
    if not draw(st.booleans()):
        return [tree]
    name = draw(st.sampled_from(("c", "c", "missing")))
    tree["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": name}]
    constraints = draw(st.sampled_from(([], [{"matchAttribute": f"{clusters.DRIVER}/root"}])))
    wanted = claim(
        "c",
        draw(st.integers(1, 5)),
        when=draw(SELECTORS),
        class_=draw(st.sampled_from(("gpu", "gpu", "gup"))),
        constraints=constraints,
    )
    return [tree, wanted]


@st.composite
def others(draw: st.DrawFn) -> list[Tree]:
    """Pods that wait, too: ahead of the pod, or its gang."""
    kind = draw(st.sampled_from(("none", "ahead", "gang")))
    if kind == "ahead":
        return [pod("ahead", draw(st.integers(1, 8)), priority=100)]
    if kind == "gang":
        minimum = draw(st.integers(2, 4))
        return [member(f"m{i}", draw(st.sampled_from((1, 8))), minimum=minimum) for i in range(3)]
    return []


CLUSTERS = st.tuples(nodes(), running(), waiting(), others())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CLUSTERS)
def test_the_answer_holds(parts: tuple[list[Tree], ...]) -> None:
    trees = [device_class(), *(tree for part in parts for tree in part)]
    replica = clusters.replica_of(*trees)
    before = dump.dump(replica.world)
    plan = replica.decide()
    starting = {item.pod.name for item in (*plan.placements, *plan.nominations)}
    asked = ["waits", *(tree["metadata"]["name"] for tree in parts[3])]
    for name in asked:
        answer = question(replica, name)
        assert answer.schedulable == (name in starting)
        assert_sound(answer)
    assert dump.dump(replica.world) == before
    assert replica.decide() == plan


def question(replica: Replica, name: str) -> Why:
    subject = ObjectRef(api_version="v1", kind="Pod", namespace="team", name=name)
    return why.why(replica, subject)


def assert_sound(answer: Why) -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(answer), type=dict[str, Any])
    assert decoded["schedulable"] == answer.schedulable
    if answer.schedulable:
        assert answer.cause is None
        return
    assert answer.cause is not None
    assert answer.cause.class_ is answer.cause.code.cause_class
    for cause in (answer.cause, *answer.also):
        assert cause.sentence.strip()
        assert "\n" not in cause.sentence
        assert "<" not in cause.sentence  # no stand-in of the engine
    assert_adds_up(answer)


def assert_adds_up(answer: Why) -> None:
    """Every step leaves what it did not remove; a pod alone finds no node in the end."""
    for before, step in zip(answer.funnel, answer.funnel[1:], strict=False):
        is_next = step.of == before.of and not step.step.endswith("per node)")
        if is_next:
            assert before.left - step.removed == step.left >= 0
    nodes_left = [step.left for step in answer.funnel if step.of == "nodes"]
    together = {CauseCode.GANG_CANNOT_START, CauseCode.GANG_TOO_LARGE, CauseCode.GANG_INCOMPLETE}
    assert answer.cause is not None
    codes = {cause.code for cause in (answer.cause, *answer.also)}
    if nodes_left and nodes_left[-1] and not codes & together:
        assert answer.subject.name.startswith("m"), answer  # a gang waits for another of its pods
