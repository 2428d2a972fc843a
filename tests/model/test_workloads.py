"""Gangs read off the objects that own pods: a story per kind, with manifests as people write them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, workload_annotations
from dovetail.model.gangs import Gang, Group
from dovetail.model.workloads import owner_gangs

STRUCTS = {
    (kind.api_version.partition("/")[0], kind.name): kind.struct
    for kind in (*registry.OWNERS, *registry.PARENTS)
}


def owner(text: str) -> Any:
    """An owner as an API server would show it."""
    tree = yaml.safe_load(text)
    tree["metadata"].setdefault("namespace", "ml")
    tree["metadata"]["creationTimestamp"] = "2026-05-01T12:00:00Z"
    group = tree["apiVersion"].partition("/")[0]
    return codec.decode_struct(STRUCTS[group, tree["kind"]], codec.encode_tree(tree))


def gang(text: str, above: meta.ObjectMeta | None = None) -> Gang:
    result = owner_gangs.gang_of(owner(text), above)
    assert result is not None
    return result


def shape(result: Gang) -> list[tuple[str, int]]:
    """Groups and their minimum."""
    return [(group.name, group.min) for group in result.groups]


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, annotations: {%s}}
spec:
  parallelism: 4
  completions: 4
  completionMode: Indexed
  %s
  template:
    metadata: {creationTimestamp: null, labels: {dovetail.dev/queue: research}}
    spec: {containers: [{name: main, image: trainer}], restartPolicy: Never}
"""


def test_a_plain_job_is_no_gang_and_still_passes_on_its_annotations() -> None:
    result = gang(JOB % ("dovetail.dev/expected-runtime: 2h", "activeDeadlineSeconds: 9000"))
    assert result.is_loose
    assert (result.metadata.namespace, result.metadata.name) == ("ml", "job/train")
    assert (result.queue, result.expected_runtime, result.max_runtime) == ("research", 7200, 9000)
    assert result.counts_failures


@pytest.mark.parametrize(
    ("annotation", "minimum"),
    [
        ("dovetail.dev/gang-min: all", 4),
        ("dovetail.dev/gang-min: '2'", 2),
        ("dovetail.dev/gang-min: '1'", 1),
        ("kai.scheduler/batch-min-member: '3'", 3),
        ("dovetail.dev/gang-min: '9'", 4),
        ("dovetail.dev/topology-required: rack", 4),
        ("kueue.x-k8s.io/podset-preferred-topology: example.com/rack", 4),
    ],
)
def test_a_job_that_asks_is_a_gang(annotation: str, minimum: int) -> None:
    result = gang(JOB % (annotation, ""))
    assert not result.is_loose
    assert shape(result) == [("default", minimum)]
    assert bool(result.problems) == ("'9'" in annotation)


def test_what_is_left_of_a_job_is_what_it_needs() -> None:
    text = JOB % ("dovetail.dev/gang-min: all", "") + "status: {succeeded: 3}\n"
    assert shape(gang(text)) == [("default", 1)]
    assert (
        owner_gangs.gang_of(
            owner(text.replace("succeeded: 3", "conditions: [{type: Failed, status: 'True'}]"))
        )
        is None
    )


@pytest.mark.parametrize(
    ("action", "counts"),
    [("Ignore", False), ("Count", True), ("FailJob", True)],
    ids=lambda item: str(item),
)
def test_an_eviction_counts_unless_the_jobs_policy_ignores_it(action: str, counts: bool) -> None:
    rule = f"{{action: {action}, onPodConditions: [{{type: DisruptionTarget}}]}}"
    policy = f"podFailurePolicy: {{rules: [{{action: FailJob, onExitCodes: {{}}}}, {rule}]}}"
    assert gang(JOB % ("", policy)).counts_failures == counts


STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: serve, annotations: {dovetail.dev/gang-min: "2"}}
spec:
  replicas: 3
  podManagementPolicy: %s
  template: {metadata: {labels: {app: serve}}, spec: {containers: [{name: main}]}}
"""


def test_a_stateful_set_starts_together_only_if_its_pods_are_made_together() -> None:
    together, ordered = gang(STATEFUL_SET % "Parallel"), gang(STATEFUL_SET % "OrderedReady")
    assert (together.is_loose, shape(together)) == (False, [("default", 2)])
    assert ordered.is_loose
    assert "podManagementPolicy is Parallel" in ordered.problems[0]


JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: llama, labels: {kueue.x-k8s.io/queue-name: user}}
spec:
  %s
  replicatedJobs:
    - name: driver
      template: {spec: {template: {metadata: {annotations: {dovetail.dev/max-runtime: 3h}}}}}
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 4
          completions: 4
          backoffLimit: 0
          podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}
          template:
            metadata: {annotations: {%s}}
"""


def test_a_job_set_is_one_gang_with_a_group_per_job() -> None:
    result = gang(JOB_SET % ("", ""))
    assert shape(result) == [
        ("driver", 1),
        ("driver/0", 1),
        ("workers", 2),
        ("workers/0", 4),
        ("workers/1", 4),
    ]
    assert [group.parent for group in result.groups] == [None, "driver", None, "workers", "workers"]
    assert [group.holds_groups for group in result.groups] == [True, False, True, False, False]
    assert (result.min_groups, result.max_runtime, result.counts_failures) == (2, 10_800, True)
    assert result.labels == {"kueue.x-k8s.io/queue-name": "user"}


def test_jobs_that_are_made_after_others_are_not_waited_for() -> None:
    assert gang(JOB_SET % ("startupPolicy: {startupPolicyOrder: InOrder}", "")).min_groups == 1
    text = (JOB_SET % ("", "")).replace(
        "replicas: 2", "replicas: 2\n      dependsOn: [{name: driver, status: Ready}]"
    )
    assert gang(text).min_groups == 1
    done = JOB_SET % ("", "") + "status: {replicatedJobsStatus: [{name: workers, succeeded: 1}]}\n"
    assert ("workers", 1) in shape(gang(done))
    assert (
        owner_gangs.gang_of(owner(JOB_SET % ("", "") + "status: {terminalState: Completed}\n"))
        is None
    )


def test_a_large_number_of_a_user_makes_no_million_groups() -> None:
    result = gang((JOB_SET % ("", "")).replace("replicas: 2", "replicas: 2147483647"))
    assert (result.is_loose, len(result.groups)) == (True, 1)
    assert "starts pod by pod" in result.problems[0]


def test_a_template_asks_for_its_own_group() -> None:
    notes = "kueue.x-k8s.io/podset-required-topology: block, kueue.x-k8s.io/podset-slice-required-topology: rack"
    result = gang(JOB_SET % ("", f"{notes}, dovetail.dev/gang-min: '3'"))
    assert result.topology is None
    by_name = {group.name: group for group in result.groups}
    assert by_name["workers"].topology == workload_annotations.TopologyRequest(
        topology="", required="block"
    )
    assert by_name["workers/1"].topology == workload_annotations.TopologyRequest(
        topology="", required="rack"
    )
    assert (by_name["workers/1"].min, by_name["driver/0"].topology) == (3, None)


def test_what_made_a_job_set_speaks_for_it() -> None:
    above = meta.ObjectMeta(
        annotations={"dovetail.dev/queue": "vision", "dovetail.dev/gang-min": "2"}
    )
    result = gang(JOB_SET % ("", "dovetail.dev/queue: research"), above)
    assert result.queue == "vision"
    assert "belongs on the pod template of a replicated job" in result.problems[0]


LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve, annotations: {kai.scheduler/topology: fabric, kai.scheduler/topology-required-placement: rack}}
spec:
  replicas: 3
  startupPolicy: %s
  leaderWorkerTemplate:
    size: 4
    workerTemplate: {metadata: {labels: {dovetail.dev/queue: inference}}, spec: {}}
"""


def test_each_replica_of_a_leader_worker_set_is_a_gang() -> None:
    result = gang(LWS % "LeaderCreated")
    assert result.metadata.name == "leaderworkerset/serve"
    assert result.metadata.creation_timestamp is None  # each replica is as old as its pods
    assert (shape(result), result.min_groups) == ([("leader", 1), ("worker", 3)], 2)
    assert (result.queue, result.topology) == (
        "inference",
        workload_annotations.TopologyRequest(topology="fabric", required="rack"),
    )
    assert gang(LWS % "LeaderReady").min_groups == 1


PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert}
spec:
  runPolicy: {activeDeadlineSeconds: 3600, %s}
  %s
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: OnFailure, template: {metadata: {labels: {dovetail.dev/queue: nlp}}}}
    Worker: {replicas: 7, restartPolicy: OnFailure, template: {metadata: {annotations: {%s}}}}
"""


@pytest.mark.parametrize(
    ("policy", "more", "workers"),
    [
        ("", "", 7),
        ("schedulingPolicy: {minAvailable: 5}", "", 4),
        ("schedulingPolicy: {minAvailable: 50}", "", 7),
        ("", "elasticPolicy: {minReplicas: 2, maxReplicas: 9}", 2),
        ("", "elasticPolicy: {minReplicas: 2, maxReplicas: 1}", 2),
    ],
)
def test_a_training_needs_its_master_and_enough_workers(
    policy: str, more: str, workers: int
) -> None:
    result = gang(PYTORCH % (policy, more, ""))
    assert (shape(result), result.min_groups) == ([("master", 1), ("worker", workers)], 2)
    assert (result.metadata.name, result.queue, result.max_runtime) == (
        "pytorchjob/bert",
        "nlp",
        3600,
    )
    assert not result.counts_failures
    assert result.groups[1].max == (9 if "maxReplicas: 9" in more else None)


def test_segments_are_the_workers() -> None:
    notes = (
        "kai.scheduler/segment-size: '2', kai.scheduler/segment-topology-required-placement: node"
    )
    result = gang(PYTORCH % ("", "", notes))
    assert result.groups[1].topology == workload_annotations.TopologyRequest(
        topology="", required="node", segment=2
    )
    assert result.groups[0].topology is None
    text = (PYTORCH % ("", "", "")).replace(
        "{name: bert}", f"{{name: bert, annotations: {{{notes}}}}}"
    )
    assert gang(text).groups[1].topology == result.groups[1].topology


MPI = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: hpl}
spec:
  launcherCreationPolicy: %s
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: {spec: {}}}
    Worker: {replicas: 16, template: {spec: {}}}
"""


def test_a_launcher_that_is_made_last_is_not_waited_for() -> None:
    at_once, last = gang(MPI % "AtStartup"), gang(MPI % "WaitForWorkersReady")
    assert at_once.metadata.name == "mpijob/hpl"
    assert shape(at_once) == shape(last) == [("launcher", 1), ("worker", 16)]
    assert (at_once.min_groups, last.min_groups) == (2, 1)


RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: tune}
spec:
  enableInTreeAutoscaling: %s
  headGroupSpec: {template: {metadata: {labels: {dovetail.dev/queue: tuning}}}}
  workerGroupSpecs:
    - {groupName: small, replicas: 3, minReplicas: 0, maxReplicas: 10}
    - {groupName: slices, replicas: 2, minReplicas: 1, maxReplicas: 4, numOfHosts: 4}
    - {groupName: asleep, replicas: 2, suspend: true}
"""


def test_a_ray_cluster_needs_its_head_and_what_its_groups_cannot_do_without() -> None:
    fixed, scaling = gang(RAY % "false"), gang(RAY % "true")
    assert shape(fixed) == [("headgroup", 1), ("small", 3), ("slices", 4), ("asleep", 0)]
    assert shape(scaling) == [("headgroup", 1), ("small", 0), ("slices", 4), ("asleep", 0)]
    assert [group.max for group in scaling.groups] == [None, 10, 16, None]
    assert (fixed.min_groups, fixed.queue) == (4, "tuning")


POD_GROUP = """
apiVersion: %s
kind: PodGroup
metadata: {name: pg}
spec:
  priority: 7
  preemptionPolicy: Never
  schedulingPolicy: {%s}
  schedulingConstraints: {topology: [{key: example.com/rack}]}
  disruptionMode: %s
"""


def test_a_native_group() -> None:
    result = gang(POD_GROUP % ("scheduling.k8s.io/v1beta1", "gang: {minCount: 3}", "{all: {}}"))
    assert (shape(result), result.priority, result.is_loose) == ([("default", 3)], 7, False)
    assert result.topology == workload_annotations.TopologyRequest(
        topology="", required="example.com/rack"
    )
    assert result.evicts_whole
    assert result.may_evict_after == owner_gangs.NEVER_SECONDS
    older = gang(POD_GROUP % ("scheduling.k8s.io/v1alpha2", "gang: {minCount: 3}", "PodGroup"))
    assert older.evicts_whole
    assert not gang(
        POD_GROUP % ("scheduling.k8s.io/v1alpha2", "gang: {minCount: 3}", "Pod")
    ).evicts_whole
    singly = gang(POD_GROUP % ("scheduling.k8s.io/v1beta1", "basic: {}", "{single: {}}"))
    assert (singly.is_loose, singly.evicts_whole) == (True, False)


def test_nulls_are_nothing_as_everywhere_in_kubernetes() -> None:
    text = POD_GROUP % (
        "scheduling.k8s.io/v1beta1",
        "gang: {minCount: 3}, basic: null",
        "{all: {}, single: null}",
    )
    result = gang(text + "  resourceClaims: null\n")
    assert (shape(result), result.evicts_whole) == ([("default", 3)], True)
    assert not gang(text.replace("all: {}", "all: null")).evicts_whole
    empty = gang(
        JOB_SET.replace("replicas: 2", "replicas: null") % ("startupPolicy: null", "")
    ).groups
    assert [group.name for group in empty if group.parent] == ["driver/0", "workers/0"]


def test_a_native_group_lists_the_claims_its_pods_share() -> None:
    text = POD_GROUP % ("scheduling.k8s.io/v1beta1", "gang: {minCount: 3}", "{single: {}}")
    listed = "[{name: a, resourceClaimTemplateName: t}, {name: b, resourceClaimName: c}]"
    result = gang(
        text.replace("{name: pg}", "{name: pg, uid: u}") + f"  resourceClaims: {listed}\n"
    )
    assert result.uid == "u"
    assert result.claims == (
        pods.PodResourceClaim(name="a", resource_claim_template_name="t"),
        pods.PodResourceClaim(name="b", resource_claim_name="c"),
    )
    assert result.problems == ()


NUMBERS = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
COUNTS = st.one_of(st.none(), st.integers(-3, 40), st.just(2**31 - 1))
NOTES = st.dictionaries(
    st.sampled_from(
        [workload_annotations.MIN, workload_annotations.MAX, workload_annotations.TOPOLOGY_REQUIRED]
    ),
    st.text(max_size=5),
)


@given(NUMBERS, NUMBERS, NUMBERS, COUNTS, NOTES)
def test_no_number_breaks_a_reading(
    one: int | None, other: int | None, third: int | None, few: int | None, notes: dict[str, str]
) -> None:
    metadata = meta.ObjectMeta(name="x", namespace="ml", annotations=notes)
    template = owners.PodTemplate(metadata=metadata)
    job = owners.JobSpec(parallelism=one, completions=other, template=template)
    replicated = owners.ReplicatedJob(name="r", replicas=few, template=owners.JobTemplate(spec=job))
    role = owners.ReplicaSpec(replicas=one, template=template)
    worker = owners.WorkerGroup(
        replicas=one, min_replicas=other, max_replicas=third, num_of_hosts=few
    )
    size = owners.LeaderWorkerTemplate(size=one, worker_template=template)
    policy = owners.SchedulingPolicy(gang=owners.Count(min_count=one))
    made: list[owners.Owner] = [
        owners.Job(metadata=metadata, spec=job, status=owners.JobStatus(succeeded=third or 0)),
        owners.StatefulSet(
            metadata=metadata, spec=owners.StatefulSetSpec(replicas=one, template=template)
        ),
        owners.JobSet(metadata=metadata, spec=owners.JobSetSpec(replicated_jobs=(replicated,))),
        owners.LeaderWorkerSet(
            metadata=metadata, spec=owners.LeaderWorkerSetSpec(leader_worker_template=size)
        ),
        owners.TrainingJob(
            kind="TFJob", metadata=metadata, spec=owners.TrainingSpec(tf_replica_specs={"PS": role})
        ),
        owners.RayCluster(
            metadata=metadata, spec=owners.RayClusterSpec(worker_group_specs=(worker,))
        ),
        owners.PodGroup(metadata=metadata, spec=owners.PodGroupSpec(scheduling_policy=policy)),
    ]
    for result in map(owner_gangs.gang_of, made):
        assert result is not None
        assert result.metadata.name.count("/") == 1
        assert result.min_groups >= 1
        names = [group.name for group in result.groups]
        assert len(names) == len(set(names))
        for group in result.groups:
            assert group.min >= 0
            assert group.max is None or group.max >= group.min
            assert group.parent is None or group.parent in names


def test_every_kind_has_a_reading() -> None:
    for kind in registry.OWNERS:
        if kind is registry.COMPOSITE:
            continue  # read as a tree: see test_native
        assert isinstance(
            owner_gangs.gang_of(kind.struct(kind=kind.name, metadata=meta.ObjectMeta(name="x"))),
            Gang,
        )


def test_a_gang_without_groups_of_its_own_has_one() -> None:
    assert owner_gangs.gang_of(owners.JobSet()) == Gang(
        metadata=meta.ObjectMeta(name=f"{gangs.JOBSET}/"), groups=(Group(name="default"),)
    )


KAI = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: pg}
spec: {%s}
"""


def test_a_pod_group_of_kai_is_a_gang_of_its_minimum() -> None:
    found = gang(
        KAI % "minMember: 3, queue: team-a, preemptibility: non-preemptible, preemptionDelay: 5m0s,"
        " stalenessGracePeriod: 30s,"
        " topologyConstraint: {topology: fabric, requiredTopologyLevel: rack}"
    )
    assert (found.metadata.namespace, found.metadata.name) == ("ml", "kai-podgroup/pg")
    assert (shape(found), found.min_groups, found.is_loose) == ([("default", 3)], 1, False)
    assert (found.labels, found.is_preemptible) == ({"kai.scheduler/queue": "team-a"}, False)
    assert (found.may_evict_after, found.stale_grace) == (300, 30)
    assert found.topology == workload_annotations.TopologyRequest(
        topology="fabric", required="rack"
    )


@pytest.mark.parametrize("spec", ["", "minMember: 1", "minMember: 0", "minMember: -4"])
def test_a_pod_group_of_kai_that_needs_one_pod_is_loose(spec: str) -> None:
    assert gang(KAI % spec).is_loose


def test_a_negative_grace_of_kai_means_never_and_priorities_are_the_pods() -> None:
    found = gang(KAI % "minMember: 2, stalenessGracePeriod: -1s, priorityClassName: train")
    assert found.stale_grace == workload_annotations.NEVER
    assert found.problems == ("spec.priorityClassName is ignored: the priority of the pods counts",)


def test_subgroups_of_kai_are_the_groups_of_the_gang() -> None:
    found = gang(
        KAI % "minSubGroup: 1, subGroups: ["
        "{name: decode, minSubGroup: 1}, {name: d0, parent: decode, minMember: 2},"
        "{name: d1, parent: decode, minMember: 2}, {name: prefill, minMember: 4}]"
    )
    assert found.min_groups == 1
    assert {
        group.name: (group.parent, group.holds_groups, group.min) for group in found.groups
    } == {
        "decode": (None, True, 1),
        "prefill": (None, False, 4),
        "d0": ("decode", False, 2),
        "d1": ("decode", False, 2),
    }


def test_subgroups_of_kai_that_lead_nowhere_are_left_out_by_name() -> None:
    found = gang(
        KAI % "subGroups: [{name: a, parent: b, minMember: 2}, {name: b, parent: a},"
        " {name: c, minMember: 2}, {name: c, minMember: 3}]"
    )
    assert shape(found) == [("c", 2)]
    [problem] = found.problems
    assert problem.startswith("spec.subGroups: 3 are ignored")
