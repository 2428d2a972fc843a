"""Users of a real API server: TokenReview says who they are, SubjectAccessReview what they see, their token writes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest

from dovetail.install import chart
from dovetail.kube.auth import credentials
from dovetail.web import api_endpoints
from tests.deploy import build
from tests.support import cluster, waiting
from tests.web import cluster_users
from tests.web.api import clusters
from tests.web.serving_dashboards import CONFIRMED, Client, live, next_event, served

pytestmark = pytest.mark.slow

SECRET = "the-secret-that-proxy-and-dashboard-share"


async def _namespaces(client: Client, token: str, **headers: str) -> set[str]:
    answer = await client.get("/api/v1/pods?limit=5000", token=token, **headers)
    assert answer.status == 200, answer.body
    return {item["namespace"] for item in answer.tree["items"]}


@contextlib.asynccontextmanager
async def _dashboard(scene: cluster_users.Scene, **chosen: Any) -> AsyncIterator[Client]:
    usual: dict[str, Any] = {
        "auth": frozenset({"token"}),
        "reviews_kept_seconds": cluster_users.KEPT_SECONDS,
    }
    async with served(live(scene.choice), **(usual | chosen)) as client:
        await client.is_read()
        yield client


def test_two_users_see_what_each_may_list() -> None:
    scene = cluster_users.scene()
    bob = scene.token_of(scene.theirs, "bob")
    scene.let(scene.theirs, cluster_users.account("bob", scene.theirs), "list")

    async def main() -> None:
        async with _dashboard(scene) as client:
            assert await _namespaces(client, scene.token) == {scene.mine}
            assert await _namespaces(client, bob) == {scene.theirs}
            admin = await _namespaces(client, scene.plane.token)
            assert {scene.mine, scene.theirs} <= admin

            path = f"/api/v1/pods/{scene.theirs}/a"
            assert (await client.get(path, token=bob)).status == 200
            hidden = await client.get(path, token=scene.token)
            absent = await client.get(f"/api/v1/pods/{scene.theirs}/b", token=scene.token)
            assert hidden.status == absent.status == 404  # absence and a missing right look alike

            first = await client.get("/api/v1/pods", token=scene.token)
            tag = first.headers["ETag"]
            other = await client.get("/api/v1/pods", token=bob, If_None_Match=tag)
            assert other.status == 200  # what one user has is not what another may see

            session = (await client.get("/api/v1/session", token=bob)).tree
            assert session["user"] == f"system:serviceaccount:{scene.theirs}:bob"

    asyncio.run(main())


def test_users_see_the_cost_of_what_they_may_list() -> None:
    """By /allocation as by /cost; neither answers with what another user was sent."""
    scene = cluster_users.scene()
    renamed = {"train": scene.mine, "secret": scene.theirs}
    held = [
        msgspec.structs.replace(
            each,
            owner=msgspec.structs.replace(each.owner, namespace=renamed[each.owner.namespace]),
        )
        for each in clusters.RECORDED.allocations
    ]
    recorded = msgspec.structs.replace(clusters.RECORDED, allocations=tuple(held), waiting=())
    accounting = clusters.Accounted(recorded, until=clusters.millis(0))
    query = "window=2026-06-01,2026-06-02&aggregate=namespace"

    async def costs(client: Client, token: str) -> dict[str, float]:
        answer = await client.get(f"/allocation?{query}&includeIdle=true", token=token)
        (data,) = answer.tree["data"]
        table = (await client.get(f"/api/v1/cost?{query}", token=token)).tree
        rows = {row["name"]: row["cost"]["total"] for row in table["steps"][0]["rows"]}
        assert {name: row["totalCost"] for name, row in data.items()} == rows
        return rows

    async def main() -> None:
        given = api_endpoints.all_endpoints()
        async with _dashboard(scene, given=given, accounting=accounting) as client:
            everything = {scene.mine: 10.0, scene.theirs: 5.0, "__idle__": 5.0}
            assert await costs(client, scene.plane.token) == everything
            assert await costs(client, scene.token) == {scene.mine: 10.0}
            assert (await client.get("/api/v1/budgets", token=scene.token)).status == 403
            assert (await client.get(f"/allocation?{query}", token="wrong")).status == 401

    asyncio.run(main())


def test_claims_are_shown_to_users_who_may_list_claims() -> None:
    scene = cluster_users.scene()
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [request]}},
    }
    cluster.apply(scene.plane, [claim], namespace=scene.mine)

    async def main() -> None:
        settings = {
            "auth": frozenset({"token"}),
            "reviews_kept_seconds": cluster_users.KEPT_SECONDS,
        }
        async with served(live(scene.choice), api_endpoints.all_endpoints(), **settings) as client:
            await client.is_read()

            async def claims(token: str) -> set[str]:
                answer = await client.get(f"/api/v1/claims?namespace={scene.mine}", token=token)
                assert answer.status == 200, answer.body
                return {item["name"] for item in answer.tree["items"]}

            async def is_shown() -> bool:
                return await claims(scene.token) == {"mine"}

            assert await claims(scene.plane.token) == {"mine"}
            assert await claims(scene.token) == set()  # pods alone
            place = ("-n", scene.mine)
            resource = "--resource=resourceclaims.resource.k8s.io"
            cluster.kubectl(
                scene.plane, "create", "role", "claims", "--verb=list", resource, *place
            )
            subject = f"--serviceaccount={scene.mine}:alice"
            cluster.kubectl(
                scene.plane, "create", "rolebinding", "claims", "--role=claims", subject, *place
            )
            await waiting.until(is_shown, "the claim to be shown")

    asyncio.run(main())


JOB: Final[dict[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "sweep"},
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
        }
    },
}
QUOTA: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few-pods"},
    "spec": {"hard": {"pods": "1"}},
}


def _waits(namespace: str) -> dict[str, Any]:
    """An event about the pod of the scene."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "waits"},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "tests",
        "reportingInstance": "tests",
        "action": "Testing",
        "reason": "FailedScheduling",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "a"},
        "note": "0/1 nodes are available: quite-busy",
        "type": "Warning",
    }


def test_events_jobs_and_quotas_need_rights_of_their_own() -> None:
    scene = cluster_users.scene()
    carol = scene.token_of(scene.mine, "carol")
    place = ("-n", scene.mine)
    resources = "--resource=pods,events,jobs.batch,resourcequotas"
    cluster.kubectl(scene.plane, "create", "role", "quoted", "--verb=list", resources, *place)
    subject = f"--serviceaccount={scene.mine}:carol"
    cluster.kubectl(
        scene.plane, "create", "rolebinding", "quoted", "--role=quoted", subject, *place
    )
    # The quota is full by the pod of the scene, so the Job gets none, and an event says so.
    cluster.apply(scene.plane, [QUOTA, _waits(scene.mine)], namespace=scene.mine)
    counted = ("get", "resourcequota", "few-pods", *place, "-o", "jsonpath={.status.used.pods}")
    waiting.wait_until(
        lambda: cluster.run_kubectl(scene.plane, *counted).stdout == "1", "the count of the quota"
    )
    cluster.apply(scene.plane, [JOB], namespace=scene.mine)

    async def main() -> None:
        settings = {"auth": frozenset({"token"})}
        async with served(live(scene.choice), api_endpoints.all_endpoints(), **settings) as client:
            await client.is_read()

            async def text(path: str, token: str) -> str:
                answer = await client.get(f"/api/v1{path}", token=token)
                return f"{answer.status} {answer.body.decode()}"

            of_pod = f"/why/{scene.mine}/pod/a"
            of_job = f"/why/{scene.mine}/job/sweep"
            timeline = f"/timeline?namespace={scene.mine}"
            words = ((of_pod, "quite-busy"), (timeline, "quite-busy"), (of_job, "few-pods"))
            for path, word in words:

                async def is_shown(path: str = path, word: str = word) -> bool:
                    return word in await text(path, carol)

                await waiting.until(is_shown, f"{word} in {path}")
                assert word not in await text(path, scene.token)
            assert (await text(of_pod, scene.token)).startswith("200")
            assert (await text(of_job, scene.token)).startswith("404")
            assert "sweep" not in await text("/overview", scene.token)

    asyncio.run(main())


def test_a_user_without_rights_sees_nothing_and_a_wrong_token_is_refused() -> None:
    scene = cluster_users.scene()
    stranger = scene.token_of(scene.theirs, "without-rights")

    async def main() -> None:
        async with _dashboard(scene) as client:
            assert await _namespaces(client, stranger) == set()
            assert (await client.get("/api/v1/count", token=stranger)).tree["nodes"] == 0
            header, payload, signature = scene.token.split(".")
            forged = f"{header}.{payload}.{signature[::-1]}"
            for token in ("", "wrong", forged):
                assert (await client.get("/api/v1/pods", token=token)).status == 401

    asyncio.run(main())


def test_a_right_that_is_taken_away_hides_the_namespace() -> None:
    scene = cluster_users.scene()

    async def main() -> None:
        async with _dashboard(scene) as client:
            assert await _namespaces(client, scene.token) == {scene.mine}
            cluster.kubectl(scene.plane, "delete", "rolebinding", "pods-alice", "-n", scene.mine)

            async def sees_nothing() -> bool:
                return await _namespaces(client, scene.token) == set()

            await waiting.until(sees_nothing, "the right to go")

    asyncio.run(main())


def test_a_token_of_a_user_who_is_gone_opens_nothing() -> None:
    scene = cluster_users.scene()

    async def main() -> None:
        async with _dashboard(scene) as client:
            body = {"token": scene.token}
            headers = CONFIRMED | {"Origin": client.url}
            answer = await client.ask(
                "POST", "/api/v1/session", token="", headers=headers, body=body
            )
            assert answer.status == 200
            assert scene.token not in answer.headers["Set-Cookie"]
            cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
            assert await _namespaces(client, "", **cookie) == {scene.mine}
            async with client.stream(token="", **cookie) as events:
                await next_event(events, "hello")

            cluster.kubectl(scene.plane, "delete", "serviceaccount", "alice", "-n", scene.mine)

            async def has_ended() -> bool:
                session = await client.ask("GET", "/api/v1/session", token="", headers=cookie)
                bearer = await client.get("/api/v1/session", token=scene.token)
                return session.status in (401, 429) and bearer.status in (401, 429)

            await waiting.until(has_ended, "the token to be refused")

    asyncio.run(main())


def test_a_write_is_the_users_own() -> None:
    """The dashboard's own identity may do everything here; the user may create pods in one namespace."""
    scene = cluster_users.scene()
    scene.let(scene.mine, cluster_users.account("alice", scene.mine), "list", "create")
    manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: i}]}\n"

    async def main() -> None:
        async with _dashboard(scene, allow_writes=True) as client:

            async def submit(namespace: str) -> int:
                body = {"manifest": manifest, "namespace": namespace}
                answer = await client.ask(
                    "POST", "/api/v1/work", token=scene.token, headers=CONFIRMED, body=body
                )
                return answer.status

            assert await submit(scene.theirs) == 403
            assert await submit(scene.mine) == 201
            delete = {
                "object": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": scene.mine,
                    "name": "new",
                },
                "delete": True,
            }
            answer = await client.ask(
                "POST", "/api/v1/fixes", token=scene.token, headers=CONFIRMED, body=[delete]
            )
            assert answer.status == 403
            assert "alice" in answer.tree["detail"]
        names = cluster.get(scene.plane, "pods", "-n", scene.mine)["items"]
        assert {item["metadata"]["name"] for item in names} == {"a", "new"}

    asyncio.run(main())


def test_an_upgrade_is_shown_and_aborted_by_those_who_may() -> None:
    """Both users see it; the cluster lets one of them change it."""
    scene = cluster_users.scene()
    bob = scene.token_of(scene.mine, "bob")
    definitions = [
        item
        for item in build.of_kind(build.objects(), "CustomResourceDefinition")
        if item["spec"]["names"]["kind"] == "StackUpgrade"
    ]
    cluster.apply(scene.plane, definitions)
    name = f"roll-{scene.mine}"[:60]
    cluster.kubectl(
        scene.plane, "wait", "--for=condition=Established", "crd/stackupgrades.dovetail.dev"
    )
    kind = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "StackUpgrade"}
    upgrade = kind | {"metadata": {"name": name}, "spec": {"to": {"driver": "1"}, "paused": True}}
    cluster.apply(scene.plane, [upgrade])
    for user, verbs in (("alice", "list,patch"), ("bob", "list")):
        role, subject = f"{name}-{user}", f"--serviceaccount={scene.mine}:{user}"
        rule = (f"--verb={verbs}", "--resource=stackupgrades.dovetail.dev")
        cluster.kubectl(scene.plane, "create", "clusterrole", role, *rule)
        binding = ("create", "clusterrolebinding", role, f"--clusterrole={role}", subject)
        cluster.kubectl(scene.plane, *binding)

    async def main() -> None:
        given = api_endpoints.all_endpoints()
        async with _dashboard(scene, given=given, allow_writes=True) as client:

            async def seen(token: str) -> set[str]:
                answer = await client.get("/api/v1/upgrades", token=token)
                return {item["name"] for item in answer.tree["items"] if item["isAborted"] is False}

            async def abort(token: str) -> int:
                patch = {"object": kind | {"name": name}, "merge": {"spec": {"aborted": True}}}
                answer = await client.ask(
                    "POST", "/api/v1/fixes", token=token, headers=CONFIRMED, body=[patch]
                )
                return answer.status

            async def is_aborted() -> bool:
                return name not in await seen(bob)

            assert name in await seen(bob)
            assert await abort(bob) == 403
            assert await abort(scene.token) == 200
            await waiting.until(is_aborted, "the upgrade to be aborted")
            stranger = await client.get("/api/v1/upgrades", token=scene.token_of(scene.theirs, "c"))
            assert stranger.status == 403

    try:
        asyncio.run(main())
    finally:
        cluster.kubectl(scene.plane, "delete", "crd", "stackupgrades.dovetail.dev")


def test_the_rights_of_the_chart_are_enough_and_secrets_stay_closed() -> None:
    scene = cluster_users.scene()
    release = chart.Release(f"dash-{scene.mine}", scene.mine)
    rendered = build.objects("dashboard.enabled=true", release=release)
    rights = build.of_kind(rendered, "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    own = [item for item in rights if item["metadata"]["name"].endswith("-dashboard")]
    assert len(own) == 3
    cluster.apply(scene.plane, own, namespace=scene.mine)
    account = f"{release.name}-dashboard"
    token = cluster.kubectl(scene.plane, "create", "token", account, "-n", scene.mine).strip()
    subject = f"system:serviceaccount:{scene.mine}:{account}"
    for verb, resource in (("get", "secrets"), ("list", "secrets"), ("create", "pods")):
        done = cluster.run_kubectl(
            scene.plane, "auth", "can-i", verb, resource, "-A", f"--as={subject}"
        )
        assert done.stdout.strip() == "no"

    connection = msgspec.structs.replace(
        scene.choice.connection, credentials=credentials.Credentials(token=token)
    )
    choice = msgspec.structs.replace(scene.choice, connection=connection)

    async def main() -> None:
        try:
            source = live(choice)
            async with served(
                source, auth=frozenset({"token"}), reviews_kept_seconds=cluster_users.KEPT_SECONDS
            ) as client:
                await client.is_read()
                assert await _namespaces(client, scene.token) == {scene.mine}
                assert source.trouble() == ""
        finally:
            for kind in ("clusterrole", "clusterrolebinding"):
                cluster.kubectl(scene.plane, "delete", kind, account)

    asyncio.run(main())
