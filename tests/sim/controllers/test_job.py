"""Stories about Jobs: completions, indexes, failures and their policies, suspension, deadlines; no pod counts twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.ports import failures
from dovetail.sim.controllers.batch import job_indexes, job_pods
from tests.sim.controllers import tiny_store
from tests.sim.controllers.tiny_store import Cluster, job

Tree = dict[str, Any]


def indexed(**spec: Any) -> Tree:
    return job(completionMode="Indexed", **spec)


def running(cluster: Cluster) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in cluster.pods
        if pod["status"]["phase"] in ("Pending", "Running")
    ]


def pod_of(cluster: Cluster, index: int) -> str:
    """The pod that runs an index."""
    (name,) = [name for name in running(cluster) if name.startswith(f"train-{index}-")]
    return name


def test_a_plain_job_runs_one_pod_to_its_end() -> None:
    cluster = Cluster()
    cluster.apply(job())
    (pod,) = cluster.pods
    uid = cluster.find("Job", "train")["metadata"]["uid"]
    assert pod["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": uid,
        "job-name": "train",
    }
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert pod["metadata"]["generateName"] == "train-"
    status = cluster.status("Job", "train")
    assert (status["active"], status["ready"], status["terminating"]) == (1, 0, 0)
    assert status["startTime"] == "2026-03-02T12:00:00Z"
    cluster.start()
    assert cluster.status("Job", "train")["ready"] == 1
    cluster.wait(60)
    cluster.finish()
    assert cluster.condition("Job", "train", "SuccessCriteriaMet") == ("True", "CompletionsReached")
    assert cluster.condition("Job", "train", "Complete") == ("True", "CompletionsReached")
    status = cluster.status("Job", "train")
    assert status["completionTime"] == "2026-03-02T12:01:00Z"
    assert status["succeeded"] == 1
    assert "active" not in status
    assert status["uncountedTerminatedPods"] == {}
    assert not job_pods.is_tracked(cluster.pods[0])
    assert cluster.reasons("Job", "train")[-1] == "Completed"


def test_parallelism_bounds_the_pods_and_completions_end_the_job() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=2, completions=3))
    assert len(running(cluster)) == 2
    cluster.finish(running(cluster)[0])
    assert len(running(cluster)) == 2
    cluster.finish(running(cluster)[0])
    assert len(running(cluster)) == 1
    cluster.finish(running(cluster)[0])
    assert cluster.status("Job", "train")["succeeded"] == 3
    assert cluster.condition("Job", "train", "Complete") is not None


def test_a_work_queue_ends_when_a_pod_succeeded_and_all_are_over() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=3))
    first, second, third = running(cluster)
    cluster.finish(first)
    assert len(running(cluster)) == 2, "none is replaced after a success"
    cluster.fail(second)
    cluster.finish(third)
    assert cluster.condition("Job", "train", "Complete") is not None


def test_indexed_pods_know_their_index() -> None:
    cluster = Cluster()
    cluster.apply(indexed(parallelism=2, completions=4))
    pod = cluster.find("Pod", pod_of(cluster, 1))
    index = "batch.kubernetes.io/job-completion-index"
    assert pod["metadata"]["annotations"][index] == "1"
    assert pod["metadata"]["labels"][index] == "1"
    assert pod["spec"]["hostname"] == "train-1"
    (variable,) = pod["spec"]["containers"][0]["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['batch.kubernetes.io/job-completion-index']"
    for number in (1, 0, 2, 3):
        cluster.finish(pod_of(cluster, number))
    status = cluster.status("Job", "train")
    assert (status["completedIndexes"], status["succeeded"]) == ("0-3", 4)
    assert cluster.condition("Job", "train", "Complete") is not None


def test_failures_back_off_and_then_fail_the_job() -> None:
    cluster = Cluster()
    cluster.apply(job(backoffLimit=2))
    delays = []
    for _ in range(2):
        cluster.fail(*running(cluster))
        assert running(cluster) == []
        waited = 0
        while not running(cluster):
            cluster.wait(1)
            waited += 1
        delays.append(waited)
    assert delays == [10, 20]
    cluster.fail(*running(cluster))
    assert cluster.condition("Job", "train", "FailureTarget") == ("True", "BackoffLimitExceeded")
    assert cluster.condition("Job", "train", "Failed") == ("True", "BackoffLimitExceeded")
    assert cluster.status("Job", "train")["failed"] == 3
    assert "completionTime" not in cluster.status("Job", "train")


def test_a_failed_job_ends_its_other_pods_and_waits_for_them() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=3, completions=3, backoffLimit=0))
    cluster.start()
    cluster.fail(running(cluster)[0])
    assert cluster.condition("Job", "train", "FailureTarget") is not None
    assert cluster.condition("Job", "train", "Failed") is None
    assert cluster.status("Job", "train")["terminating"] == 2
    cluster.confirm_deletions()
    assert cluster.condition("Job", "train", "Failed") is not None
    assert cluster.status("Job", "train")["failed"] == 3
    assert "terminating" in cluster.status("Job", "train")


def test_an_evicted_pod_counts_as_failed_and_is_replaced_at_once_or_after_its_end() -> None:
    for policy, is_immediate in (("TerminatingOrFailed", True), ("Failed", False)):
        cluster = Cluster()
        cluster.apply(job(podReplacementPolicy=policy))
        cluster.start()
        cluster.delete("Pod", running(cluster)[0])
        assert cluster.status("Job", "train").get("failed", 0) == int(is_immediate)
        cluster.wait(15)
        assert len(running(cluster)) == int(is_immediate)


def test_the_deadline_fails_an_active_job() -> None:
    cluster = Cluster()
    cluster.apply(job(activeDeadlineSeconds=120))
    cluster.start()
    cluster.wait(119)
    assert cluster.condition("Job", "train", "FailureTarget") is None
    cluster.wait(1)
    assert cluster.condition("Job", "train", "FailureTarget") == ("True", "DeadlineExceeded")
    cluster.confirm_deletions()
    assert cluster.condition("Job", "train", "Failed") == ("True", "DeadlineExceeded")


def test_a_suspended_job_loses_its_pods_without_failures_and_starts_again() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=2, completions=2))
    cluster.start()
    cluster.patch("Job", "train", {"spec": {"suspend": True}})
    assert cluster.condition("Job", "train", "Suspended") == ("True", "JobSuspended")
    assert "startTime" not in cluster.status("Job", "train")
    cluster.confirm_deletions()
    assert cluster.every("Pod") == []
    assert cluster.status("Job", "train").get("failed", 0) == 0
    cluster.patch("Job", "train", {"spec": {"suspend": False}})
    assert cluster.condition("Job", "train", "Suspended") == ("False", "JobResumed")
    assert len(running(cluster)) == 2


def test_a_job_created_suspended_makes_no_pods() -> None:
    cluster = Cluster()
    cluster.apply(job(suspend=True))
    assert cluster.every("Pod") == []
    assert cluster.condition("Job", "train", "Suspended") == ("True", "JobSuspended")


def test_the_time_to_live_deletes_the_job_with_its_pods() -> None:
    cluster = Cluster()
    cluster.apply(job(ttlSecondsAfterFinished=300))
    cluster.finish()
    cluster.wait(299)
    assert cluster.every("Job")
    cluster.wait(1)
    assert cluster.every("Job") == []
    assert cluster.every("Pod") == []


def test_deleting_a_job_lets_its_pods_go() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=2, completions=2))
    cluster.start()
    cluster.delete("Job", "train")
    cluster.confirm_deletions()
    assert cluster.every("Pod") == []


def test_orphaned_pods_lose_the_finalizer() -> None:
    cluster = Cluster()
    cluster.apply(job())
    cluster.start()
    cluster.delete("Job", "train", propagation="Orphan")
    (pod,) = cluster.every("Pod")
    assert not job_pods.is_tracked(pod)
    assert "ownerReferences" not in pod["metadata"]


def rules(*entries: Tree) -> Tree:
    return {"rules": list(entries)}


def on_exit(action: str, *codes: int) -> Tree:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


def test_a_failure_policy_fails_the_job_at_once_or_ignores_a_failure() -> None:
    policy = rules(on_exit("FailJob", 42), on_exit("Ignore", 7))
    cluster = Cluster()
    cluster.apply(job(podFailurePolicy=policy, backoffLimit=0))
    cluster.fail(exit_code=7)
    assert cluster.condition("Job", "train", "FailureTarget") is None
    cluster.wait(10)
    assert cluster.status("Job", "train").get("failed", 0) == 0
    name = running(cluster)[0]
    cluster.fail(name, exit_code=42)
    assert cluster.condition("Job", "train", "Failed") == ("True", "PodFailurePolicy")
    messages = [entry["message"] for entry in cluster.status("Job", "train")["conditions"]]
    assert messages[-1] == (
        f"Container main for pod default/{name} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )


def test_pod_conditions_match_a_failure_policy() -> None:
    pattern = {"type": "DisruptionTarget", "status": "True"}
    policy = rules({"action": "Ignore", "onPodConditions": [pattern]})
    cluster = Cluster()
    cluster.apply(job(podFailurePolicy=policy, backoffLimit=0))
    pod = cluster.pods[0]
    status = {"phase": "Failed", "conditions": [pattern]}
    key = tiny_store.key_of(pod)
    cluster.store.set_status(key, status, uid=pod["metadata"]["uid"])
    cluster.settle()
    assert cluster.condition("Job", "train", "Failed") is None
    assert cluster.status("Job", "train").get("failed", 0) == 0


def test_each_index_has_its_own_backoff_limit() -> None:
    cluster = Cluster()
    cluster.apply(indexed(parallelism=2, completions=2, backoffLimitPerIndex=1))
    cluster.fail(pod_of(cluster, 0))
    cluster.wait(10)
    successor = cluster.find("Pod", pod_of(cluster, 0))
    count = successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
    assert count == "1"
    cluster.fail(pod_of(cluster, 0))
    assert cluster.status("Job", "train")["failedIndexes"] == "0"
    assert cluster.condition("Job", "train", "Failed") is None, "index 1 still runs"
    cluster.finish(pod_of(cluster, 1))
    assert cluster.condition("Job", "train", "Failed") == ("True", "FailedIndexes")
    status = cluster.status("Job", "train")
    assert (status["completedIndexes"], status["failed"]) == ("1", 2)


def test_too_many_failed_indexes_fail_the_job() -> None:
    cluster = Cluster()
    spec = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    cluster.apply(indexed(parallelism=3, completions=3, **spec))
    cluster.fail(pod_of(cluster, 1))
    assert cluster.condition("Job", "train", "FailureTarget") == (
        "True",
        "MaxFailedIndexesExceeded",
    )


def test_fail_index_gives_an_index_up_without_retries() -> None:
    cluster = Cluster()
    policy = rules(on_exit("FailIndex", 3))
    spec = {"backoffLimitPerIndex": 5, "podFailurePolicy": policy}
    cluster.apply(indexed(parallelism=2, completions=2, **spec))
    cluster.fail(pod_of(cluster, 0), exit_code=3)
    assert cluster.status("Job", "train")["failedIndexes"] == "0"


def test_a_success_policy_ends_the_job_early() -> None:
    cluster = Cluster()
    policy = rules({"succeededIndexes": "0,2-3", "succeededCount": 2})
    cluster.apply(indexed(parallelism=4, completions=4, successPolicy=policy))
    cluster.start()
    cluster.finish(pod_of(cluster, 1))
    cluster.finish(pod_of(cluster, 0))
    assert cluster.condition("Job", "train", "SuccessCriteriaMet") is None
    cluster.finish(pod_of(cluster, 3))
    assert cluster.condition("Job", "train", "SuccessCriteriaMet") == ("True", "SuccessPolicy")
    cluster.confirm_deletions()
    assert cluster.condition("Job", "train", "Complete") == ("True", "SuccessPolicy")
    status = cluster.status("Job", "train")
    assert (status["completedIndexes"], status.get("failed", 0)) == ("0,1,3", 0)


def test_less_parallelism_removes_pods_without_failures() -> None:
    cluster = Cluster()
    cluster.apply(job(parallelism=3, completions=9))
    cluster.start()
    cluster.patch("Job", "train", {"spec": {"parallelism": 1}})
    assert len(running(cluster)) == 1
    cluster.confirm_deletions()
    assert cluster.status("Job", "train").get("failed", 0) == 0


def test_restarts_in_place_count_against_the_limit() -> None:
    cluster = Cluster()
    tree = job(backoffLimit=3)
    tree["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    cluster.apply(tree)
    pod = cluster.pods[0]
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": 3}]}
    key = tiny_store.key_of(pod)
    cluster.store.set_status(key, status, uid=pod["metadata"]["uid"])
    cluster.settle()
    assert cluster.condition("Job", "train", "FailureTarget") == ("True", "BackoffLimitExceeded")


def test_another_controller_may_manage_a_job() -> None:
    cluster = Cluster()
    cluster.apply(job(managedBy="kueue.x-k8s.io/multikueue"))
    assert cluster.every("Pod") == []
    assert cluster.status("Job", "train") == {}


def test_a_refused_pod_is_tried_again() -> None:
    cluster = Cluster()
    refusals = [3]

    def quota(tree: Tree, store: tiny_store.TinyStore) -> None:
        if tree["kind"] == "Pod" and refusals[0]:
            refusals[0] -= 1
            raise failures.Refused("exceeded quota", status=403)

    cluster.store.admit = quota
    cluster.apply(job())
    assert "FailedCreate" in cluster.reasons("Job", "train")
    cluster.wait(1)
    assert len(running(cluster)) == 1
    assert cluster.status("Job", "train")["active"] == 1


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_written_and_read_back(indexes: set[int]) -> None:
    text = job_indexes.written(indexes)
    assert job_indexes.parsed(text, 41) == indexes


def test_indexes_are_written_as_upstream() -> None:
    assert job_indexes.written({1, 3, 4, 5, 7, 8}) == "1,3-5,7,8"
    assert job_indexes.written(set()) == ""
    assert job_indexes.parsed("1,x,3-99,5-y", 6) == {1, 3, 4, 5}


@given(
    completions=st.integers(1, 6),
    parallelism=st.integers(1, 4),
    is_indexed=st.booleans(),
    awaits_ends=st.booleans(),
    steps=st.lists(st.sampled_from(["finish", "fail", "kill", "start", "confirm"]), max_size=30),
    data=st.data(),
)
def test_every_pod_counts_once_and_every_index_is_done_once(
    completions: int,
    parallelism: int,
    is_indexed: bool,
    awaits_ends: bool,
    steps: list[str],
    data: st.DataObject,
) -> None:
    """Whatever happens to pods: the counters are the pods that ended, and the Job completes."""
    cluster = Cluster()
    mode = "Indexed" if is_indexed else "NonIndexed"
    policy = "Failed" if awaits_ends else "TerminatingOrFailed"
    spec: Tree = {"completionMode": mode, "podReplacementPolicy": policy, "backoffLimit": 1000}
    cluster.apply(job(completions=completions, parallelism=parallelism, **spec))
    succeeded: set[str] = set()
    failed: set[str] = set()

    def finish(name: str) -> None:
        succeeded.add(cluster.find("Pod", name)["metadata"]["uid"])
        cluster.finish(name)

    for step in steps:
        names = running(cluster)
        if step == "confirm":
            cluster.confirm_deletions()
        elif names:
            name = data.draw(st.sampled_from(names))
            uid = cluster.find("Pod", name)["metadata"]["uid"]
            match step:
                case "start":
                    cluster.start(name)
                case "finish":
                    finish(name)
                case "fail":
                    failed.add(uid)
                    cluster.fail(name)
                case "kill" if not awaits_ends:
                    failed.add(uid)
                    cluster.delete("Pod", name)
        assert len(running(cluster)) <= parallelism
        cluster.wait(700)

    while running(cluster):
        finish(running(cluster)[0])
        cluster.wait(700)
    cluster.confirm_deletions()
    status = cluster.status("Job", "train")
    assert status["succeeded"] == len(succeeded) == completions
    assert status.get("failed", 0) == len(failed)
    assert cluster.condition("Job", "train", "Complete") is not None
    if is_indexed:
        assert job_indexes.parsed(status["completedIndexes"], completions) == set(
            range(completions)
        )
