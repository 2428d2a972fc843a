"""On a real API server: claims that only look harmless to it, and a record of everything the scheduler asked for."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.namespace_scene import Scene, exactly, node_of, scene
from tests.security import hostile
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

SECRET = "hush-c3VwZXItc2VjcmV0"
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
# What an API server stores in a claim's parameters, letter by letter, because a JSON reader in Go takes it.
PARAMETERS = {
    "deep": b'{"a":' + hostile.deep(5000) + b"}",
    "half": b'{"a":"\\ud800","b":"\\udc00\\ud800"}',
    "bytes": b'{"a":"\xff\xfe\xc0\x80"}',
    "keys": b'{"a":1,"a":2,"a":{"a":3}}',
    "number": b'{"a":1180591620717411303424,"b":1e300,"c":-0}',
    "control": b'{"a":"\\u0000\\u001b[2J\\n"}',
    "braces": b'{"}]":"{[\\"","\\\\":"\\\\"}',
    "order": b'{"b":1.0,"a":"\\u00e9\\/"}',
}
# What it takes too, and then no JSON client can protect: every such writer changes the spacing.
SPACED = b'{"a": 1}'


class Place(NamedTuple):
    """A cluster whose every request is noted."""

    cluster: Live
    log: Path

    def asked(self) -> set[tuple[str, str]]:
        """What the scheduler's account asked for: verb, and resource with its subresource or the path."""
        result = set()
        for line in self.log.read_text(encoding="utf-8").splitlines():
            entry: dict[str, Any] = json.loads(line)
            if entry["user"]["username"] == live.SERVICE_ACCOUNT:
                about = entry.get("objectRef", {})
                parts = (about.get("resource", ""), about.get("subresource", ""))
                what = (
                    "/".join(part for part in parts if part)
                    or entry["requestURI"].partition("?")[0]
                )
                result.add((entry["verb"], what))
        return result


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The scheduler at work under the chart's rights."""
    folder = tmp_path_factory.mktemp("audit")
    policy, log = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(POLICY), encoding="utf-8")
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    with live.private(extra_apiserver_flags=flags) as cluster:
        cluster.play("--nodes", "1")
        cluster.schedule()
        cluster.wait_for("a ready scheduler", cluster.is_serving)
        yield Place(cluster, log)


def post(story: Scene, plural: str, body: bytes) -> int:
    """Creates an object from these very bytes; the status."""
    plane = story.live.plane
    trust = ssl.create_default_context(cafile=str(plane.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=trust, timeout=60)
    try:
        path = f"/apis/resource.k8s.io/v1/namespaces/{story.namespace}/{plural}"
        headers = {"Authorization": f"Bearer {plane.token}", "Content-Type": "application/json"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def claim_with(story: Scene, name: str, parameters: bytes) -> bytes:
    """A claim for one device, with configuration for its driver."""
    config = [{"opaque": {"driver": story.driver, "parameters": {"here": 0}}}]
    spec = {"devices": {"requests": [exactly("gpu", story.device_class)], "config": config}}
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": story.namespace},
        "spec": spec,
    }
    return json.dumps(tree).encode().replace(b'{"here": 0}', parameters)


def held(story: Scene) -> list[str]:
    """The devices that claims hold, read by kubectl: Python's own reader chokes on these claims, too."""
    template = '{range .items[*].status.allocation.devices.results[*]}{.pool}/{.device}{"\\n"}{end}'
    return planes.kubectl(
        story.live.plane,
        "get",
        "resourceclaims",
        "-n",
        story.namespace,
        "-o",
        f"jsonpath={template}",
    ).split()


def test_claims_a_server_accepts_and_others_fail_on_delay_no_pod(place: Place) -> None:
    cluster = place.cluster
    before = cluster.pid()
    with scene(cluster) as story:
        story.fleet(nodes=2, gpus=len(PARAMETERS))
        statuses = {
            name: post(story, "resourceclaims", claim_with(story, name, PARAMETERS[name]))
            for name in PARAMETERS
        }
        assert set(statuses.values()) == {201}, statuses
        for name in PARAMETERS:
            story.pod(f"hostile-{name}", claims=[name])
        assert post(story, "resourceclaims", claim_with(story, "spaces", SPACED)) == 201
        story.pod("spaces", claims=["spaces"])
        story.claim("plain")
        story.pod("honest", claims=["plain"])
        story.wait_running("honest")
        story.wait("all to have a node", lambda: all(node_of(pod) for pod in story.pods().values()))
        assert len(held(story)) == len(set(held(story))) == len(PARAMETERS) + 2
        assert cluster.pid() == before, "the same process all the time"
        assert cluster.is_running()
        assert cluster.consistent()["consistent"], cluster.consistent()
        cluster.stop()  # a successor meets them all in one list
        cluster.schedule()
        cluster.wait_for("a ready scheduler", cluster.is_serving)
        story.claim("later")
        story.pod("honest-too", claims=["later"])
        story.wait_running("honest-too")
        assert cluster.consistent()["consistent"], cluster.consistent()
        assert "Traceback" not in cluster.log()
        assert "unreadable" not in cluster.log()


def test_only_what_is_needed_is_asked_for_and_secrets_never(place: Place) -> None:
    cluster = place.cluster
    with scene(cluster) as story:
        story.rest.create(
            "secrets",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "keys"},
                "stringData": {"token": SECRET},
            },
            story.namespace,
        )
        story.fleet()
        story.template()
        env = [{"name": "TOKEN", "value": SECRET}]
        story.pod("a", templates=["gpu"], annotations={"note": SECRET})
        story.pod(
            "waits",
            containers=[{"name": "m", "image": "x", "env": env}],
            nodeSelector={"nowhere": "x"},
        )
        story.wait_running("a")
        story.wait_refused("waits", "node")
    granted = set()
    for role in live.rights():
        for rule in role.get("rules", ()):
            granted |= {
                (verb, resource) for verb in rule["verbs"] for resource in rule["resources"]
            }
    # Rights that Kubernetes wants for the same write, and those about paths and groups, are no resources of requests.
    asked = place.asked()
    resources = {(verb, what) for verb, what in asked if not what.startswith("/")}
    assert resources <= granted, resources - granted
    assert {("list", "pods"), ("watch", "resourceclaims"), ("create", "pods/binding")} <= resources
    assert not [item for item in asked if "secret" in item[1].lower()]
    paths = {what for _, what in asked if what.startswith("/")}
    assert all(path.startswith(("/apis", "/api", "/version")) for path in paths), paths
    messages = cluster.log() + "".join(
        cluster.ask(path) for path in ("/metrics", "/configz", "/debug/consistent")
    )
    assert SECRET not in messages
    assert cluster.token not in messages
    assert cluster.plane.token not in messages
