"""Clusters are chosen as on the command line, read once, read again on demand, and never changed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dovetail import sdk
from dovetail.sdk import Changes, Cluster, InputError, NotFound, StateError, Unavailable
from tests.cli import embedded, running

POD = """
apiVersion: v1
kind: Pod
metadata: {namespace: default, name: NAME}
spec: {containers: [{name: main, image: training}]}
"""


def names(cluster: Cluster) -> set[str]:
    return {pod.name for pod in cluster.pods(namespace="default")}


def test_a_state_directory_and_its_kubeconfig_mean_the_same_cluster(
    running_cluster: embedded.Embedded, cluster: Cluster
) -> None:
    directory = running_cluster.directory
    by_state = Cluster.connect(state=directory)
    by_kubeconfig = Cluster.connect(kubeconfig=directory / "kubeconfig")
    assert by_state.name == "embedded small"
    assert by_kubeconfig.name.startswith("https://127.0.0.1")
    saved = {node.name for node in cluster.nodes()}
    assert {node.name for node in by_state.nodes()} == saved
    assert {node.name for node in by_kubeconfig.nodes()} == saved
    assert by_state.namespace == by_kubeconfig.namespace == "default"
    assert by_state.gpus().to_dicts() == cluster.gpus().to_dicts()
    answer = by_state.why("big", namespace="speech")
    assert answer.cause == cluster.why("big", namespace="speech").cause


def test_a_cluster_can_be_read_inside_an_event_loop_as_in_a_notebook(
    running_cluster: embedded.Embedded,
) -> None:
    async def cell() -> int:
        return len(Cluster.connect(state=running_cluster.directory).refresh().nodes())

    assert asyncio.run(cell()) == 5


def test_nothing_is_read_until_refresh_and_earlier_results_stay(
    running_cluster: embedded.Embedded,
) -> None:
    state = running_cluster.directory
    cluster = Cluster.connect(state=state)
    before, read_at = cluster.pods(namespace="default"), cluster.now
    assert running.inside(state, "apply", "-f", "-", stdin=POD.replace("NAME", "later")).code == 0
    try:
        assert "later" not in names(cluster)
        assert cluster.refresh() is cluster
        assert "later" in names(cluster)
        assert cluster.now > read_at
        assert "later" not in {pod.name for pod in before}
    finally:
        running.inside(state, "delete", "pod", "later")


def test_a_reading_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(POD.replace("NAME", "a"))
    cluster = Cluster.load(file)
    file.unlink()
    with pytest.raises(InputError):
        cluster.refresh()
    assert names(cluster) == {"a"}


def test_files_as_kubectl_prints_them_are_a_cluster(
    running_cluster: embedded.Embedded, tmp_path: Path
) -> None:
    for kind in ("nodes", "resourceslices", "pods", "resourceclaims", "deviceclasses"):
        run = running.inside(running_cluster.directory, "get", kind, "-A", "-o", "json")
        (tmp_path / f"{kind}.json").write_text(run.out)
    cluster = Cluster.load(tmp_path)
    assert len(cluster.nodes()) == 5
    assert cluster.problems == ()
    assert not cluster.queues()
    assert cluster.why("big", namespace="speech").cause is not None


def test_what_could_not_be_read_is_named(tmp_path: Path) -> None:
    good = POD.replace("NAME", "a")
    (tmp_path / "pods.yaml").write_text(f"{good}---\napiVersion: v1\nkind: Pod\nspec: 3\n")
    cluster = Cluster.load(tmp_path)
    assert names(cluster) == {"a"}
    assert len(cluster.problems) == 1


def test_without_a_cluster_the_error_says_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="next: dovetail up"):
        Cluster.connect(state=tmp_path)
    with pytest.raises(
        InputError, match="state names the embedded cluster, kubeconfig and context"
    ):
        Cluster.connect(state=tmp_path, context="x")
    with pytest.raises(InputError, match="give its url"):
        Cluster.connect(token="x")
    with pytest.raises(InputError, match="standard input"):
        Cluster.load("-")
    with pytest.raises(InputError):
        Cluster.load(tmp_path / "absent")


def test_a_cluster_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(json.dumps(tree))
    with pytest.raises(Unavailable):
        Cluster.connect(kubeconfig=file)


def test_threads_share_a_cluster(cluster: Cluster) -> None:
    answers: list[object] = []

    def ask() -> None:
        answers.append((cluster.why("big", namespace="speech"), cluster.what_if(add="1xh100")))
        answers.append((cluster.why("big", namespace="speech"), cluster.what_if(add="1xh100")))
        cluster.pods()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answer == answers[0] for answer in answers)


def test_names_that_mean_nothing_suggest_what_was_meant(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="did you mean big"):
        cluster.why("bigg", namespace="speech")
    with pytest.raises(NotFound, match='give namespace="speech"'):
        cluster.why("big")
    with pytest.raises(NotFound, match="did you mean vision"):
        cluster.work("vison")
    with pytest.raises(NotFound, match="did you mean big"):
        cluster.when("bigg")
    with pytest.raises(NotFound, match="did you mean h100-0"):
        cluster.pods(node="h100-00")
    with pytest.raises(NotFound, match="not found in namespace vision"):
        cluster.capacity(like="vision/absent")
    with pytest.raises(LookupError):
        cluster.why("bigg", namespace="speech")


def test_a_queue_without_work_is_no_mistake(cluster: Cluster) -> None:
    assert len(cluster.work("research")) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give at least one change"),
        ({"add": "x"}, "add x"),
        ({"add": 3}, "expected a text or several"),
        ({"add": [3]}, "add: expected a text"),
        ({"set": {"queue/absent.quota": 1}}, "absent"),
        ({"add": "1xh100", "horizon": "soon"}, 'horizon "soon"'),
        ({"add": "1xh100", "prices": {"h100": "much"}}, "price"),
        ({"work": {"kind": "Pod"}}, "apiVersion"),
        ({"work": {"kind": object()}}, "JSON"),
        ({"work": "-"}, "standard input"),
        ({"work": []}, "no objects found"),
        ({"work": 3}, "expected a path, text or objects"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    cluster: Cluster, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        cluster.what_if(**arguments)  # type: ignore[arg-type]


def test_changes_are_given_in_one_way(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="in order, or by keyword"):
        cluster.what_if([("add", "1xh100")], add="1xh100")
    with pytest.raises(InputError, match="did you mean drain"):
        cluster.what_if([("drian", "node/a")])
    with pytest.raises(InputError, match="expected a verb and a text"):
        Changes(["add"])  # type: ignore[list-item]


def test_changes_grow_without_changing() -> None:
    first = Changes().add("1xh100", "2xl4")
    second = first.set({"queue/a.quota": 8}).remove("node/a").cordon("b").uncordon("b").drain("c")
    assert list(first) == [("add", "1xh100"), ("add", "2xl4")]
    assert list(second.end("job/x").work({"kind": "Pod"}))[2:] == [
        ("set", "queue/a.quota=8"),
        ("remove", "node/a"),
        ("cordon", "b"),
        ("uncordon", "b"),
        ("drain", "c"),
        ("end", "job/x"),
        ("work", {"kind": "Pod"}),
    ]
    assert Changes(list(second)) == second
    assert eval(repr(second)) == second


def test_shapes_that_cannot_be_are_refused_in_the_words_of_python(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="mig names a slice, gpu_memory its size"):
        cluster.capacity(mig="1g.10gb", gpu_memory="10Gi")
    with pytest.raises(InputError, match="gpus is 33; expected 0 to 32"):
        cluster.capacity(gpus=33)
    with pytest.raises(InputError, match="gang is 0"):
        cluster.capacity(gpus=1, gang=0)
    with pytest.raises(InputError, match="level says where a gang must fit: give gang as well"):
        cluster.capacity(gpus=1, level="rack")
    with pytest.raises(InputError, match="did you mean queue"):
        cluster.usage(by="queues")
    with pytest.raises(InputError, match='labels "a in'):
        cluster.nodes(labels="a in (b")


def test_the_configuration_of_the_scheduler_counts(snapshot: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Cluster.load(snapshot, config=tmp_path / "absent.yaml")
    configured = running.EXAMPLES / "configuration" / "scheduler.yaml"
    assert len(Cluster.load(snapshot, config=configured).nodes()) == 5


def test_importing_loads_no_engine_and_no_network() -> None:
    heavy = ("dovetail.world", "dovetail.schedule", "dovetail.cel", "dovetail.kube", "dovetail.sim")
    code = (
        "import sys; from dovetail.sdk import Cluster, Changes, NotFound, Table;"
        f"print([n for n in sys.modules if n.startswith({heavy!r}) or n in ('aiohttp', 'yaml')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_of_the_package_can_be_had() -> None:
    for name in sdk.__all__:
        assert getattr(sdk, name) is not None
    assert dir(sdk) == sdk.__all__
    with pytest.raises(AttributeError, match="Clustr"):
        sdk.Clustr  # noqa: B018
