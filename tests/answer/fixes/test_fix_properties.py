"""On random small clusters: every fix is accepted and works, is minimal, and the search leaves nothing behind."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.answer.replica import patches, verdict
from dovetail.answer.why.fixes import search, trials
from dovetail.world import dump
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.trial_cluster import Cluster

Tree = dict[str, Any]
TAINTS = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "team", "effect": "NoSchedule"},
]
ATTRIBUTES = f'device.attributes["{build.DRIVER}"]'
CONDITIONS = [
    f'{ATTRIBUTES}.architecture == "hopper"',
    f'{ATTRIBUTES}.model == "H100"',
    f'{ATTRIBUTES}.model == "A100"',
    f"has({ATTRIBUTES}.nvlink)",
]
FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@st.composite
def nodes(draw: st.DrawFn) -> list[Tree]:
    trees = []
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        labels = {"pool": draw(st.sampled_from(["train", "infer"])), "gpu": "H100"}
        spec: Tree = {"taints": draw(st.lists(st.sampled_from(TAINTS), unique_by=str, max_size=2))}
        if draw(st.integers(0, 4)) == 0:
            spec["unschedulable"] = True
        trees.append(build.node(name, labels=labels, gpus=draw(st.sampled_from([0, 2, 4])), **spec))
    return trees


@st.composite
def pod_specs(draw: st.DrawFn) -> Tree:
    selector = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "pool": st.sampled_from(["train", "trian", "cpu"]),
                "gpu": st.sampled_from(["H100", "h100"]),
            },
        )
    )
    spec: Tree = {"gpus": draw(st.sampled_from([0, 1, 3, 6])), "nodeSelector": selector}
    if draw(st.booleans()):
        spec["tolerations"] = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]
    if draw(st.integers(0, 5)) == 0:
        spec["schedulingGates"] = [{"name": "example.com/ready"}]
    return spec


@st.composite
def clusters(draw: st.DrawFn) -> list[Tree]:
    """Nodes, a template for claims, pods that run, others that wait, and the pod in question."""
    trees = [*draw(nodes()), build.device_class()]
    if draw(st.booleans()):
        trees.append(build.gpu_slice("a", count=draw(st.integers(1, 3))))
    conditions = draw(st.lists(st.sampled_from(CONDITIONS), unique=True, max_size=2))
    trees.append(
        build.template(count=draw(st.integers(1, 4)), when=" && ".join(sorted(conditions)))
    )
    if draw(st.booleans()):
        trees.append(build.pod("running", gpus=2, nodeName="a"))
        trees.append(build.priority_class("urgent", 1000))
    if draw(st.booleans()):
        trees.append(build.pod("waiting", **draw(pod_specs())))
    claimed = build.uses() if draw(st.integers(0, 2)) == 0 else {}
    spec = draw(pod_specs()) | claimed
    kind = draw(st.sampled_from(["Pod", "Pod", "gang", "Job", "StatefulSet"]))
    if kind == "gang":
        labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "2"}
        trees += [build.pod(name, metadata={"labels": labels}, **spec) for name in ("p", "q")]
    elif kind == "Pod" and draw(st.booleans()):
        limit = draw(st.sampled_from(["0", "2", "4"]))
        metadata = {
            "labels": {"dovetail.dev/queue": draw(st.sampled_from(["lab", "lba"]))},
            "annotations": {"dovetail.dev/when-evicted": "end"},
        }
        trees += [
            build.queue("lab", resources={"gpu": {"limit": limit, "quota": limit}}),
            build.queue("shared"),
            build.pod("p", metadata=metadata, **spec),
        ]
    elif kind == "Pod":
        trees.append(build.pod("p", **spec))
    else:
        spec.pop("schedulingGates", None)  # opened on the pod, whose name differs each time
        more: Tree = {"replicas": 1} if kind == "StatefulSet" else {}
        trees.append(build.workload(kind, "p", spec=build.pod_spec(**spec), **more))
    return trees


def name_in(cluster: Cluster) -> str:
    return next(name for name in cluster.pod_names() if name not in ("running", "waiting"))


@given(clusters())
@FEW
def test_every_fix_is_accepted_and_the_pod_starts(trees: list[Tree]) -> None:
    cluster = Cluster(*trees)
    fixes = cluster.fixes(name_in(cluster))
    assert len(fixes) <= search.MOST_SHOWN
    assert len({str(fix.patch) for fix in fixes}) == len(fixes)
    for fix in fixes:
        again = Cluster(*trees)
        again.apply(fix)
        after = again.starts(name_in(again))
        assert after.starts, (fix.title, after.refusal)


@given(clusters())
@FEW
def test_no_part_of_a_fix_suffices_and_the_replica_is_as_before(trees: list[Tree]) -> None:
    cluster = Cluster(*trees)
    replica = cluster.replica()
    pod_id = verdict.id_of(replica, build.NAMESPACE, name_in(cluster))
    assert pod_id is not None
    if verdict.verdict(replica, pod_id).starts:
        assert search.search(replica, pod_id) == ()
        return
    before = dump.dump(replica.world)
    attempts = trials.Trials(replica, pod_id)
    for hit in search.hits(attempts):
        for candidate in hit.candidates:
            if len(hit.candidates) > 1:
                alone = attempts.tried([candidate])
                assert alone is None or not alone.starts, hit.candidates
    assert dump.dump(replica.world) == before


@given(clusters())
@FEW
def test_where_one_toleration_or_label_is_the_obstacle_a_fix_is_found(trees: list[Tree]) -> None:
    cluster = Cluster(*trees)
    name = name_in(cluster)
    if cluster.starts(name).starts:
        return
    replica = cluster.replica()
    pod = replica.pod(build.NAMESPACE, name)
    assert pod is not None
    pod_id = pod.metadata.uid
    by_hand = [
        {"tolerations": [{"key": taint["key"], "operator": "Exists"}]} for taint in TAINTS
    ] + [{"nodeSelector": {key: None}} for key in pod.spec.node_selector]
    starts = False
    for change in by_hand:
        if "tolerations" in change:
            kept = [
                {"key": own.key, "operator": own.operator, "effect": own.effect}
                for own in pod.spec.tolerations
            ]
            change = {"tolerations": [*kept, *change["tolerations"]]}
        patch = patches.Patch(object=patches.ref_of(pod), merge={"spec": change})
        with replica.edited(replica.edits_of([patch])):
            starts |= verdict.verdict(replica, pod_id).starts
    if starts:
        assert search.search(replica, pod_id)


def test_a_search_asks_for_no_more_decisions_than_it_may() -> None:
    cluster = Cluster(
        build.node("a", taints=TAINTS),
        build.pod(gpus=9, nodeSelector={"pool": "train", "gpu": "h100"}),
    )
    replica = cluster.replica()
    pod_id = verdict.id_of(replica, build.NAMESPACE, "p")
    assert pod_id is not None
    for most in range(1, 12):
        attempts = trials.Trials(replica, pod_id, most=most)
        search.hits(attempts)
        assert attempts.decisions <= most + 1  # the last trial may need two
