"""Who may read what we serve: two questions to the API server, and how long a yes is remembered."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.kube import client
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.sim.virtual_clock import VirtualClock
from tests.support import cluster
from tests.support.waiting import until


class Reviewer:
    """An API server that knows one token, and what its owner may do."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.allowed = {("/metrics", "get")}
        self.is_denying = False
        self.at_once = self.most_at_once = 0

    async def create(self, target: apis.Target, document: bytes, *, brief: bool = False) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        review = msgspec.json.decode(document)
        self.asked.append(review)
        return msgspec.json.encode(review | {"status": self._status(target, review["spec"])})

    def _status(self, target: apis.Target, spec: dict[str, Any]) -> dict[str, Any]:
        if target.kind == access_reviews.TOKEN_REVIEW:
            if spec["token"] != "good":
                return {"error": "unknown token"}
            return {
                "authenticated": True,
                "user": {"username": "prometheus", "uid": "1", "groups": ["watchers"]},
            }
        assert (spec["user"], spec["groups"]) == ("prometheus", ["watchers"])
        expected = spec["nonResourceAttributes"]
        return {
            "allowed": (expected["path"], expected["verb"]) in self.allowed,
            "denied": self.is_denying,
        }

    async def get(self, target: apis.Target) -> bytes:
        raise failures.Refused("nothing to read")

    async def patch(
        self, target: apis.Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        raise failures.Refused("nothing to change")

    async def protect(
        self, target: apis.Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        raise failures.Refused("nothing to protect")

    async def delete(
        self, target: apis.Target, *, uid: str = "", resource_version: str = ""
    ) -> None:
        raise failures.Refused("nothing to delete")

    async def evict(
        self,
        target: apis.Target,
        *,
        uid: str,
        grace_seconds: int | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        raise failures.Refused("nothing to evict")


def test_a_token_must_be_known_and_its_owner_allowed() -> None:
    async def main() -> None:
        server = Reviewer()
        judge = access_reviews.Reviews(server, VirtualClock())
        assert await judge.authorise("good", "/metrics", "get")
        assert not await judge.authorise("bad", "/metrics", "get")
        assert not await judge.authorise("good", "/configz", "get")
        assert not await judge.authorise("good", "/metrics", "post")
        server.is_denying = True
        server.allowed.add(("/configz", "get"))
        assert not await judge.authorise("good", "/configz", "get")

    asyncio.run(main())


def test_a_yes_is_remembered_for_ten_seconds_and_a_no_is_not() -> None:
    async def main() -> None:
        server, clock = Reviewer(), VirtualClock()
        judge = access_reviews.Reviews(server, clock)
        assert await judge.authorise("good", "/metrics", "get")
        server.allowed.clear()
        await clock.advance(9.9)
        assert await judge.authorise("good", "/metrics", "get")
        assert len(server.asked) == 2
        await clock.advance(0.2)
        assert not await judge.authorise("good", "/metrics", "get")
        server.allowed.add(("/metrics", "get"))
        assert await judge.authorise("good", "/metrics", "get")

    asyncio.run(main())


def test_a_flood_is_asked_few_at_a_time_and_not_remembered_without_end() -> None:
    async def main() -> None:
        server = Reviewer()
        judge = access_reviews.Reviews(server, VirtualClock())
        await asyncio.gather(
            *(judge.authorise(f"bad{number}", "/metrics", "get") for number in range(50))
        )
        assert server.most_at_once == access_reviews.AT_ONCE
        server.allowed = {(f"/{number}", "get") for number in range(1000)}
        for number in range(1000):
            assert await judge.authorise("good", f"/{number}", "get")
        assert len(judge._until) == access_reviews.MAX_REMEMBERED

    asyncio.run(main())


def test_an_answer_that_cannot_be_decoded_is_not_a_yes() -> None:
    class Babbler(Reviewer):
        async def create(
            self, target: apis.Target, document: bytes, *, brief: bool = False
        ) -> bytes:
            return b'{"status":{"authenticated":"yes"}}'

    async def main() -> None:
        with pytest.raises(failures.Unavailable, match="unreadable"):
            await access_reviews.Reviews(Babbler(), VirtualClock()).authorise(
                "good", "/metrics", "get"
            )

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_a_real_api_server_reviews_a_service_accounts_token(version: str) -> None:
    plane = cluster.control_plane(version)
    rbac = "rbac.authorization.k8s.io/v1"
    account = registry.Kind("v1", "ServiceAccount", "serviceaccounts", True, object)
    role = registry.Kind(rbac, "ClusterRole", "clusterroles", False, object)
    binding = registry.Kind(rbac, "ClusterRoleBinding", "clusterrolebindings", False, object)

    async def main() -> None:
        async with transport.Transport(client_config.load(str(plane.kubeconfig))) as over:
            server = client.KubeApi(over)
            judge = access_reviews.Reviews(server, clocks.SystemClock())
            await create(
                server, apis.Target(account, "default"), {"metadata": {"name": "reviewed"}}
            )
            answer = await create(
                server,
                apis.Target(account, "default", "reviewed", "token"),
                {"spec": {}},
                kind="TokenRequest",
            )
            token = answer["status"]["token"]
            assert not await judge.authorise(token, "/metrics", "get")
            assert not await judge.authorise(token + "x", "/metrics", "get")
            rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
            await create(
                server, apis.Target(role), {"metadata": {"name": "reviewed"}, "rules": rules}
            )
            subjects = [{"kind": "ServiceAccount", "namespace": "default", "name": "reviewed"}]
            refers = {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "reviewed",
            }
            await create(
                server,
                apis.Target(binding),
                {"metadata": {"name": "reviewed"}, "roleRef": refers, "subjects": subjects},
            )
            await until(
                lambda: judge.authorise(token, "/metrics", "get"), "the server's own cache of roles"
            )
            assert not await judge.authorise(token, "/configz", "get")
            assert not await judge.authorise(token, "/metrics", "post")

    asyncio.run(main())


async def create(
    server: apis.Api, target: apis.Target, tree: dict[str, Any], *, kind: str = ""
) -> Any:
    version = "authentication.k8s.io/v1" if kind else target.kind.api_version
    document = {"apiVersion": version, "kind": kind or target.kind.name} | tree
    return msgspec.json.decode(await server.create(target, msgspec.json.encode(document)))
