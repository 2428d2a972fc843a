"""The real kubectl on the server in memory: the commands people use every day, and what they print."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.boot import clocks
from dovetail.kubetypes import registry
from dovetail.sim.server.api_server import SimApi
from tests.sim.test_rest_requests import definition, deployment, pod
from tests.support import cluster, rest_place

pytestmark = pytest.mark.slow
Tree = dict[str, Any]


class Done(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


class Kubectl:
    """kubectl on one server."""

    def __init__(self, kubeconfig: Path, folder: Path, api: SimApi) -> None:
        self.api = api
        cache = folder / "kubectl-cache"
        self._words = [
            str(cluster.parts().kubectl),
            f"--kubeconfig={kubeconfig}",
            f"--cache-dir={cache}",
        ]

    async def run(self, line: str, *, given: Any = None) -> Done:
        """One command, however it ends; `given` are objects for -f -."""
        process = await asyncio.create_subprocess_exec(
            *self._words,
            *line.split(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        text = b"" if given is None else _documents(given)
        out, err = await asyncio.wait_for(process.communicate(text), 60)
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, line: str, *, given: Any = None) -> str:
        """What a command printed; its failure fails the test."""
        done = await self.run(line, given=given)
        assert done.code == 0, f"kubectl {line}: {done.err}"
        return done.out

    async def lines(self, line: str) -> list[list[str]]:
        """The cells of a table, header included."""
        printed = await self(line)
        return [re.split(r" {2,}", row.strip()) for row in printed.splitlines() if row]


def _documents(given: Any) -> bytes:
    trees = given if isinstance(given, list) else [given]
    return "\n---\n".join(json.dumps(tree) for tree in trees).encode()


def run_story(folder: Path, story: Callable[[Kubectl], Awaitable[None]]) -> None:
    """Runs a story with kubectl on a fresh server."""

    async def main() -> None:
        api = SimApi(clocks.SystemClock(), collects_all_kinds=True)
        async with rest_place.served(api, folder) as kubeconfig:
            await story(Kubectl(kubeconfig, folder, api))

    asyncio.run(main())


def running(api: SimApi, name: str) -> None:
    """Makes a pod run on a node, as a scheduler and a kubelet would."""
    record = api.shelf.find(registry.POD, ("default", name))
    assert record is not None
    status = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}}
        ],
    }
    tree = record.tree
    api.shelf.put(
        registry.POD, tree | {"spec": tree["spec"] | {"nodeName": "n1"}, "status": status}
    )


def test_apply_says_created_unchanged_and_configured(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        objects = [pod("a"), deployment("web")]
        assert await kubectl("apply -f -", given=objects) == (
            "pod/a created\ndeployment.apps/web created\n"
        )
        assert await kubectl("apply -f -", given=objects) == (
            "pod/a unchanged\ndeployment.apps/web unchanged\n"
        )
        objects[1] = deployment("web", replicas=3, image="b")
        assert await kubectl("apply -f -", given=objects) == (
            "pod/a unchanged\ndeployment.apps/web configured\n"
        )
        path = "{.spec.replicas} {.spec.template.spec.containers[*].image}"
        shown = await kubectl.run(f"get deploy web -o jsonpath={path.replace(' ', '/')}")
        assert shown.out == "3/b"
        changed = pod("a", spec={"nodeSelector": {"x": "y"}})
        refused = await kubectl.run("apply -f -", given=changed)
        assert refused.code == 1
        assert "pod updates may not change fields other than" in refused.err

    run_story(tmp_path, story)


def test_get_prints_what_people_know(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        await kubectl("apply -f -", given=[pod("a", labels={"app": "x"}), pod("b")])
        running(kubectl.api, "a")
        [header, first, second] = await kubectl.lines("get pods")
        assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert first[:4] == ["a", "1/1", "Running", "0"]
        assert second[:4] == ["b", "0/1", "Pending", "0"]
        [header, first, _] = await kubectl.lines("get po -o wide")
        assert header[5:7] == ["IP", "NODE"]
        assert first[5:7] == ["10.1.2.3", "n1"]
        assert await kubectl("get pods -o name") == "pod/a\npod/b\n"
        assert await kubectl("get pods -l app=x -o name") == "pod/a\n"
        selected = await kubectl("get pods --field-selector=status.phase=Pending -o name")
        assert selected == "pod/b\n"
        everywhere = await kubectl.lines("get pods -A")
        assert everywhere[0][:2] == ["NAMESPACE", "NAME"]
        assert json.loads(await kubectl("get pod a -o json"))["spec"]["nodeName"] == "n1"
        assert "nodeName: n1" in await kubectl("get pod a -o yaml")
        assert await kubectl("get pod a -o jsonpath={.status.phase}") == "Running"
        missing = await kubectl.run("get pod nobody")
        assert missing.err == 'Error from server (NotFound): pods "nobody" not found\n'
        unknown = await kubectl.run("get podz")
        assert unknown.err == 'error: the server doesn\'t have a resource type "podz"\n'
        assert "pod/a" in await kubectl("get all")

    run_story(tmp_path, story)


def test_a_watching_get_shows_every_change(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        await kubectl("apply -f -", given=pod("a"))
        watching = asyncio.create_task(kubectl.run("get pods -w --request-timeout=6s"))
        shown = asyncio.create_task(kubectl("wait --for=condition=Ready pod/a --timeout=30s"))
        running(kubectl.api, "a")
        await shown
        out = (await watching).out
        assert re.search(r"a +1/1 +Running", out), out

    run_story(tmp_path, story)


def test_create_delete_and_wait(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        nameless = pod("")
        nameless["metadata"] = {"generateName": "made-"}
        created = await kubectl("create -f -", given=nameless)
        assert re.fullmatch(r"pod/made-[a-z0-9]{5} created\n", created)
        wrong = pod("typo", spec={"nodeNam": "x"})
        refused = await kubectl.run("create -f -", given=wrong)
        assert 'strict decoding error: unknown field "spec.nodeNam"' in refused.err

        await kubectl("create -f -", given=pod("a"))
        again = await kubectl.run("create -f -", given=pod("a"))
        assert 'pods "a" already exists' in again.err
        leaving = asyncio.create_task(kubectl("wait --for=delete pod/a --timeout=30s"))
        assert "deleted" in await kubectl("delete pod a --wait")
        await leaving
        await kubectl("create -f -", given=pod("b"))
        running(kubectl.api, "b")
        phase = "wait --for=jsonpath={.status.phase}=Running pod/b --timeout=30s"
        assert await kubectl(phase) == "pod/b condition met\n"
        assert await kubectl("delete pods --all --force --grace-period=0 -o name")

    run_story(tmp_path, story)


def test_the_generators_of_create_work(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        await kubectl("create namespace team")
        await kubectl("create deployment web --image=nginx --replicas=0 --port=80 -n team")
        assert await kubectl("get deploy web -n team -o jsonpath={.spec.replicas}") == "0"
        await kubectl("create configmap c --from-literal=a=b")
        assert await kubectl("get cm c -o jsonpath={.data.a}") == "b"
        await kubectl("create secret generic s --from-literal=a=b")
        assert await kubectl("get secret s -o jsonpath={.data.a}") == "Yg=="
        await kubectl("create job j --image=x")
        assert await kubectl("get job j -o jsonpath={.spec.backoffLimit}") == "6"
        await kubectl("create quota q --hard=pods=3,services=20")
        assert await kubectl("get quota q -o jsonpath={.spec.hard.pods}") == "3"
        await kubectl("create serviceaccount sa")
        assert (await kubectl("create token sa")).strip()
        await kubectl("run p --image=x")
        await kubectl("expose pod p --port=80")
        [_, service] = await kubectl.lines("get svc p")
        assert service[1] == "ClusterIP"
        await kubectl("delete namespace team --timeout=30s")
        assert (await kubectl.run("get namespace team")).code == 1

    run_story(tmp_path, story)


def test_describe_reads_objects_and_their_events(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        api = kubectl.api
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [request]}},
        }
        await kubectl("apply -f -", given=[pod("a"), deployment("web"), claim])
        running(api, "a")
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "a.1"},
            "eventTime": api.clock.now().isoformat(),
            "reportingController": "dovetail",
            "type": "Normal",
            "reason": "Scheduled",
            "action": "Binding",
            "note": "assigned to n1",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "a",
                "uid": api.find(registry.POD, "a", namespace="default").metadata.uid,
            },
        }
        api.put(event)
        described = await kubectl("describe pod a")
        assert re.search(r"Normal +Scheduled .* assigned to n1", described), described
        events = await kubectl("get events")
        assert re.search(r"Normal +Scheduled +pod/a +assigned to n1", events), events
        assert "Non-terminated Pods:          (1 in total)" in await kubectl("describe node n1")
        assert "2 desired" not in await kubectl("describe deployment web")
        assert "gpu.nvidia.com" in await kubectl("describe resourceclaim c")

    run_story(tmp_path, story)


def test_changes_of_single_fields(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        await kubectl("apply -f -", given=deployment("web"))
        assert await kubectl("scale deploy web --replicas=4") == "deployment.apps/web scaled\n"
        assert await kubectl("get deploy web -o jsonpath={.spec.replicas}") == "4"
        await kubectl("label deploy web tier=front")
        await kubectl("annotate deploy web note=x")
        assert await kubectl("get deploy -l tier=front -o name") == "deployment.apps/web\n"
        strategic = '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"z"}]}}}}'
        await kubectl(f"patch deploy web -p {strategic}")
        merge = '{"metadata":{"labels":{"tier":null}}}'
        await kubectl(f"patch deploy web --type=merge -p {merge}")
        operations = '[{"op":"replace","path":"/spec/replicas","value":2}]'
        await kubectl(f"patch deploy web --type=json -p {operations}")
        tree = json.loads(await kubectl("get deploy web -o json"))
        assert tree["spec"]["replicas"] == 2
        assert tree["spec"]["template"]["spec"]["containers"][0]["image"] == "z"
        assert "tier" not in tree["metadata"].get("labels", {})
        await kubectl("set image deploy/web c=y")
        image = "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}"
        assert await kubectl(image) == "y"

    run_story(tmp_path, story)


def test_server_side_apply_and_its_conflicts(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        apply = "apply --server-side -f - --field-manager"
        assert await kubectl(f"{apply}=one", given=deployment("web", 1)) == (
            "deployment.apps/web serverside-applied\n"
        )
        refused = await kubectl.run(f"{apply}=two", given=deployment("web", 2))
        assert refused.code == 1
        assert 'conflict with "one": .spec.replicas' in refused.err
        await kubectl(f"{apply}=two --force-conflicts", given=deployment("web", 2))
        assert await kubectl("get deploy web -o jsonpath={.spec.replicas}") == "2"

    run_story(tmp_path, story)


def test_a_definition_and_then_its_objects(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        custom = {
            "apiVersion": "example.com/v1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"size": 3},
        }
        early = await kubectl.run("apply -f -", given=custom)
        assert 'no matches for kind "Queue" in version "example.com/v1"' in early.err
        await kubectl("apply -f -", given=definition())
        await kubectl("wait --for=condition=Established crd/queues.example.com --timeout=30s")
        assert await kubectl("apply -f -", given=custom) == "queue.example.com/q created\n"
        assert await kubectl("apply -f -", given=custom) == "queue.example.com/q unchanged\n"
        custom["spec"] = {"size": 4}
        assert await kubectl("apply -f -", given=custom) == "queue.example.com/q configured\n"
        assert await kubectl.lines("get queues.example.com") == [["NAME", "SIZE"], ["q", "4"]]
        explained = await kubectl("explain queues.spec --api-version=example.com/v1")
        assert "size\t<integer>" in explained
        custom["spec"] = {"sise": 4}
        refused = await kubectl.run("apply -f -", given=custom)
        assert 'unknown field "spec.sise"' in refused.err

    run_story(tmp_path, story)


def test_what_the_server_says_about_itself(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        assert "Server Version: v1.37" in await kubectl("version")
        assert "Username    kubernetes-admin" in await kubectl("auth whoami")
        assert await kubectl("auth can-i delete nodes") == "yes\n"
        versions = (await kubectl("api-versions")).splitlines()
        assert {"v1", "apps/v1", "resource.k8s.io/v1", "dovetail.dev/v1alpha1"} <= set(versions)
        rows = await kubectl.lines("api-resources")
        kinds = {row[0]: row for row in rows}
        assert kinds["deployments"][1:] == ["deploy", "apps/v1", "true", "Deployment"]
        assert kinds["queues"][1:] == ["dovetail.dev/v1alpha1", "false", "Queue"]
        explained = await kubectl("explain pod.spec.nodeName")
        assert "FIELD: nodeName <string>" in explained
        assert await kubectl("get --raw /readyz") == "ok"

    run_story(tmp_path, story)


def test_a_node_is_drained_unless_a_budget_forbids_it(tmp_path: Path) -> None:
    async def story(kubectl: Kubectl) -> None:
        kubectl.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await kubectl("apply -f -", given=[pod("a", labels={"app": "x"}), budget])
        running(kubectl.api, "a")
        refused = await kubectl.run("drain n1 --force --timeout=2s")
        assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.err
        await kubectl("delete pdb b")
        with contextlib.suppress(AssertionError):  # no kubelet removes the pod
            await kubectl("drain n1 --force --timeout=2s")
        leaving = kubectl.api.find(registry.POD, "a", namespace="default")
        assert leaving.metadata.deletion_timestamp
        assert "SchedulingDisabled" in await kubectl("get node n1")

    run_story(tmp_path, story)
