"""The same manifests and the same pod lives, on our controllers and on the real kube-controller-manager.

After every step the owners' status and the children must become equal. A script is a row of a table: add one to
compare more.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sim.controllers import sides
from tests.sim.controllers.sides import create, delete, end, kill, let_pass, patch, ready
from tests.sim.controllers.tiny_store import job, workload
from tests.support import cluster, rest
from tests.support.waiting import is_true_within

Tree = dict[str, Any]
SECONDS = 100.0  # the longest wait is that for the next minute of a CronJob


def rolling(surge: Any, unavailable: Any) -> Tree:
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def image(name: str) -> Tree:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}}


def claim(name: str) -> Tree:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


def cron_job(schedule: str) -> Tree:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "report"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job()["spec"]}},
    }


def on_exit(action: str, code: int) -> Tree:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


DAEMONS = {"nodeSelector": {"agents": "yes"}, "tolerations": [{"operator": "Exists"}]}


def daemon_set(**spec: Any) -> Tree:
    tree = workload("DaemonSet", "agent", **spec)
    tree["spec"]["template"]["spec"] |= DAEMONS
    return tree


def on_a_node(tree: Tree) -> Tree:
    """Its pods are bound: of those that are not, the real garbage collector ends the deleted ones every 20 s."""
    tolerations = [{"operator": "Exists"}]
    tree["spec"]["template"]["spec"] |= {"nodeName": "agent-node-a", "tolerations": tolerations}
    return tree


def bare_pod(name: str, *, cost: str, **labels: str) -> Tree:
    containers = [{"name": "main", "image": "v1"}]
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
    }


def relabel(name: str, app: str) -> sides.Step:
    return patch("Pod", name, {"metadata": {"labels": {"app": app}}})


RETENTION = {"whenScaled": "Delete", "whenDeleted": "Delete"}
NEW_LABEL = {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}


def node(name: str) -> Tree:
    metadata = {"name": name, "labels": {"agents": "yes"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}


SCRIPTS = {
    "a replica set is scaled and loses pods": [
        create(workload("ReplicaSet", replicas=3)),
        ready(2),
        kill(),
        ready(),
        patch("ReplicaSet", "web", {"spec": {"replicas": 1}}),
        end("Failed", 1, exit_code=1),
        delete("ReplicaSet", "web"),
    ],
    "a deployment rolls out, back and is scaled": [
        create(workload("Deployment", replicas=3, strategy=rolling(1, 1))),
        ready(),
        patch("Deployment", "web", image("v2")),
        ready(1),
        ready(),
        ready(),
        patch("Deployment", "web", {"spec": {"replicas": 5}}),
        ready(),
        patch("Deployment", "web", image("v1")),
        ready(),
        ready(),
        ready(),
        delete("Deployment", "web"),
    ],
    "a deployment is scaled in the middle of a rollout": [
        create(workload("Deployment", replicas=10, strategy=rolling(3, 2))),
        ready(),
        patch("Deployment", "web", image("v2")),
        patch("Deployment", "web", {"spec": {"replicas": 15}}),
        patch("Deployment", "web", {"spec": {"paused": True}}),
        patch("Deployment", "web", {"spec": {"replicas": 4}}),
        patch("Deployment", "web", {"spec": {"paused": False}}),
        ready(),
        ready(),
    ],
    "a deployment recreates its pods": [
        create(workload("Deployment", replicas=2, strategy={"type": "Recreate"})),
        ready(),
        patch("Deployment", "web", image("v2")),
        ready(),
        delete("Deployment", "web", "Foreground"),
    ],
    "defaults, history and orphans": [
        create(workload("Deployment", replicas=2, revisionHistoryLimit=1)),
        ready(),
        patch("Deployment", "web", image("v2")),
        ready(),
        ready(),
        patch("Deployment", "web", image("v3")),
        ready(),
        ready(),
        delete("Deployment", "web", "Orphan"),
        create(workload("Deployment", replicas=2, image="v3")),
    ],
    "a stateful set starts in order, updates and shrinks": [
        create(workload("StatefulSet", replicas=3, serviceName="web")),
        ready(),
        ready(),
        ready(),
        patch("StatefulSet", "web", image("v2")),
        ready(),
        ready(),
        ready(),
        patch("StatefulSet", "web", {"spec": {"replicas": 1}}),
        kill(),
        ready(),
        end("Failed", 1, exit_code=1),
        delete("StatefulSet", "web"),
    ],
    "a parallel stateful set with claims and a partition": [
        create(
            workload(
                "StatefulSet",
                replicas=3,
                serviceName="web",
                podManagementPolicy="Parallel",
                volumeClaimTemplates=[claim("data")],
                ordinals={"start": 2},
                updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
            )
        ),
        ready(2),
        ready(),
        patch("StatefulSet", "web", image("v2")),
        ready(),
        ready(),
        kill(1, prefix="web-2"),
        ready(),
        patch("StatefulSet", "web", {"spec": {"replicas": 0}}),
    ],
    "a daemon set follows its nodes": [
        create(node("agent-node-a")),
        create(node("agent-node-b")),
        create(daemon_set()),
        ready(),
        create(node("agent-node-c")),
        ready(),
        patch("DaemonSet", "agent", NEW_LABEL),
        ready(),
        ready(),
        ready(),
        kill(1),
        ready(),
        end("Failed", 1, exit_code=1),
        delete("DaemonSet", "agent"),
    ],
    "a daemon set updates on deletion": [
        create(node("agent-node-a")),
        create(node("agent-node-b")),
        create(daemon_set(updateStrategy={"type": "OnDelete"})),
        ready(),
        patch("DaemonSet", "agent", NEW_LABEL),
        kill(2),
        ready(),
    ],
    "a stateful set updates on deletion": [
        create(workload("StatefulSet", replicas=1, updateStrategy={"type": "OnDelete"})),
        ready(),
        patch("StatefulSet", "web", image("v2")),
        kill(),
        ready(),
    ],
    "claims go with scaled pods and with the set": [
        create(
            workload(
                "StatefulSet",
                replicas=2,
                podManagementPolicy="Parallel",
                volumeClaimTemplates=[claim("data")],
                persistentVolumeClaimRetentionPolicy=RETENTION,
            )
        ),
        ready(),
        patch("StatefulSet", "web", {"spec": {"replicas": 1}}),
        delete("StatefulSet", "web"),
    ],
    "a parallel stateful set replaces broken pods of an old revision at once": [
        create(workload("StatefulSet", replicas=3, podManagementPolicy="Parallel")),
        ready(1),
        patch("StatefulSet", "web", image("v2")),
        ready(),
        ready(),
    ],
    "pods are adopted and released": [
        create(bare_pod("old", cost="100", app="web")),
        create(workload("ReplicaSet", replicas=2)),
        relabel("old", "debug"),
        relabel("old", "web"),
    ],
    "a pod must be ready for a while": [
        create(workload("Deployment", replicas=2, minReadySeconds=4)),
        ready(),
        let_pass(5),
    ],
    "a plain job completes": [create(job()), ready(), end("Succeeded")],
    "completions, parallelism and less of it": [
        create(job(completions=5, parallelism=3)),
        ready(1),
        end("Succeeded", 1),
        patch("Job", "train", {"spec": {"parallelism": 1}}),
        end("Succeeded", 1),
        patch("Job", "train", {"spec": {"parallelism": 5}}),
        end("Succeeded"),
    ],
    "a work queue": [
        create(job(parallelism=3)),
        end("Succeeded", 1),
        end("Failed", 1, exit_code=1),
        end("Succeeded"),
    ],
    "failures beyond the limit": [
        create(job(backoffLimit=1, completions=2, parallelism=2)),
        end("Failed", 1, exit_code=1),
        let_pass(11),
        end("Failed", 1, exit_code=1),
    ],
    "an indexed job": [
        create(job(completionMode="Indexed", completions=4, parallelism=3)),
        end("Succeeded", 1, prefix="train-1-"),
        ready(),
        kill(1, prefix="train-0-"),
        let_pass(11),
        end("Succeeded"),
        end("Succeeded"),
    ],
    "limits per index": [
        create(job(completionMode="Indexed", completions=3, parallelism=3, backoffLimitPerIndex=1)),
        end("Failed", 1, prefix="train-0-", exit_code=1),
        let_pass(11),
        end("Failed", 1, prefix="train-0-", exit_code=1),
        end("Succeeded"),
    ],
    "a success policy": [
        create(
            job(
                completionMode="Indexed",
                completions=4,
                parallelism=4,
                successPolicy={"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]},
            )
        ),
        end("Succeeded", 1, prefix="train-3-"),
        end("Succeeded", 1, prefix="train-2-"),
    ],
    "a failure policy": [
        create(
            job(
                completions=2,
                parallelism=2,
                podFailurePolicy={"rules": [on_exit("Ignore", 7), on_exit("FailIndex", 9)]},
                completionMode="Indexed",
                backoffLimitPerIndex=2,
            )
        ),
        end("Failed", 1, prefix="train-0-", exit_code=7),
        let_pass(11),
        end("Failed", 1, prefix="train-0-", exit_code=9),
        end("Succeeded"),
    ],
    "a pod failure policy fails the job": [
        create(
            job(completions=2, parallelism=2, podFailurePolicy={"rules": [on_exit("FailJob", 9)]})
        ),
        end("Failed", 1, exit_code=9),
    ],
    "pods are replaced after their end only": [
        create(node("agent-node-a")),
        create(on_a_node(job(completions=2, parallelism=2, podReplacementPolicy="Failed"))),
        ready(),
        kill(1),
        let_pass(11),
        end("Succeeded"),
    ],
    "too many failed indexes": [
        create(
            job(
                completionMode="Indexed",
                completions=3,
                parallelism=3,
                backoffLimitPerIndex=0,
                maxFailedIndexes=0,
            )
        ),
        end("Failed", 1, prefix="train-1-", exit_code=1),
    ],
    "suspension": [
        create(job(completions=2, parallelism=2, suspend=True)),
        patch("Job", "train", {"spec": {"suspend": False}}),
        ready(1),
        patch("Job", "train", {"spec": {"suspend": True}}),
        patch("Job", "train", {"spec": {"suspend": False}}),
        end("Succeeded"),
        delete("Job", "train"),
    ],
    "a deadline and a time to live": [
        create(job(activeDeadlineSeconds=5)),
        let_pass(6),
        patch("Job", "train", {"spec": {"ttlSecondsAfterFinished": 3}}),
        let_pass(6),
    ],
    "a cron job": [
        create(cron_job("* * * * *")),
        let_pass(61),
        patch("CronJob", "report", {"spec": {"suspend": True}}),
        end("Succeeded"),
        delete("CronJob", "report"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_both_sides_do_the_same(name: str) -> None:
    with real_side() as theirs:
        ours = sides.Ours()
        for step in SCRIPTS[name]:
            step.do(ours)
            step.do(theirs)
            assert_equal(ours, theirs, step.words)


@contextlib.contextmanager
def real_side() -> Iterator[sides.Theirs]:
    plane = cluster.control_plane()
    api = rest.Rest(plane)
    namespace = cluster.fresh_namespace(plane)
    try:
        yield sides.Theirs(api, namespace)
    finally:
        api.ask("DELETE", "/api/v1/nodes?labelSelector=agents%3Dyes")
        api.delete("namespaces", namespace)
        api.close()


def assert_equal(ours: sides.Side, theirs: sides.Theirs, words: str) -> None:
    expected = comparable(ours)
    if is_true_within(lambda: comparable(theirs) == expected, seconds=SECONDS):
        return
    difference = difflib.unified_diff(comparable(theirs), expected, "theirs", "ours", lineterm="")
    pytest.fail(f"after {words}:\n" + "\n".join(difference), pytrace=False)


def comparable(side: sides.Side) -> list[str]:
    return sides.summary(side.objects())
