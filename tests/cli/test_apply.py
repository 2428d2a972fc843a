"""`dovetail apply`: files in, all objects or none, and messages that name file, object, field and expectation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from tests.cli import embedded, running

EXAMPLES = sorted(running.EXAMPLES.glob("*.yaml"))

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""


def claim(name: str) -> str:
    return CLAIM.replace("NAME", name)


def claim_names(state: Path) -> list[str]:
    listed = running.inside(state, "get", "claims", "-A", "-o", "json")
    return [item["metadata"]["name"] for item in msgspec.json.decode(listed.out)["items"]]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_passes_a_dry_run_in_a_fresh_directory(path: Path, empty: Path) -> None:
    run = running.inside(empty, "apply", "--dry-run=client", "-f", str(path))
    assert run.code == 0, run.err
    assert run.lines
    assert all(line.endswith(" created (dry run)") for line in run.lines)
    assert not empty.exists()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_applies_and_applies_again_unchanged(path: Path, state: Path) -> None:
    rehearsed = running.inside(state, "apply", "--dry-run", "-f", str(path))
    assert all(line.endswith(" created (dry run)") for line in rehearsed.lines)
    assert running.inside(state, "apply", "-f", str(path)).code == 0
    again = running.inside(state, "apply", "-f", str(path))
    assert again.lines
    assert all(line.endswith(" unchanged") for line in again.lines)


def test_lines_read_like_kubectls_and_the_last_one_says_what_next(state: Path) -> None:
    run = running.inside(state, "apply", "-f", str(running.EXAMPLES / "one-gpu.yaml"))
    assert run.lines == ["resourceclaim.resource.k8s.io/one-gpu created", "pod/one-gpu created"]
    assert run.err.splitlines()[-1] == "next: dovetail get claims"
    train = running.inside(state, "apply", "-f", str(running.EXAMPLES / "eight-gpus-one-node.yaml"))
    assert train.err.splitlines()[-1] == "next: dovetail get claims -n train"


def test_a_changed_label_is_configured(state: Path) -> None:
    running.inside(state, "apply", "-f", "-", stdin=claim("a"))
    labelled = claim("a").replace("{name: a}", "{name: a, labels: {team: red}}")
    assert running.inside(state, "apply", "-f", "-", stdin=labelled).lines == [
        "resourceclaim.resource.k8s.io/a configured"
    ]
    bare = running.inside(state, "apply", "-f", "-", stdin=claim("a"))
    assert bare.lines == ["resourceclaim.resource.k8s.io/a configured"]
    shown = msgspec.json.decode(running.inside(state, "get", "claims", "a", "-o", "json").out)
    assert "labels" not in shown["metadata"]


def test_one_bad_document_keeps_everything_out(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(claim("good") + "---" + claim("bad").replace("gpu.nvidia.com", "Not/Good"))
    run = running.inside(state, "apply", "-f", str(file))
    assert (run.code, run.out) == (1, "")
    [first, last] = run.err.splitlines()
    assert first.startswith(f"error: {file}: document 2 (line ")
    assert "ResourceClaim default/bad: spec.devices.requests[0].exactly.deviceClassName: " in first
    assert last == "nothing was applied: 1 problem"
    assert claim_names(state) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (claim("a").replace("deviceClassName", "deviceClass"), 'unknown field "deviceClass"; did you mean'),
        (claim("a").replace("[{name: gpu,", "[{name: 5,"), "spec.devices.requests[0].name: expected text, got 5"),
        (claim("a").replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1"), "write it as resource.k8s.io/v1"),
        (claim("a").replace("kind: ResourceClaim", "kind:"), "kind: expected text, got null"),
        (claim("A_a"), "metadata.name: "),
        (claim("a").replace("{name: a}", "{name: a, namespace: far}"), 'namespaces "far" not found'),
        (
            claim("a").replace("nvidia.com}}", "nvidia.com, selectors: [{cel: {expression: 'device.'}}]}}"),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: ",
        ),
        ("a: [1", "document 1"),
        ("- just\n- a list", "expected an object with apiVersion and kind, got a list"),
        ("", "no objects found"),
        ("# nothing here\n---\n", "no objects found"),
    ],
)  # fmt: skip
def test_a_refusal_says_where_and_what_was_expected(state: Path, text: str, expected: str) -> None:
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert (run.code, run.out) == (1, "")
    assert expected in run.err
    assert run.err.splitlines()[-1].startswith("nothing was applied: ")
    assert claim_names(state) == []


def test_directories_files_and_input_go_together(state: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "b.yaml").write_text(claim("b"))
    (folder / "a.json").write_text(
        '{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim",'
        '"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"g","exactly":{"deviceClassName":"x"}}]}}}]}'
    )
    (folder / "notes.txt").write_text("not a manifest")
    run = running.inside(
        state, "apply", "-f", str(folder), "-f", "-", "-o", "name", stdin=claim("c")
    )
    assert run.lines == [f"resourceclaim.resource.k8s.io/{name}" for name in "abc"]
    assert claim_names(state) == ["a", "b", "c"]


def test_what_cannot_be_read_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    for name in ("missing.yaml", "hollow"):
        run = running.inside(state, "apply", "-f", str(tmp_path / name))
        assert run.code == 1
        assert str(tmp_path / name) in run.err
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    assert "not UTF-8" in running.inside(state, "apply", "-f", str(binary)).err


def test_a_namespace_option_places_objects_and_must_not_contradict_them(state: Path) -> None:
    placed = "apiVersion: v1\nkind: Namespace\nmetadata: {name: train}\n---" + claim("a")
    assert running.inside(state, "apply", "-n", "train", "-f", "-", stdin=placed).code == 0
    assert running.inside(state, "get", "claims", "-n", "train").column("NAME") == ["a"]
    other = claim("b").replace("{name: b}", "{name: b, namespace: default}")
    run = running.inside(state, "apply", "-n", "train", "-f", "-", stdin=other)
    assert run.code == 1
    assert 'is "default", but -n says "train"' in run.err


def test_a_dry_run_changes_nothing_and_shows_what_would_be_stored(state: Path) -> None:
    run = running.inside(state, "apply", "--dry-run", "-o", "json", "-f", "-", stdin=claim("a"))
    item = msgspec.json.decode(run.out)
    assert item["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert claim_names(state) == []


def test_without_a_cluster_the_next_step_is_up(empty: Path) -> None:
    run = running.inside(empty, "apply", "-f", "-", stdin=claim("a"))
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines()[-1] == "next: dovetail up"
    assert not empty.exists()


def test_any_kind_is_stored_as_it_is(state: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=service)
    assert run.lines == ["service/web created"]
    shown = running.inside(state, "get", "services")
    assert shown.column("NAME") == ["web"]
    assert running.inside(state, "get", "service/web", "-o", "name").lines == ["service/web"]


def test_applying_queues_of_another_scheduler_shows_how_to_convert_them(
    state: Path,
) -> None:
    theirs = (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {}\n"
    )
    run = running.inside(state, "apply", "-f", "-", stdin=theirs)
    assert run.code == 1
    assert 'serves no "ClusterQueue" in kueue.x-k8s.io/v1beta2' in run.err
    assert "`dovetail migrate kueue` converts it" in run.err


def test_a_misspelt_kind_is_refused_with_a_suggestion(state: Path) -> None:
    wrong = "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: d}\nspec: {}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=wrong)
    assert (run.code, run.out) == (1, "")
    assert '"Deploymnt" is no kind of apps/v1; did you mean Deployment?' in run.err


def test_create_takes_generated_names_and_refuses_what_exists(state: Path) -> None:
    generated = claim("a").replace("{name: a}", "{generateName: run-}")
    for _ in range(2):
        assert running.inside(state, "create", "-f", "-", stdin=generated).code == 0
    assert len(claim_names(state)) == 2
    assert all(name.startswith("run-") for name in claim_names(state))
    refused = running.inside(state, "apply", "-f", "-", stdin=generated)
    assert "metadata.name: is required; dovetail create takes generated names" in refused.err
    assert running.inside(state, "create", "-f", "-", stdin=claim("b")).code == 0
    again = running.inside(state, "create", "-f", "-", stdin=claim("c") + "---" + claim("b"))
    assert (again.code, again.out) == (1, "")
    assert '"b" already exists' in again.err
    assert "c" not in claim_names(state), "all or none"


def test_annotations_that_will_be_ignored_are_reported_by_apply(state: Path) -> None:
    asked = "dovetail.dev/max-runtime: soon, dovetail.dev/gang-mn: '2'"
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{asked}}}}}\n"
    pod = head + "spec: {containers: [{name: a, image: b}]}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=pod)
    assert run.code == 0, "nothing is refused because of an annotation"
    assert [line.partition("Pod default/p: ")[2] for line in run.err.splitlines()[:2]] == [
        "dovetail.dev/gang-mn is ignored: unknown key; did you mean dovetail.dev/gang-min?",
        'dovetail.dev/max-runtime: "soon" is ignored: expected a duration such as 90s, 10m, 2h or 1:30:00',
    ]


def test_a_kind_our_group_does_not_have_is_refused(state: Path) -> None:
    run = running.inside(
        state,
        "apply",
        "-f",
        "-",
        stdin="apiVersion: dovetail.dev/v1alpha1\nkind: Quee\nmetadata: {name: q}\n",
    )
    assert run.code == 1
    assert (
        'Quee q: kind: "Quee" is no kind of dovetail.dev/v1alpha1; did you mean Queue?' in run.err
    )


FOREIGN = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default-queue}
spec: {parentQueue: default-parent-queue}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default-queue}
"""


def definition(group: str, version: str, kind: str) -> str:
    """A definition of a cluster-scoped kind without a schema."""
    plural = f"{kind.lower()}s" if kind == "Queue" else "topologies"
    schema = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}"
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{group}}}
spec:
  group: {group}
  scope: Cluster
  names: {{plural: {plural}, singular: {kind.lower()}, kind: {kind}, listKind: {kind}List}}
  versions: [{{name: {version}, served: true, storage: true, {schema}}}]
---"""


def test_queues_and_topologies_of_other_schedulers_are_kept_beside_ours(state: Path) -> None:
    refused = running.inside(state, "apply", "-f", "-", stdin=FOREIGN)
    assert refused.code == 1
    assert refused.err.count("the cluster serves no") == 3, "one answer each"
    assert refused.err.count("`dovetail migrate ") == 2, "Volcano's queues are not converted"

    definitions = definition("scheduling.run.ai", "v2", "Queue")
    definitions += definition("kueue.x-k8s.io", "v1beta1", "Topology")
    definitions += definition("scheduling.volcano.sh", "v1beta1", "Queue")
    ours = "---\napiVersion: dovetail.dev/v1alpha1\nkind: Queue\nmetadata: {name: default-queue}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=definitions + FOREIGN + ours)
    assert run.lines[3:] == [
        "queue.scheduling.run.ai/default-queue created",
        "topology.kueue.x-k8s.io/racks created",
        "queue.scheduling.volcano.sh/default-queue created",
        "queue.dovetail.dev/default-queue created",
    ], run.err
    again = running.inside(state, "apply", "-f", "-", stdin=FOREIGN)
    assert all(line.endswith(" unchanged") for line in again.lines)
    listed = running.inside(state, "get", "queues", "-o", "name")
    assert listed.lines == ["queue.dovetail.dev/default-queue"]


def test_a_share_that_cannot_be_given_is_named_when_it_is_written(state: Path) -> None:
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {gpu-fraction: '1.5'}}\n"
    pod = head + "spec: {containers: [{name: a, image: b}]}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=pod)
    assert 'annotation gpu-fraction: "1.5": expected a number above 0 and below 1' in run.err
    waiting = running.inside(state, "get", "pods", "-o", "json")
    assert "expected a number above 0 and below 1" in waiting.out
    assert "nodeName" not in waiting.out


def test_a_share_waits_with_a_reason_where_no_gpu_offers_any(state: Path) -> None:
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {gpu-memory: '2000'}}\n"
    pod = head + "spec: {containers: [{name: a, image: b}]}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=pod)
    assert "gpu-memory" not in run.err
    waiting = running.inside(state, "get", "pods", "-o", "json")
    assert "no GPU offers shares of its memory" in waiting.out
    assert "nodeName" not in waiting.out


def test_an_address_is_refused_with_the_command_that_reads_it(state: Path) -> None:
    run = running.inside(state, "apply", "-f", "https://example.com/x.yaml")
    assert run.code == 1
    assert "curl -fsSL https://example.com/x.yaml | dovetail apply -f -" in run.err


def test_a_kind_that_needs_a_definition_says_so(state: Path) -> None:
    domain = "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {name: a}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=domain)
    assert run.code == 1
    assert "apply its CustomResourceDefinition first" in run.err


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: x}]}
"""


def replicas(state: Path) -> int:
    shown = running.inside(state, "get", "deployment", "web", "-o", "json")
    return int(msgspec.json.decode(shown.out)["spec"]["replicas"])


def scaled_by(cluster: embedded.Embedded, manager: str, count: int) -> None:
    """Another writer changes the number of replicas, as `kubectl scale` does."""
    (kubeconfig,) = cluster.directory.glob("*kubeconfig*")
    connection = client_config.load(str(kubeconfig))
    address = "/apis/apps/v1/namespaces/default/deployments/web"

    async def scale() -> None:
        async with transport.Transport(connection) as over:
            answer = await over.request(
                "PATCH",
                address,
                params={"fieldManager": manager},
                body=msgspec.json.encode({"spec": {"replicas": count}}),
                content_type="application/merge-patch+json",
            )
            assert answer.is_success, answer.body

    asyncio.run(scale())


def test_a_field_of_another_manager_is_refused_with_its_owner_and_nothing_is_applied(
    cluster: embedded.Embedded, state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(claim("new") + "---" + DEPLOYMENT)
    assert running.inside(state, "apply", "-f", "-", stdin=DEPLOYMENT).code == 0
    scaled_by(cluster, "kubectl-scale", 3)
    refused = running.inside(state, "apply", "-f", str(file))
    assert (refused.code, refused.out) == (1, "")
    problem, count, hint = refused.err.splitlines()
    assert problem.startswith(f"error: {file}: document 2 (line ")
    assert problem.endswith(
        'Deployment web: spec.replicas: conflict with "kubectl-scale" using apps/v1'
    )
    assert count == "nothing was applied: 1 problem"
    assert "--force-conflicts" in hint
    assert claim_names(state) == [], "a file is applied whole or not at all"
    assert replicas(state) == 3
    rehearsed = running.inside(state, "apply", "--dry-run", "-f", str(file))
    assert rehearsed.code == 1

    forced = running.inside(state, "apply", "--force-conflicts", "-f", str(file))
    assert forced.lines == [
        "resourceclaim.resource.k8s.io/new created",
        "deployment.apps/web configured",
    ]
    assert replicas(state) == 1


def test_a_field_that_the_file_leaves_out_stays_its_owners(
    cluster: embedded.Embedded, state: Path
) -> None:
    without = DEPLOYMENT.replace("  replicas: 1\n", "")
    assert running.inside(state, "apply", "-f", "-", stdin=without).code == 0
    scaled_by(cluster, "autoscaler", 2)
    assert running.inside(state, "apply", "-f", "-", stdin=without).code == 0
    assert replicas(state) == 2


def test_what_was_created_here_can_be_applied_with_other_values(state: Path) -> None:
    assert running.inside(state, "create", "-f", "-", stdin=DEPLOYMENT).code == 0
    changed = DEPLOYMENT.replace("replicas: 1", "replicas: 2")
    applied = running.inside(state, "apply", "-f", "-", stdin=changed)
    assert applied.lines == ["deployment.apps/web configured"]
    assert replicas(state) == 2


@pytest.mark.parametrize(
    ("version", "kind", "hint"),
    [
        ("scheduling.k8s.io/v1alpha2", "PodGroup", "; it does in scheduling.k8s.io/v1"),
        ("apps/v1beta1", "Deployment", "; it does in apps/v1"),
        ("example.com/v1", "Robot", "; apply its CustomResourceDefinition first"),
        ("resource.k8s.io/v1alpha3", "PoolStatus", ""),
    ],
)
def test_a_kind_that_is_not_served_is_refused_with_the_version_that_is(
    state: Path, version: str, kind: str, hint: str
) -> None:
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert run.code == 1
    complaint = f'kind: the cluster serves no "{kind}" in {version}'
    line = run.err.splitlines()[0]
    assert complaint + hint in line
    assert hint or line.endswith(complaint)


def test_a_misspelt_kind_of_a_defined_group_is_refused_with_the_one_that_was_meant(
    state: Path,
) -> None:
    definition = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: robots.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: robots, kind: Robot}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
    assert running.inside(state, "apply", "-f", "-", stdin=definition).code == 0
    text = "apiVersion: example.com/v1\nkind: Robt\nmetadata: {name: a}\n"
    run = running.inside(state, "apply", "-f", "-", stdin=text)
    assert 'serves no "Robt" in example.com/v1; did you mean Robot?' in run.err
