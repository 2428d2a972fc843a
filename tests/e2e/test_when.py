"""`dovetail when` against a real API server: it reads what is there, says what will be, and writes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.e2e.namespace_scene import SCENE, Scene, Tree, exactly, pod_tree, scene
from tests.support import cluster as planes
from tests.support import live, rest
from tests.support.live import Live

pytestmark = pytest.mark.slow
KINDS = ("queues.dovetail.dev", "topologies.dovetail.dev", "intents.dovetail.dev")
READER = "when-reader"
HOUR = {"dovetail.dev/max-runtime": "1h"}
SLACK = datetime.timedelta(seconds=30)  # pods start a moment after they are bound


@pytest.fixture(scope="module")
def defined() -> Iterator[Live]:
    """The shared cluster with our own kinds; they go again."""
    result = live.cluster(kube_binaries.DEFAULT)
    planes.apply(
        result.plane, [item for item in live.installed() if item["metadata"]["name"] in KINDS]
    )
    for name in KINDS:
        planes.kubectl(
            result.plane, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s"
        )
    result.wait_for("our kinds to be served", lambda: _are_served(result))
    yield result
    planes.kubectl(result.plane, "delete", "crd", *KINDS, "--ignore-not-found")


def _are_served(result: Live) -> bool:
    try:
        for name in KINDS:
            result.rest.list(name.partition(".")[0])
    except rest.RefusedError:  # its storage is being made
        return False
    return True


@pytest.fixture(scope="module")
def reader(defined: Live) -> Path:
    """A kubeconfig of a user who may read everything and change nothing."""
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": "default"}
    role: Tree = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": READER},
        "rules": rules,
    }
    binding: Tree = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": READER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
        "subjects": [subject],
    }
    account: Tree = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER}}
    planes.apply(defined.plane, [account, role, binding])
    token = planes.kubectl(
        defined.plane, "create", "token", READER, "-n", "default", "--duration=1h"
    ).strip()
    return defined.plane.write_kubeconfig(READER, token=token)


@pytest.fixture
def story(defined: Live) -> Iterator[Scene]:
    with scene(defined) as scenes:
        yield scenes


def queue(story: Scene, **spec: Any) -> None:
    """One for this namespace alone."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": story.namespace}}
    head = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": story.namespace},
    }
    story.put("queues", head | {"spec": {"namespaceSelector": selector, **spec}})
    story.wait(
        "the queue to be known", lambda: story.rest.read("queues", story.namespace).get("status")
    )


def job(story: Scene, name: str, pods: int, **annotations: str) -> None:
    """A Job all of whose pods have to run at once, a GPU each."""
    template = pod_tree(name, templates=["gpu"])
    template["spec"]["nodeSelector"] = {SCENE: story.namespace, "example.com/kind": "pair"}
    spec = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "template": {"spec": template["spec"]},
    }
    notes = {"dovetail.dev/gang-min": str(pods)} | {
        f"dovetail.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    tree = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": notes},
        "spec": spec,
    }
    planes.apply(story.live.plane, [tree], namespace=story.namespace)


def pinned(story: Scene, name: str, kind: str, **annotations: str) -> None:
    """A pod for a node of one kind."""
    notes = {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    selector = {SCENE: story.namespace, "example.com/kind": kind}
    story.pod(name, templates=["gpu"], annotations=notes, nodeSelector=selector)


def test_when_shows_what_the_scheduler_promised_and_which_starts_are_unknown(
    story: Scene, reader: Path, tmp_path: Path
) -> None:
    story.classed()
    story.template()
    for name, kind, gpus in (("pair", "pair", 2), ("single", "single", 1)):
        node = story.node(name, labels={"example.com/kind": kind})
        story.slice(node, [{"name": f"gpu-{number}"} for number in range(gpus)])
    queue(story)
    pinned(story, "bert", "pair", expected_runtime="20m", max_runtime="30m")
    pinned(story, "notebook", "single")
    story.wait_running("bert", "notebook")
    job(story, "train", 2, max_runtime="1h")
    pinned(story, "eval", "single", max_runtime="10m")
    other = pod_tree("theirs", templates=["gpu"], scheduler="another-scheduler")
    story.rest.create("pods", other, story.namespace)
    waiting = story.wait(
        "the Job's pods", lambda: [pod for pod in story.pods() if pod.startswith("train-")][1:]
    )[0]
    story.wait_refused(waiting, "starts by")
    story.wait_refused("eval", "unbounded: 1 holder states no runtime")

    run = running.inside(
        tmp_path, "when", "-n", story.namespace, "-o", "json", "--kubeconfig", str(reader)
    )
    assert run.code == 0, run.err
    train, held = msgspec.json.decode(run.out)
    assert train["gang"] == {"namespace": story.namespace, "name": "job/train"}
    assert len(train["members"]) == 2
    assert train["why"] == f"when {story.namespace}/pod/bert ends"
    began = datetime.datetime.fromisoformat(story.pods()["bert"]["status"]["startTime"])
    start, latest = (datetime.datetime.fromisoformat(train[name]) for name in ("start", "latest"))
    assert start == began + datetime.timedelta(minutes=20)
    assert latest == began + datetime.timedelta(minutes=30)
    promised_start = story.wait_refused(waiting, "starts by").rpartition("starts by ")[2]
    assert abs(datetime.datetime.fromisoformat(promised_start) - start) <= SLACK
    assert (held["gang"]["name"], held["start"]) == ("pod/eval", None)
    assert held["why"] == "unbounded: 1 holder states no runtime"


def test_one_name_in_a_table_and_a_configuration_that_waits_for_other_pods(
    story: Scene, reader: Path, tmp_path: Path
) -> None:
    story.fleet(nodes=1, gpus=1)
    story.template("two", exactly("gpu", story.device_class, count=2))
    story.pod("greedy", templates=["two"])
    story.wait_refused("greedy", "")
    options = ("-n", story.namespace, "--kubeconfig", str(reader))
    shown = running.inside(tmp_path, "when", "pod/greedy", *options)
    assert shown.code == 0, shown.err
    assert shown.column("GANG") == [f"{story.namespace}/pod/greedy"]
    assert shown.column("WHY")[0].startswith("never, as things are: ")
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nschedulerNames: [other]\n"
    )
    none = running.inside(tmp_path, "when", *options, "--config", str(file))
    assert (none.code, none.out) == (0, "")
    assert none.err.startswith("nothing waits\n")


def test_a_promise_is_kept_although_another_gang_is_older(
    story: Scene, reader: Path, tmp_path: Path
) -> None:
    """No scheduler places these pods, so that the test writes the promise."""
    node = story.node("n0")
    for name, more in (("first", {"nodeName": node}), ("older", {}), ("younger", {})):
        story.pod(name, limits={"cpu": "60"}, schedulerName="other", annotations=HOUR, **more)
    story.wait_running("first")
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nschedulerNames: [other]\n"
    )

    def names() -> list[str]:
        options = (
            "-n",
            story.namespace,
            "--config",
            str(file),
            "--kubeconfig",
            str(reader),
            "-o",
            "json",
        )
        run = running.inside(tmp_path, "when", *options)
        assert run.code == 0, run.err
        return [item["gang"]["name"] for item in msgspec.json.decode(run.out)]

    assert names() == ["pod/older", "pod/younger"]
    began = datetime.datetime.fromisoformat(story.pods()["first"]["status"]["startTime"])
    start = (began + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    seat = {"pod": "younger", "uid": story.pods()["younger"]["metadata"]["uid"], "node": node}
    spec = {"gang": "pod/younger", "attempt": 1, "promise": {"start": start, "seats": [seat]}}
    head = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": "promised"},
    }
    story.rest.create("intents", head | {"spec": spec}, story.namespace)
    assert names() == ["pod/younger", "pod/older"]


def test_topologies_are_shown_and_missing_rights_are_named(
    story: Scene, reader: Path, tmp_path: Path
) -> None:
    levels = {"levels": [{"nodeLabel": "example.com/rack"}]}
    head = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": story.namespace},
    }
    story.put("topologies", head | {"spec": levels})
    shown = running.inside(
        tmp_path, "get", "topologies", story.namespace, "--kubeconfig", str(reader)
    )
    assert shown.code == 0, shown.err
    assert shown.column("TOPOLOGY") == [story.namespace]
    plane = story.live.plane
    token = planes.kubectl(
        plane, "create", "token", "default", "-n", story.namespace, "--duration=1h"
    ).strip()
    stranger = plane.write_kubeconfig("when-stranger", token=token)
    refused = running.inside(tmp_path, "when", "--kubeconfig", str(stranger))
    assert (refused.code, refused.out) == (1, "")
    assert "cannot list resource" in refused.err
