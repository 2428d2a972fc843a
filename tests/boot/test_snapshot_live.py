"""Snapshots of a live cluster: read page by page as of one moment, from a small server with faults and a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube.auth import client_config
from dovetail.kubetypes import object_set
from dovetail.ports import failures
from dovetail.snapshot import live_snapshot, saved_objects, snapshot_format, snapshot_kinds
from tests.kube import serving
from tests.support import cluster


class Server:
    """Serves lists of pods and nodes in pages, as an API server does; remembers what it was asked."""

    def __init__(self, *, pods: int = 5, fault: str = "") -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._pods = [_pod(number) for number in range(pods)]
        self._fault = fault

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return serving.answer({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})
        if request.path == "/api/v1":
            return serving.answer(
                {"resources": [{"name": name} for name in ("nodes", "pods", "namespaces")]}
            )
        if request.path.startswith("/apis/"):
            return serving.refusal(404, "NotFound")
        query = dict(request.query)
        self.asked.append((request.path.rpartition("/")[2], query))
        if request.path != "/api/v1/pods":
            return _listed([{"metadata": {"name": "only"}}], version="100")
        if self._fault == "forbidden":
            return serving.refusal(403, "Forbidden", "you may not")
        if self._fault == "no moment" and "resourceVersionMatch" in query:
            return serving.refusal(410, "Expired")
        if self._fault == "pages end" and "continue" in query:
            return serving.refusal(410, "Expired")
        if self._fault == "broken" and "continue" in query:
            return serving.refusal(500, "InternalError")
        start, limit = int(query.get("continue", 0)), int(query.get("limit", len(self._pods)))
        end = start + limit
        more = str(end) if end < len(self._pods) else ""
        return _listed(self._pods[start:end], version="100", more=more)


def _pod(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"p{number}", "namespace": "train", "resourceVersion": str(number)},
        "newer": number,
    }


def _listed(items: list[dict[str, Any]], *, version: str, more: str = "") -> web.Response:
    return serving.answer(
        {"metadata": {"resourceVersion": version, "continue": more}, "items": items}
    )


def saved(
    server: Server, place: Path, **options: Any
) -> tuple[snapshot_format.Manifest, list[str]]:
    names: list[str] = []

    async def main() -> snapshot_format.Manifest:
        async with serving.serving(server.answer) as url, _named(url) as connection:
            return await live_snapshot.save(
                place, connection, say=names.append, page_items=2, **options
            )

    return asyncio.run(main()), names


@contextlib.asynccontextmanager
async def _named(url: str) -> AsyncIterator[client_config.Connection]:
    yield client_config.Connection(server=url, origin='kube.yaml, context "lab"')


def names_in(place: Path) -> list[str]:
    return sorted(
        stored.struct.metadata.name for stored in saved_objects.read(place).objects.listed("Pod")
    )


def test_pages_are_put_together_as_of_the_moment_of_the_first_list(tmp_path: Path) -> None:
    server = Server()
    manifest, messages = saved(server, tmp_path / "snap")
    assert (manifest.cluster, manifest.server_version) == ("lab", "v1.37.0")
    saved_set = saved_objects.read(tmp_path / "snap").objects
    assert names_in(tmp_path / "snap") == ["p0", "p1", "p2", "p3", "p4"]
    record = saved_set.get(object_set.Key("Pod", "train", "p3"))
    assert record is not None
    assert bytes(record.document).startswith(b'{"apiVersion":"v1","kind":"Pod","metadata"')
    assert bytes(record.document).endswith(b'"newer":3}')
    asked = [query for plural, query in server.asked if plural == "pods"]
    exact = {"resourceVersion": "100", "resourceVersionMatch": "Exact", "limit": "2"}
    assert asked == [exact, {"limit": "2", "continue": "2"}, {"limit": "2", "continue": "4"}]
    assert {file.kind: file.resource_version for file in manifest.files if file.count} == {
        "Node": "100",
        "Pod": "100",
        "Namespace": "100",
    }
    assert "resourceclaims: this server does not serve them" in messages


@pytest.mark.parametrize("fault", ["no moment", "pages end"])
@pytest.mark.parametrize("redacts", [False, True])
def test_a_kind_whose_resource_version_expired_is_listed_again_as_a_whole(
    tmp_path: Path, fault: str, redacts: bool
) -> None:
    server = Server(fault=fault)
    saved(server, tmp_path / "snap", redacts=redacts)
    assert len(names_in(tmp_path / "snap")) == 5
    assert [query for plural, query in server.asked if plural == "pods"][-1] == {}


@pytest.mark.parametrize(
    ("fault", "failure"), [("forbidden", failures.Refused), ("broken", failures.Unavailable)]
)
def test_a_server_that_does_not_answer_leaves_nothing_behind(
    tmp_path: Path, fault: str, failure: type[Exception]
) -> None:
    with pytest.raises(failure, match="list pods"):
        saved(Server(fault=fault), tmp_path / "snap")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_a_real_cluster_is_saved_and_loads(tmp_path: Path, version: str) -> None:
    plane = cluster.control_plane(version)
    namespace = cluster.fresh_namespace(plane)
    container = {"name": "c", "image": "none", "env": [{"name": "TOKEN", "value": "hush"}]}
    pod = {"metadata": {"name": "p"}, "spec": {"schedulerName": "none", "containers": [container]}}
    cluster.apply(plane, [{"apiVersion": "v1", "kind": "Pod", **pod}], namespace=namespace)
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job_spec = {"suspend": True, "parallelism": 2, "template": template}
    sweep = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep"}}
    cluster.apply(plane, [sweep | {"spec": job_spec}], namespace=namespace)
    served = {"1.37": "resource.k8s.io/v1", "1.36": "resource.k8s.io/v1beta2"}[version]
    spec = {"deviceSelector": {"pool": "x"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    rule = {
        "apiVersion": served,
        "kind": "DeviceTaintRule",
        "metadata": {"name": namespace},
        "spec": spec,
    }
    cluster.apply(plane, [rule])
    connection = client_config.load(str(plane.kubeconfig))
    manifest = asyncio.run(live_snapshot.save(tmp_path / "snap", connection, say=print))
    assert manifest.server_version == plane.parts.version
    assert manifest.left_out == 0
    versions = {file.kind: file.resource_version for file in manifest.files}
    unserved = {kind for kind, at in versions.items() if not at}
    # Definitions of ours and of other projects that are not installed here.
    assert unserved <= {
        "Queue",
        "Topology",
        *(kind.unique_name for kind in snapshot_kinds.NOT_LOADED),
        *(kind.unique_name for kind in snapshot_kinds.OWNERS),
    }
    assert {each.kind for each in manifest.not_saved} == unserved
    assert {"Job", "StatefulSet"}.isdisjoint(unserved)
    assert len({at for at in versions.values() if at}) == 1  # one moment
    saved_set = saved_objects.read(tmp_path / "snap").objects
    stored = saved_set.get(object_set.Key("Pod", namespace, "p"))
    assert stored is not None
    live = cluster.get(plane, "pods/p", "-n", namespace, "--show-managed-fields")
    assert stored.tree == live
    job = saved_set.get(object_set.Key("Job", namespace, "sweep"))
    assert job is not None, "what owns pods is kept"
    rules = saved_set.get(object_set.Key("DeviceTaintRule", "", namespace))
    assert rules is not None
    assert rules.struct.api_version == "resource.k8s.io/v1"
    asyncio.run(live_snapshot.save(tmp_path / "red", connection, say=print, redacts=True))
    text = (tmp_path / "red" / "pods.json").read_text()
    text += (tmp_path / "red" / "jobs.json").read_text()
    assert "hush" not in text
    assert "sweep" not in text
    assert namespace not in text
    assert len(names_in(tmp_path / "red")) == len(names_in(tmp_path / "snap"))
    cluster.kubectl(plane, "delete", "devicetaintrule", namespace)
