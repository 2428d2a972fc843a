"""`dovetail get queues` and `get topologies` of the cluster in memory: the tree, what is wrong, the objects."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cli import running
from tests.support import waiting

QUEUES = """
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec:
  resources: {gpu: {quota: 16}}
---
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: vision-10}
spec:
  parent: research
  priority: 10
  resources: {nvidia.com/gpu: {quota: "2.5", limit: 16, weight: 2}, cpu: {quota: 8}}
  namespaceSelector: {matchLabels: {team: vision}}
  aliases: [see/user-queue]
---
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: vision-9}
spec: {parent: research, namespaceSelector: {}}
---
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: lost}
spec: {parent: gone}
---
apiVersion: dovetail.dev/v1alpha1
kind: Topology
metadata: {name: racks}
spec:
  levels:
    - {nodeLabel: topology.kubernetes.io/zone}
    - {nodeLabel: example.com/rack, alias: rack}
"""


def test_applying_a_queue_that_hangs_nowhere_says_so(state: Path) -> None:
    done = running.inside(state, "apply", "-f", "-", stdin=QUEUES)
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if line.startswith("queue ")]
    assert lines == ["queue lost: parent gone does not exist; create it or remove spec.parent"]


def test_queues_are_shown_as_a_tree_with_numbers_and_problems(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=QUEUES).code == 0
    shown = running.inside(state, "get", "queues")
    first = [line.split("   ")[0].rstrip() for line in shown.lines[1:]]
    assert first == ["research", "  vision-9", "  vision-10", "lost"]
    assert shown.column("QUOTA") == ["16", "-", "2.5", "-"]
    assert shown.column("LIMIT") == ["all", "-", "16", "-"]
    assert shown.column("READY") == ["yes", "yes", "yes", "no (ParentMissing)"]
    wide = running.inside(state, "get", "queues", "-o", "wide")
    assert wide.column("NAMESPACES") == ["none", "every", "team=vision", "none"]
    assert wide.column("ALIASES")[2] == "see/user-queue"
    assert wide.column("OTHERS")[2].startswith("cpu ")
    assert wide.column("MESSAGE")[3].startswith("parent gone does not exist")


def test_queues_are_printed_with_their_status(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=QUEUES).code == 0
    shown = running.inside(state, "get", "queue", "lost", "-o", "json")
    lost = msgspec.json.decode(shown.out)
    (condition,) = lost["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Ready",
        "False",
        "ParentMissing",
    )
    assert lost["status"]["observedGeneration"] == 1
    again = running.inside(state, "apply", "-f", "-", stdin=QUEUES)
    assert {line.rpartition(" ")[2] for line in again.lines} == {"unchanged"}
    later = running.inside(state, "get", "queue", "lost", "-o", "json")
    assert later.out == shown.out, "a look changes nothing"
    assert running.inside(state, "get", "queues", "lost", "-o", "name").lines == [
        "queue.dovetail.dev/lost"
    ]


def test_a_repaired_queue_is_ready(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=QUEUES).code == 0
    gone = "apiVersion: dovetail.dev/v1alpha1\nkind: Queue\nmetadata: {name: gone}\nspec: {}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=gone).code == 0
    running.until(
        state,
        "get",
        "queues",
        shows=lambda run: set(run.column("READY")) == {"yes"},
        what="its child is ready, too",
    )


def test_topologies_are_shown_with_their_levels(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=QUEUES).code == 0
    shown = running.inside(state, "get", "topologies")
    assert shown.column("LEVELS") == ["topology.kubernetes.io/zone > rack"]


def test_what_makes_no_sense_is_refused_with_its_place(state: Path) -> None:
    wrong = QUEUES.replace("limit: 16", "limit: 1")
    done = running.inside(state, "apply", "-f", "-", stdin=wrong)
    assert done.code == 1
    assert (
        "Queue vision-10: spec.resources[nvidia.com/gpu].limit: limit must be at least quota"
        in done.err
    )


def test_a_kubeconfig_that_is_not_there_is_named(state: Path) -> None:
    done = running.inside(state, "get", "pods", "--kubeconfig", "nowhere")
    assert done.code == 1
    assert "nowhere: no such file" in done.err


def test_a_queue_takes_back_what_it_is_sure_of(state: Path) -> None:
    """The story of the documents: six of vision run, then speech wants its four of the eight."""
    folder = running.EXAMPLES / "queues"
    assert running.inside(state, "apply", "-f", str(folder / "teams.yaml")).code == 0
    assert running.inside(state, "apply", "-f", str(folder / "vision.yaml")).code == 0
    wait_for_gpus(state, ["6", "0", "6"])
    assert running.inside(state, "apply", "-f", str(folder / "speech.yaml")).code == 0
    wait_for_gpus(state, ["8", "4", "4"])
    assert running.inside(state, "get", "queues").column("FAIR") == ["8", "4", "4"]
    wait_for_pods(state, {"speech": 4, "vision": 4})
    waiting.wait_until(
        lambda: len(running.inside(state, "get", "claims", "-A", "-o", "name").lines) == 8,
        "the claims of those that yielded are gone",
    )


def test_work_without_a_queue_takes_what_is_left_over_and_is_sure_of_nothing(state: Path) -> None:
    folder = running.EXAMPLES / "queues"
    assert running.inside(state, "apply", "-f", str(folder / "teams.yaml")).code == 0
    bare = (running.EXAMPLES / "one-gpu.yaml").read_text(encoding="utf-8")
    ends = "name: one-gpu\n  annotations: {dovetail.dev/when-evicted: end}\n"
    free = bare.replace(
        "kind: Pod\nmetadata:\n  name: one-gpu\n", f"kind: Pod\nmetadata:\n  {ends}"
    )
    assert running.inside(state, "apply", "-f", "-", stdin=free).code == 0
    firm = bare.replace(
        "name: one-gpu\n", "name: firm\n  labels: {dovetail.dev/preemptible: 'false'}\n"
    )
    firm = firm.replace("resourceClaimName: one-gpu", "resourceClaimName: firm")
    assert running.inside(state, "apply", "-f", "-", stdin=firm).code == 0
    pods = running.inside(state, "get", "pods", "-o", "wide")
    assert dict(zip(pods.column("NAME"), pods.column("STATUS"), strict=True)) == {
        "one-gpu": "Running",
        "firm": "Pending",
    }
    assert (
        "work without a queue: 0 in use and 1 wanted exceed its quota, 0 gpu, which is all"
        in pods.out
    )


def test_where_several_queues_take_a_namespace_its_work_has_to_name_one(state: Path) -> None:
    folder = running.EXAMPLES / "queues"
    assert running.inside(state, "apply", "-f", str(folder / "teams.yaml")).code == 0
    for_all = "apiVersion: dovetail.dev/v1alpha1\nkind: Queue\nmetadata: {name: any}\nspec: {namespaceSelector: {}}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=for_all).code == 0
    assert running.inside(state, "apply", "-f", str(folder / "vision.yaml")).code == 0
    pods = running.inside(state, "get", "pods", "-n", "vision", "-o", "wide")
    assert set(pods.column("WHY NOT")) == {
        "namespace vision may use 2 queues (any, vision); name one by label dovetail.dev/queue"
    }


def test_wide_shows_the_gang_and_the_queue_of_a_pod(state: Path) -> None:
    folder = running.EXAMPLES / "queues"
    for file in (folder / "teams.yaml", folder / "vision.yaml", running.EXAMPLES / "gang.yaml"):
        assert running.inside(state, "apply", "-f", str(file)).code == 0
    shown = running.inside(state, "get", "pods", "-A", "-o", "wide")
    places = dict(
        zip(
            shown.column("NAME"),
            zip(shown.column("GANG"), shown.column("QUEUE"), strict=True),
            strict=True,
        )
    )
    assert places["sweep-0"] == ("-", "vision")
    assert places["llama-0"] == places["llama-1"] == ("gang/llama", "-")


def test_work_that_may_not_use_its_queue_waits_and_says_what_to_do(state: Path) -> None:
    folder = running.EXAMPLES / "queues"
    assert running.inside(state, "apply", "-f", str(folder / "teams.yaml")).code == 0
    stray = (
        (folder / "vision.yaml")
        .read_text(encoding="utf-8")
        .replace("  annotations:", "  labels: {dovetail.dev/queue: speech}\n  annotations:")
    )
    assert running.inside(state, "apply", "-f", "-", stdin=stray).code == 0
    pods = running.inside(state, "get", "pods", "-n", "vision", "-o", "wide")
    assert set(pods.column("STATUS")) == {"Pending"}
    assert "queue speech does not take namespace vision" in pods.out


def test_a_gang_waits_as_a_whole_for_what_its_queue_may_have(state: Path) -> None:
    """Two pods of eight GPUs that nothing makes again, and a queue whose quota is twelve; then sixteen."""
    queue = "apiVersion: dovetail.dev/v1alpha1\nkind: Queue\nmetadata: {name: all}\n"
    spec = "spec: {namespaceSelector: {}, resources: {gpu: {quota: %d}}}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=queue + spec % 12).code == 0
    assert running.inside(state, "apply", "-f", str(running.EXAMPLES / "gang.yaml")).code == 0
    assert running.inside(state, "get", "pods").column("STATUS") == ["Pending", "Pending"]
    waiting.wait_until(
        lambda: running.inside(state, "get", "queues").column("PENDING") == ["1"], "one gang waits"
    )
    assert running.inside(state, "apply", "-f", "-", stdin=queue + spec % 16).code == 0
    wait_for_gpus(state, ["16"])
    wait_for_pods(state, {"default": 2})
    running.until(
        state,
        "get",
        "queues",
        shows=lambda run: (run.column("RUNNING"), run.column("PENDING")) == (["1"], ["0"]),
        what="the gang runs, and none waits",
    )


def wait_for_gpus(state: Path, numbers: list[str]) -> None:
    """Until the queues report that they use so many GPUs."""

    def shown() -> list[str]:
        return running.inside(state, "get", "queues").column("GPUS")

    waiting.wait_until(lambda: shown() == numbers, f"GPUs {numbers}", so_far=lambda: str(shown()))


def wait_for_pods(state: Path, numbers: dict[str, int]) -> None:
    """Until so many pods run in each namespace, and there are no others: those that yielded are gone."""
    expected = [(name, "Running") for name, count in numbers.items() for _ in range(count)]

    def shown(run: running.Run) -> list[tuple[str, str]]:
        rows = zip(run.column("NAMESPACE"), run.column("STATUS"), strict=True)
        return sorted(rows)

    running.until(
        state, "get", "pods", "-A", shows=lambda run: shown(run) == expected, what=str(numbers)
    )
