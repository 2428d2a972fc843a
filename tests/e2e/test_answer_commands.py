"""Commands that look or ask, and the same from Python, on a real API server with our scheduler and hollow nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import errors, sdk
from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.support import cluster as planes
from tests.support import live

pytestmark = pytest.mark.slow
NAMESPACE = "answer-commands"
HELD = """
apiVersion: v1
kind: Pod
metadata: {name: held}
spec:
  schedulerName: dovetail
  schedulingGates: [{name: example.com/review}]
  containers: [{name: a, image: x}]
"""
TRAIN = ("--image", "train:1", "--type", "h100", "--gpus", "2", "--time", "2h", "--name", "train")
Command = Callable[..., running.Run]


@pytest.fixture(scope="module")
def shared() -> Iterator[live.Live]:
    """The shared cluster, with a namespace that goes again."""
    result = live.cluster(kube_binaries.DEFAULT)
    planes.kubectl(result.plane, "create", "namespace", NAMESPACE)
    yield result
    result.delete_namespace(NAMESPACE)


@pytest.fixture
def dovetail(shared: live.Live, tmp_path: Path) -> Command:
    """Runs a command on that cluster."""

    def run(*words: str, stdin: str | None = None) -> running.Run:
        cut = words.index("--") if "--" in words else len(words)
        options = ("--kubeconfig", str(shared.plane.kubeconfig))
        arguments = (*words[:cut], *options, *words[cut:])
        return running.inside(tmp_path / "none", *arguments, stdin=stdin)

    return run


def data(done: running.Run) -> Any:
    assert done.code in (0, 1), done.err
    return json.loads(done.out)


def test_the_fix_that_why_shows_is_applied_with_kubectl_while_when_follows(
    shared: live.Live, dovetail: Command, tmp_path: Path
) -> None:
    place = ("-n", NAMESPACE)
    assert dovetail("apply", *place, "-f", "-", stdin=HELD).code == 0
    answer = data(dovetail("why", "pod/held", *place, "-o", "json"))
    assert not answer["schedulable"]
    (fix, *_) = answer["fixes"]
    (patch,) = fix["patch"]
    assert patch["object"]["kind"] == "Pod"

    kubeconfig = str(shared.plane.kubeconfig)
    with subprocess.Popen(
        [*running.PROGRAM, "when", "held", *place, "-w", "--kubeconfig", kubeconfig],
        env=running.environment(tmp_path / "none"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        merge = json.dumps(patch["merge"])
        planes.kubectl(shared.plane, "patch", "pod", "held", *place, "--type=merge", "-p", merge)
        rest, said = following.communicate(timeout=running.PATIENCE_SECONDS)
    assert first, said
    assert following.returncode == 0, said
    assert "start" in rest, (rest, said)
    pod = planes.get(shared.plane, "pod", "held", *place)
    assert pod["spec"]["nodeName"]
    assert dovetail("why", "pod/held", *place).code == 0
    assert dovetail("delete", "pod", "held", *place).out == 'pod "held" deleted\n'


def test_a_job_as_every_command_and_the_sdk_see_it(
    shared: live.Live, dovetail: Command, tmp_path: Path
) -> None:
    place = ("-n", NAMESPACE)
    submitted = dovetail("run", *place, *TRAIN, "-y", "-d", "--", "python", "train.py")
    assert submitted.code == 0, submitted.err
    assert dovetail("wait", *place, "train", "--for", "started", "--timeout", "2m").code == 0

    pods = data(dovetail("get", "pods", *place, "-o", "json"))["items"]
    (name,) = [pod["metadata"]["name"] for pod in pods]
    node = planes.get(shared.plane, "pod", name, *place)["spec"]["nodeName"]
    described = dovetail("describe", "pod", name, *place)
    assert node in described.out, described.err
    for words in (
        ("get", "gpus"),
        ("get", "nodes", "-o", "wide"),
        ("get", "claims", "-A"),
        ("top", "--by", "node"),
        ("explain", "pods.spec.schedulerName"),
        ("capacity", "--gpus", "1"),
        ("why", "-A"),
        ("when", "-A"),
    ):
        done = dovetail(*words)
        assert done.code == 0, (words, done.err)
        assert done.out or "nothing waits" in done.err, words
    drained = data(dovetail("what-if", "--drain", f"node/{node}", "-o", "json"))

    saved = tmp_path / "saved"
    assert dovetail("snapshot", "save", str(saved)).code == 0
    of_snapshot = running.inside(tmp_path / "none", "queue", "train", "--snapshot", str(saved))
    assert "job/train" in of_snapshot.out

    cluster = sdk.Cluster.connect(kubeconfig=shared.plane.kubeconfig)
    (work,) = cluster.work("train", namespace=NAMESPACE)
    (row,) = data(dovetail("queue", "train", *place, "-o", "json"))["items"]
    assert (work.name, work.state, work.gpus) == (row["name"], row["state"], row["gpus"])
    assert work.gpus == 2
    assert len(cluster.gpus()) == len(planes.get(shared.plane, "nodes")["items"])
    assert cluster.why(f"pod/{name}", namespace=NAMESPACE).schedulable
    (shape,) = cluster.capacity(gpus=1).shapes
    printed = data(dovetail("capacity", "--gpus", "1", "-o", "json"))["shapes"]
    assert [shape.now] == [each["now"] for each in printed]
    outcome = cluster.what_if(drain=f"node/{node}")
    assert len(outcome.difference.moved) == len(drained["difference"]["moved"])

    assert dovetail("cancel", *place, "train", "--yes").code == 0
    shared.wait_for(
        "its pods to go", lambda: not planes.get(shared.plane, "jobs,pods", *place)["items"]
    )
    with pytest.raises(errors.NotFound):
        cluster.refresh().work("train", namespace=NAMESPACE)
