"""Everything against a real API server; the official client looks at the same objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kubernetes import client as official
from kubernetes import config as official_config

from dovetail.boot import clocks
from dovetail.devcluster import control_plane, kube_binaries
from dovetail.kube import client, discovery
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.ports import api as ports_api
from dovetail.ports import failures
from tests.kube import script, serving
from tests.support import cluster

pytestmark = pytest.mark.slow


@pytest.fixture(params=cluster.EACH_VERSION, scope="module")
def plane(request: pytest.FixtureRequest) -> control_plane.ControlPlane:
    return cluster.control_plane(request.param)


@asynccontextmanager
async def connected(
    plane: control_plane.ControlPlane, path: Path | None = None
) -> AsyncIterator[transport.Transport]:
    async with transport.Transport(client_config.load(str(path or plane.kubeconfig))) as over:
        yield over


def run(
    plane: control_plane.ControlPlane, story: Callable[[transport.Transport], Awaitable[Any]]
) -> Any:
    async def main() -> Any:
        async with connected(plane) as over:
            return await story(over)

    return asyncio.run(main())


def claim(namespace: str, name: str) -> ports_api.Target:
    return ports_api.Target(registry.CLAIM, namespace, name)


def claim_document(name: str, **labels: str) -> bytes:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    return msgspec.json.encode(
        {
            "apiVersion": registry.CLAIM.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {"devices": {"requests": [request]}},
        }
    )


def test_who_the_server_is_and_what_it_serves(plane: control_plane.ControlPlane) -> None:
    async def story(over: transport.Transport) -> None:
        version = await discovery.version(over)
        assert f"{version.number[0]}.{version.number[1]}" == plane.parts.minor
        served = await discovery.served(over, "resource.k8s.io/v1")
        assert {
            "resourceclaims",
            "resourceclaims/status",
            "resourceslices",
            "deviceclasses",
        } <= served
        assert await discovery.served(over, "no.such.group/v1") == frozenset()
        rule = await discovery.newest(over, registry.TAINT_RULE, ("resource.k8s.io/v1beta2",))
        if plane.parts.minor == cluster.NEWEST:
            assert rule == registry.TAINT_RULE
        elif rule is not None:
            await client.list_all(over, rule)

    run(plane, story)


def test_one_object_through_its_life(plane: control_plane.ControlPlane) -> None:
    namespace = cluster.fresh_namespace(plane)
    target = claim(namespace, "a")

    async def story(over: transport.Transport) -> None:
        server = client.KubeApi(over)
        made = msgspec.json.decode(
            await server.create(target._replace(name=""), claim_document("a"))
        )
        with pytest.raises(failures.AlreadyThere):
            await server.create(target._replace(name=""), claim_document("a"))
        assert msgspec.json.decode(await server.get(target)) == made

        version = made["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "finalizers": ["example.com/hold"]}}
        patched = msgspec.json.decode(
            await server.patch(target, msgspec.json.encode(patch), brief=True)
        )
        assert patched["kind"] == "PartialObjectMetadata"
        assert "spec" not in patched
        with pytest.raises(failures.Conflict):
            await server.patch(target, msgspec.json.encode(patch))
        with pytest.raises(failures.Conflict):
            await server.delete(target, uid="another")
        with pytest.raises(failures.Conflict):
            await server.delete(target, uid=made["metadata"]["uid"], resource_version=version)
        with pytest.raises(failures.Refused, match="422 Invalid"):
            await server.patch(target, b'{"spec":{"devices":{"requests":[]}}}')
        with pytest.raises(failures.Refused):
            await server.patch(target, b'"nonsense"')

        await server.delete(target, uid=made["metadata"]["uid"])
        await server.patch(target, b'{"metadata":{"finalizers":null}}', brief=True)
        with pytest.raises(failures.Missing):
            await server.get(target)
        with pytest.raises(failures.Missing):
            await server.delete(target)

    run(plane, story)


def test_both_clients_list_the_same_objects(plane: control_plane.ControlPlane) -> None:
    namespace = cluster.fresh_namespace(plane)

    async def story(over: transport.Transport) -> tuple[list[Any], list[Any], str]:
        server = client.KubeApi(over)
        collection = claim(namespace, "")
        await asyncio.gather(
            *(server.create(collection, claim_document(f"c{i}", n=str(i))) for i in range(150))
        )
        whole, version = await client.list_all(
            over, registry.CLAIM, namespace=namespace, first_page=0
        )
        paged, _ = await client.list_all(over, registry.CLAIM, namespace=namespace, first_page=7)
        return whole, paged, version

    whole, paged, version = run(plane, story)
    assert whole == paged
    assert len(whole) == 150
    assert {(result.api_version, result.kind) for result in whole} == {
        ("resource.k8s.io/v1", "ResourceClaim")
    }
    assert version.isdigit()
    loaded = official_config.new_client_from_config(config_file=str(plane.kubeconfig))
    with loaded:
        theirs = official.ResourceV1Api(loaded).list_namespaced_resource_claim(namespace).items
        assert {_official(item) for item in theirs} == {_ours(result) for result in whole}
        for kind, listing in (
            (registry.NAMESPACE, official.CoreV1Api(loaded).list_namespace),
            (registry.DEVICE_CLASS, official.ResourceV1Api(loaded).list_device_class),
            (registry.POD, official.CoreV1Api(loaded).list_pod_for_all_namespaces),
        ):
            result = run(plane, lambda over, kind=kind: client.list_all(over, kind))[0]
            assert {_identity(item.metadata) for item in listing().items} == {
                _identity(entry.metadata) for entry in result
            }


def _official(item: Any) -> tuple[Any, ...]:
    request = item.spec.devices.requests[0]
    return (
        *_identity(item.metadata),
        request.name,
        request.exactly.device_class_name,
        request.exactly.count,
    )


def _ours(result: Any) -> tuple[Any, ...]:
    request = result.spec.devices.requests[0]
    return (
        *_identity(result.metadata),
        request.name,
        request.exactly.device_class_name,
        request.exactly.count,
    )


def _identity(metadata: Any) -> tuple[Any, ...]:
    labels = tuple(sorted((metadata.labels or {}).items()))
    return (
        metadata.namespace or "",
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        labels,
    )


@asynccontextmanager
async def followed(over: transport.Transport, namespace: str) -> AsyncIterator[script.Sink]:
    sink = script.Sink()
    task = asyncio.create_task(
        watch.follow(
            over,
            registry.CLAIM,
            sink,
            clock=clocks.SystemClock(),
            namespace=namespace,
            randomness=random.Random(1),
        )
    )
    try:
        yield sink
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _truth(over: transport.Transport, namespace: str) -> dict[str, int]:
    result, _ = await client.list_all(over, registry.CLAIM, namespace=namespace)
    return {item.metadata.name: int(item.metadata.resource_version) for item in result}


def test_a_watch_ends_up_where_a_list_is(plane: control_plane.ControlPlane) -> None:
    namespace = cluster.fresh_namespace(plane)

    async def story(over: transport.Transport) -> None:
        server = client.KubeApi(over)
        async with followed(over, namespace) as sink:
            await serving.eventually(lambda: sink.calls)
            names = [f"c{number}" for number in range(60)]
            await asyncio.gather(
                *(server.create(claim(namespace, ""), claim_document(name)) for name in names)
            )
            await asyncio.gather(
                *(
                    server.patch(claim(namespace, name), b'{"metadata":{"labels":{"x":"y"}}}')
                    for name in names[::2]
                )
            )
            await asyncio.gather(*(server.delete(claim(namespace, name)) for name in names[::3]))
            await server.create(claim(namespace, ""), claim_document("last"))
            await serving.eventually(lambda: "last" in sink.objects)
            assert sink.objects == await _truth(over, namespace)
            assert sink.named("broken", "unreadable") == []

    run(plane, story)


def test_objects_beyond_any_line_limit_pass(plane: control_plane.ControlPlane) -> None:
    namespace = cluster.fresh_namespace(plane)

    async def story(over: transport.Transport) -> None:
        async with followed(over, namespace) as sink:
            await serving.eventually(lambda: sink.calls)
            tree = msgspec.json.decode(claim_document("large"))
            tree["metadata"]["annotations"] = {"example.com/note": "x" * 250_000}
            await client.KubeApi(over).create(claim(namespace, ""), msgspec.json.encode(tree))
            await serving.eventually(lambda: "large" in sink.objects)
            assert len(sink.structs[-1].metadata.annotations["example.com/note"]) == 250_000

    run(plane, story)


def test_rights_are_those_of_the_token(plane: control_plane.ControlPlane, tmp_path: Path) -> None:
    namespace = cluster.fresh_namespace(plane)
    tester = plane.write_kubeconfig("kube-tester", token=cluster.TESTER.token)
    stranger = plane.write_kubeconfig("kube-stranger", token="not-a-token")

    async def main() -> None:
        async with connected(plane, tester) as over:
            with pytest.raises(failures.Refused, match="403 Forbidden"):
                await client.KubeApi(over).get(claim(namespace, "a"))
        async with connected(plane, stranger) as over:
            with pytest.raises(failures.Unauthorised):
                await client.KubeApi(over).get(claim(namespace, "a"))

    asyncio.run(main())


def test_every_sort_of_credentials_is_understood(
    plane: control_plane.ControlPlane, tmp_path: Path
) -> None:
    """The server itself says who we are."""
    pair = plane.client_certificate("ann", ["people"])
    (tmp_path / "token").write_text(f"{cluster.TESTER.token}\n")
    plugin = tmp_path / "plugin"
    plugin.write_text(_plugin(token=cluster.TESTER.token))
    shown = tmp_path / "shown"
    shown.write_text(
        _plugin(
            clientCertificateData=pair.certificate.read_text(), clientKeyData=pair.key.read_text()
        )
    )
    for program in (plugin, shown):
        program.chmod(0o755)
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    users: dict[str, tuple[dict[str, Any], str]] = {
        "file": ({"tokenFile": "token"}, "tester"),
        "certificate": (
            {"client-certificate": str(pair.certificate), "client-key": str(pair.key)},
            "ann people",
        ),
        "plugin": ({"exec": {**asked, "command": "./plugin"}}, "tester"),
        "plugin-certificate": ({"exec": {**asked, "command": "./shown"}}, "ann people"),
        "impersonation": (
            {"token": plane.token, "as": "bob", "as-groups": ["system:authenticated", "b", "c"]},
            "bob c",
        ),
    }
    admin = yaml.safe_load(plane.kubeconfig.read_text())
    content = {
        **admin,
        "users": [{"name": name, "user": user} for name, (user, _) in users.items()],
        "contexts": [
            {"name": name, "context": {"cluster": admin["clusters"][0]["name"], "user": name}}
            for name in users
        ],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))

    async def who(context: str) -> str:
        review = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
        async with transport.Transport(client_config.load(str(path), context=context)) as over:
            answer = await over.request(
                "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review
            )
            user = msgspec.json.decode(answer.body)["status"]["userInfo"]
            return " ".join(
                [user["username"], *(group for group in user["groups"] if group in ("people", "c"))]
            )

    for name, (_, expected) in users.items():
        assert asyncio.run(who(name)) == expected, name


def _plugin(**status: str) -> str:
    document = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    return f"#!/bin/sh\ncat <<'END'\n{msgspec.json.encode(document).decode()}\nEND\n"


def test_a_watch_outlives_the_server() -> None:
    """The API server dies while objects are written; what was missed meanwhile is caught up with."""
    with cluster.private_plane() as plane:
        namespace = cluster.fresh_namespace(plane)

        async def story(over: transport.Transport) -> None:
            server = client.KubeApi(over)
            async with followed(over, namespace) as sink:
                await serving.eventually(lambda: sink.calls)
                await server.create(claim(namespace, ""), claim_document("before"))
                await serving.eventually(lambda: "before" in sink.objects)
                plane.kill(kube_binaries.APISERVER)
                await serving.eventually(lambda: sink.named("broken"))
                with pytest.raises(failures.Unavailable):
                    await server.get(claim(namespace, "before"))
                await asyncio.to_thread(plane.start, kube_binaries.APISERVER)
                await server.delete(claim(namespace, "before"))
                await server.create(claim(namespace, ""), claim_document("after"))
                await serving.eventually(lambda: "after" in sink.objects)
                assert sink.objects == await _truth(over, namespace)
                await _says_expired(over)

        run(plane, story)


async def _says_expired(over: transport.Transport) -> None:
    """A server that was just started no longer knows what happened before."""
    params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "2"}
    lines = over.lines(paths.collection(registry.CLAIM), params)
    async with aclosing(lines):
        try:
            event = msgspec.json.decode(await anext(lines))
        except failures.Expired:
            return
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
