"""`dovetail snapshot`: save, show, load, and every command on a saved cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from dovetail.snapshot import saved_objects
from tests.cli import running
from tests.kube import serving


@pytest.fixture
def used(state: Path) -> Path:
    """The sample fleet with the examples on it."""
    assert running.inside(state, "apply", *running.single()).code == 0
    return state


def test_save_shows_what_was_saved_and_where_to_go(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "snap"
    run = running.inside(used, "snapshot", "save", str(place))
    assert run.code == 0
    first, second = run.out.split("\n\n")
    assert first.splitlines()[0].split("   ")[0] == "CLUSTER"
    assert first.splitlines()[1].split()[0] == "sample"
    counts = {line.split()[0]: int(line.split()[1]) for line in second.splitlines()[1:]}
    assert (counts["Node"], counts["Pod"], counts["ResourceSlice"]) == (26, 3, 60)
    assert run.err.splitlines()[-1] == f"next: dovetail get pods -A --snapshot {place}"
    shown = running.inside(used, "snapshot", "show", str(place))
    assert (shown.code, shown.out) == (0, run.out)


def test_the_manifest_is_for_programs_too(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "snap"
    run = running.inside(used, "snapshot", "save", str(place), "-o", "json")
    assert "next:" not in run.err
    assert msgspec.json.decode(run.out) == msgspec.json.decode(
        (place / "manifest.json").read_bytes()
    )
    assert running.inside(used, "snapshot", "show", str(place), "-o", "json").out == run.out


def test_a_saved_cluster_is_replaced_only_by_force(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "snap"
    assert running.inside(used, "snapshot", "save", str(place)).code == 0
    again = running.inside(used, "snapshot", "save", str(place))
    assert (again.code, again.out) == (1, "")
    assert "holds a snapshot already; name another place or add --force" in again.err
    assert running.inside(used, "snapshot", "save", str(place), "--force").code == 0


@pytest.mark.slow
def test_load_starts_a_cluster_with_everything_that_was_saved(used: Path, tmp_path: Path) -> None:
    place, other = tmp_path / "snap", tmp_path / "other"
    running.inside(used, "snapshot", "save", str(place))
    try:
        run = running.outside(other, "snapshot", "load", str(place))
        assert (run.code, run.out) == (0, "")
        assert run.err.splitlines()[-1] == "next: dovetail get pods -A"
        for resource in ("claims", "gpus", "devices", "classes"):
            before, after = (
                running.inside(one, "get", resource, "-A", "-o", "json") for one in (used, other)
            )
            assert before.out == after.out
        pods = running.inside(other, "get", "pods", "-A")
        assert pods.column("NODE") == running.inside(used, "get", "pods", "-A").column("NODE")
        refused = running.inside(other, "snapshot", "load", str(place))
        assert refused.code == 1
        assert "add --fresh to replace it" in refused.err
    finally:
        running.inside(other, "down", "--purge")


def test_reading_commands_work_on_a_saved_cluster(used: Path, tmp_path: Path) -> None:
    place, nowhere = tmp_path / "snap", tmp_path / "nowhere"
    running.inside(used, "snapshot", "save", str(place))
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    shown = running.inside(nowhere, "get", "pods", "-A", "--snapshot", str(place), "-o", "json")
    assert shown.out == running.inside(used, "get", "pods", "-A", "-o", "json").out
    assert len(running.inside(nowhere, "get", "gpus", "--snapshot", str(place)).lines) == 27
    assert "nothing waits" in running.inside(nowhere, "when", "--snapshot", str(place)).err
    assert "match" in running.inside(nowhere, "cel", "eval", "true", "--snapshot", str(place)).out
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert not nowhere.exists()


def test_a_broken_snapshot_is_named(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "snap"
    running.inside(used, "snapshot", "save", str(place))
    (place / "pods.json").write_bytes(b"[]")
    for arguments in (
        ("snapshot", "show", str(place)),
        ("snapshot", "load", str(place), "--fresh"),
        ("get", "pods", "--snapshot", str(place)),
    ):
        run = running.inside(used, *arguments)
        assert (run.code, run.out) == (1, "")
        assert f"{place}/pods.json: changed since it was saved" in run.err
    assert running.inside(used, "get", "pods").code == 0


def test_redacting_keeps_counts_and_hides_names(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "snap"
    run = running.inside(used, "snapshot", "save", str(place), "--redact")
    assert run.code == 0
    assert run.lines[1].split()[0] == "-"  # the cluster's name is one too
    rows = running.inside(used, "get", "pods", "-A", "--snapshot", str(place))
    assert rows.column("NAME") == ["pod-000", "pod-001", "pod-002"]
    text = "".join(path.read_text() for path in place.iterdir())
    for name in ("one-gpu", "notebook", '"vision"', "h100-0", "python"):
        assert name not in text
    assert "H100" in text


GANG = """
apiVersion: %s
kind: PodGroup
metadata: {name: pg}
spec: {minMember: 2, schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: v1
kind: Pod
metadata: {name: member, annotations: {pod-group-name: pg}}
spec:
  %s
  containers: [{name: main, image: python, resources: {requests: {cpu: 1}}}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_redacted", [False, True])
@pytest.mark.parametrize(
    ("version", "group"),
    [
        ("scheduling.run.ai/v2alpha2", ""),
        ("scheduling.k8s.io/v1beta1", "schedulingGroup: {podGroupName: pg}"),
    ],
)
def test_a_gang_that_waits_for_a_pod_still_waits_after_it_was_saved_and_loaded(
    state: Path, tmp_path: Path, version: str, group: str, is_redacted: bool
) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=GANG % (version, group)).code == 0
    options = ("--redact",) if is_redacted else ()
    place, other = tmp_path / "snap", tmp_path / "other"
    assert running.inside(state, "snapshot", "save", str(place), *options).code == 0
    # Another pod, so that all pods are decided about again.
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: z}\n"
    pod = head + "spec: {containers: [{name: a, image: b}]}\n"
    namespace = "namespace-000" if is_redacted else "default"
    try:
        assert running.outside(other, "snapshot", "load", str(place)).code == 0
        assert running.inside(other, "apply", "-n", namespace, "-f", "-", stdin=pod).code == 0
        rows = running.inside(other, "get", "pods", "-A", "-o", "wide")
    finally:
        running.inside(other, "down", "--purge")
    statuses = dict(zip(rows.column("NAME"), rows.column("STATUS"), strict=True))
    assert statuses.pop("z") == "Running"
    assert [*statuses.values()] == ["Pending"]
    assert "has not been seen yet" not in rows.out, "its PodGroup was saved"


def test_secrets_are_never_saved(used: Path, tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\ndata: {a: aHVzaA==}\n"
    assert running.inside(used, "apply", "-f", "-", stdin=secret).code == 0
    assert running.inside(used, "snapshot", "save", str(tmp_path / "snap")).code == 0
    assert "aHVzaA" not in "".join(path.read_text() for path in (tmp_path / "snap").iterdir())


def test_without_a_cluster_nothing_is_saved(empty: Path, tmp_path: Path) -> None:
    run = running.inside(empty, "snapshot", "save", str(tmp_path / "snap"))
    assert run.code == 1
    assert run.err.splitlines()[-1] == "next: dovetail up"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("snapshot", "save"),
        ("get", "pods", "--state", "s", "--snapshot", "x"),
        ("snapshot", "load", "x", "--snapshot", "y"),
        ("snapshot", "fly"),
    ],
)
def test_wrong_usage_ends_with_2(state: Path, arguments: tuple[str, ...]) -> None:
    assert running.inside(state, *arguments).code == 2


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab}}]
clusters: [{name: lab, cluster: {server: "%s"}}]
"""


@pytest.mark.slow
def test_a_live_cluster_is_saved_by_its_kubeconfig(empty: Path, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return serving.answer({"gitVersion": "v1.37.0"})
        if request.path in ("/api/v1", "/apis/resource.k8s.io/v1"):
            return serving.answer({"resources": [{"name": "pods"}]})
        pod = {"metadata": {"name": "p", "namespace": "train"}}
        return serving.answer({"metadata": {"resourceVersion": "9"}, "items": [pod]})

    async def main() -> running.Run:
        async with serving.serving(answer) as url:
            (tmp_path / "config").write_text(KUBECONFIG % url)
            arguments = (
                "snapshot",
                "save",
                str(tmp_path / "snap"),
                "--kubeconfig",
                str(tmp_path / "config"),
            )
            return await asyncio.to_thread(running.outside, empty, *arguments)

    run = asyncio.run(main())
    assert run.code == 0, run.err
    assert "reading http://127.0.0.1:" in run.err
    assert run.lines[1].split()[0] == "lab"
    assert len([*saved_objects.read(tmp_path / "snap").objects.all()]) == 1
    assert not empty.exists()
