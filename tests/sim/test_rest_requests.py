"""The server in memory over HTTP: what a client gets for its requests, in the words of a real API server."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import errors
from dovetail.kube.auth import client_config
from dovetail.sim.rest import local_kubeconfig, rest_server
from dovetail.sim.server.api_server import SimApi
from tests.support import rest_place
from tests.support.rest_place import Asker, Tree

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def run_story(story: Callable[[Asker], Awaitable[None]]) -> None:
    """Runs a story against a fresh server."""

    async def main() -> None:
        async with rest_place.asked() as asker:
            await story(asker)

    asyncio.run(main())


def pod(name: str, *, spec: Tree | None = None, **metadata: Any) -> Tree:
    body = {"containers": [{"name": "main", "image": "none"}], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": body}


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {},
    }


def deployment(name: str, replicas: int = 1, image: str = "a") -> Tree:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def definition() -> Tree:
    size = {"type": "object", "properties": {"size": {"type": "integer"}}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size"}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": size, "status": status}}
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "plural": "queues",
                "singular": "queue",
                "kind": "Queue",
                "shortNames": ["q"],
            },
            "versions": [version],
        },
    }


# Who may ask


def test_only_health_is_answered_without_the_token() -> None:
    async def main() -> None:
        api = SimApi()
        files = rest_place.certificate()
        async with rest_server.serve(api, token="right", certificate=files) as server:
            for token in ("", "wrong", "righ", "rightx"):
                async with Asker(server, token) as stranger:
                    refused = await stranger.ask("GET", "/api/v1/pods", status=401)
                    assert refused.tree["reason"] == "Unauthorized"
                    assert (await stranger.ask("GET", "/version")).status == 401
                    assert (await stranger.ask("GET", "/readyz", status=200)).body == b"ok"

    asyncio.run(main())


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::"])
def test_nothing_but_loopback_is_listened_on(host: str) -> None:
    async def main() -> None:
        server = rest_server.serve(
            SimApi(), token="t", certificate=rest_place.certificate(), host=host
        )
        async with server:
            pytest.fail("it serves")

    with pytest.raises(errors.InputError, match="not a loopback address"):
        asyncio.run(main())


def test_the_kubeconfig_is_private_and_our_client_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    certificate = rest_place.certificate().certificate
    local_kubeconfig.write(
        path, server="https://127.0.0.1:1", token="secret", certificate=certificate
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = client_config.load(str(path))
    assert connection.server == "https://127.0.0.1:1"


# What is not there


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/podz",
        "/apis/apps/v2/namespaces/default/deployments",
        "/apis/nobody.example.com/v1/things",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/a",
        "/api/v1/namespaces/default/configmaps/a/status",
        "/nothing",
    ],
)
def test_a_path_that_is_not_served_is_missing(path: str) -> None:
    async def story(asker: Asker) -> None:
        answer = await asker.ask("GET", path, status=404)
        assert answer.tree["reason"] == "NotFound"
        assert answer.tree["message"] == "the server could not find the requested resource"

    run_story(story)


def test_a_missing_object_and_a_missing_namespace_say_their_names() -> None:
    async def story(asker: Asker) -> None:
        missing = (await asker.ask("GET", f"{DEPLOYMENTS}/web", status=404)).tree
        assert missing["message"] == 'deployments.apps "web" not found'
        assert missing["details"] == {"name": "web", "group": "apps", "kind": "deployments"}
        nowhere = PODS.replace("default", "nowhere")
        refused = (await asker.ask("POST", nowhere, pod("a"), status=404)).tree
        assert refused["message"] == 'namespaces "nowhere" not found'

    run_story(story)


# Create


def test_a_prefix_becomes_a_name_and_a_taken_name_is_refused() -> None:
    async def story(asker: Asker) -> None:
        tree = config_map("")
        tree["metadata"] = {"generateName": "made-"}
        made = await asker.create(CONFIG_MAPS, tree)
        name = made["metadata"]["name"]
        assert name.startswith("made-")
        assert len(name) == len("made-") + 5
        again = (await asker.ask("POST", CONFIG_MAPS, config_map(name), status=409)).tree
        assert again["reason"] == "AlreadyExists"
        assert again["message"] == f'configmaps "{name}" already exists'

    run_story(story)


def test_a_dry_run_answers_and_stores_nothing() -> None:
    async def story(asker: Asker) -> None:
        answer = await asker.ask("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("a"), status=201)
        assert answer.tree["metadata"]["name"] == "a"
        await asker.ask("GET", f"{CONFIG_MAPS}/a", status=404)
        await asker.create(CONFIG_MAPS, config_map("a"))
        patched = await asker.patch(f"{CONFIG_MAPS}/a?dryRun=All", {"data": {"x": "y"}})
        assert patched["data"] == {"x": "y"}
        await asker.ask("DELETE", f"{CONFIG_MAPS}/a?dryRun=All", status=200)
        assert (await asker.get(f"{CONFIG_MAPS}/a"))["data"] == {}

    run_story(story)


@pytest.mark.parametrize(
    ("path", "tree", "field"),
    [
        (PODS, pod("a", spec={"nodeNam": "x"}), "spec.nodeNam"),
        (
            PODS,
            pod("a", spec={"containers": [{"name": "c", "image": "i", "comand": []}]}),
            "spec.containers[0].comand",
        ),
        (DEPLOYMENTS, deployment("d") | {"extra": 1}, "extra"),
    ],
)
def test_an_unknown_field_is_refused_or_warned_about(path: str, tree: Tree, field: str) -> None:
    async def story(asker: Asker) -> None:
        strict = await asker.ask("POST", f"{path}?fieldValidation=Strict", tree, status=400)
        kind = tree["kind"]
        assert strict.tree["message"] == (
            f'{kind} in version "v1" cannot be handled as a {kind}: '
            f'strict decoding error: unknown field "{field}"'
        )
        warned = await asker.ask("POST", f"{path}?fieldValidation=Warn", tree, status=201)
        assert warned.headers["Warning"] == f'299 - "unknown field \\"{field}\\""'
        await asker.ask("DELETE", f"{path}/{tree['metadata']['name']}")
        ignored = await asker.ask("POST", f"{path}?fieldValidation=Ignore", tree, status=201)
        assert "Warning" not in ignored.headers

    run_story(story)


def test_a_pod_gets_the_priority_of_its_class() -> None:
    async def story(asker: Asker) -> None:
        unknown = pod("a", spec={"priorityClassName": "high"})
        refused = (await asker.ask("POST", PODS, unknown, status=403)).tree
        assert refused["message"] == (
            'pods "a" is forbidden: no PriorityClass with name high was found'
        )
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 7,
        }
        await asker.create("/apis/scheduling.k8s.io/v1/priorityclasses", high)
        assert (await asker.create(PODS, unknown))["spec"]["priority"] == 7

    run_story(story)


def without(tree: Tree, *path: str) -> Tree:
    """The tree without one field."""
    name, *rest = path
    if rest:
        return tree | {name: without(tree[name], *rest)}
    return {field: value for field, value in tree.items() if field != name}


@pytest.mark.parametrize(
    ("path", "tree", "cause"),
    [
        (PODS, pod("a", spec={"containers": []}), "spec.containers: Required value"),
        (
            DEPLOYMENTS,
            deployment("d", replicas=-1),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            DEPLOYMENTS,
            without(deployment("d"), "spec", "template", "metadata"),
            "spec.template.metadata.labels: Invalid value: {}: "
            "`selector` does not match template `labels`",
        ),
        (
            DEPLOYMENTS,
            without(deployment("d"), "spec", "selector"),
            "spec.selector: Required value",
        ),
        (
            DEFINITIONS,
            definition() | {"metadata": {"name": "other"}},
            'metadata.name: Invalid value: "other": must be spec.names.plural+"."+spec.group',
        ),
        (
            CONFIG_MAPS,
            config_map(""),
            "metadata.name: Required value: name or generateName is required",
        ),
    ],
)
def test_an_object_that_no_controller_could_use_is_refused(
    path: str, tree: Tree, cause: str
) -> None:
    async def story(asker: Asker) -> None:
        refused = (await asker.ask("POST", path, tree, status=422)).tree
        [stated] = refused["details"]["causes"]
        assert f"{stated['field']}: {stated['message']}" == cause
        assert refused["details"]["kind"] == tree["kind"]

    run_story(story)


def test_an_object_of_another_kind_is_refused_as_that() -> None:
    async def story(asker: Asker) -> None:
        refused = (await asker.ask("POST", PODS, config_map("a"), status=400)).tree
        assert 'ConfigMap in version "v1" cannot be handled as a Pod' in refused["message"]

    run_story(story)


def test_the_selector_of_a_workload_stays() -> None:
    async def story(asker: Asker) -> None:
        await asker.create(DEPLOYMENTS, deployment("d"))
        other = {"matchLabels": {"app": "d", "more": "x"}}
        labels = {"metadata": {"labels": other["matchLabels"]}}
        change = {"spec": {"selector": other, "template": labels}}
        refused = await asker.ask(
            "PATCH", f"{DEPLOYMENTS}/d", change, status=422, Content_Type=rest_place.MERGE_PATCH
        )
        assert "spec.selector: Invalid value" in refused.tree["message"]
        assert "field is immutable" in refused.tree["message"]

    run_story(story)


# Update and patch


def test_a_put_needs_the_newest_version_if_it_names_one() -> None:
    async def story(asker: Asker) -> None:
        made = await asker.create(CONFIG_MAPS, config_map("a"))
        changed = made | {"data": {"x": "1"}}
        await asker.ask("PUT", f"{CONFIG_MAPS}/a", changed, status=200)
        refused = (await asker.ask("PUT", f"{CONFIG_MAPS}/a", changed, status=409)).tree
        assert refused["message"] == (
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        await asker.ask("PUT", f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}), status=200)
        assert (await asker.get(f"{CONFIG_MAPS}/a"))["data"] == {"y": "2"}

    run_story(story)


def test_a_running_pods_spec_stays() -> None:
    async def story(asker: Asker) -> None:
        made = await asker.create(PODS, pod("a"))
        made["spec"]["containers"][0]["command"] = ["x"]
        refused = (await asker.ask("PUT", f"{PODS}/a", made, status=422)).tree
        assert refused["reason"] == "Invalid"
        [cause] = refused["details"]["causes"]
        assert (refused["details"]["kind"], cause["reason"]) == ("Pod", "FieldValueForbidden")
        assert refused["message"].startswith(
            'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than '
            "`spec.containers[*].image`"
        )
        image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        patched = await asker.patch(f"{PODS}/a", image, rest_place.STRATEGIC_PATCH)
        assert patched["spec"]["containers"] == [{"name": "main", "image": "other"}]

    run_story(story)


def test_a_json_patch_is_all_or_nothing() -> None:
    async def story(asker: Asker) -> None:
        await asker.create(CONFIG_MAPS, config_map("a", {"x": "1"}))
        operations: list[Tree] = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "add", "path": "/data/a~1b", "value": "2"},
            {"op": "move", "from": "/data/x", "path": "/data/y"},
        ]
        patched = await asker.patch(f"{CONFIG_MAPS}/a", operations, rest_place.JSON_PATCH)
        assert patched["data"] == {"a/b": "2", "y": "1"}
        failing = [{"op": "remove", "path": "/data/y"}, {"op": "remove", "path": "/data/z"}]
        await asker.ask(
            "PATCH", f"{CONFIG_MAPS}/a", failing, status=422, Content_Type=rest_place.JSON_PATCH
        )
        assert (await asker.get(f"{CONFIG_MAPS}/a"))["data"] == {"a/b": "2", "y": "1"}

    run_story(story)


def test_a_strategic_patch_merges_lists_by_their_keys() -> None:
    async def story(asker: Asker) -> None:
        tree = deployment("web")
        tree["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s"})
        await asker.create(DEPLOYMENTS, tree)
        containers = [
            {"name": "c", "image": "new", "ports": [{"containerPort": 80}]},
            {"name": "side", "$patch": "delete"},
            {"name": "extra", "image": "e"},
        ]
        order = [{"name": "extra"}, {"name": "c"}]
        spec = {"containers": containers, "$setElementOrder/containers": order}
        change = {"spec": {"template": {"spec": spec}}}
        patched = await asker.patch(f"{DEPLOYMENTS}/web", change, rest_place.STRATEGIC_PATCH)
        assert patched["spec"]["template"]["spec"]["containers"] == [
            {"name": "extra", "image": "e"},
            {"name": "c", "image": "new", "ports": [{"containerPort": 80}]},
        ]
        assert patched["metadata"]["generation"] == 2

    run_story(story)


def test_finalizers_are_a_set_for_strategic_patches() -> None:
    async def story(asker: Asker) -> None:
        await asker.create(CONFIG_MAPS, config_map("a", finalizers=["x/one"]))
        add = {"metadata": {"finalizers": ["x/two"]}}
        patched = await asker.patch(f"{CONFIG_MAPS}/a", add, rest_place.STRATEGIC_PATCH)
        assert patched["metadata"]["finalizers"] == ["x/one", "x/two"]
        drop = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/one"]}}
        patched = await asker.patch(f"{CONFIG_MAPS}/a", drop, rest_place.STRATEGIC_PATCH)
        assert patched["metadata"]["finalizers"] == ["x/two"]

    run_story(story)


# Server-side apply


def applying(manager: str, force: str = "") -> str:
    return f"?fieldManager={manager}" + (f"&force={force}" if force else "")


def test_an_applier_owns_what_it_sets_and_loses_what_it_no_longer_sets() -> None:
    async def story(asker: Asker) -> None:
        at = f"{CONFIG_MAPS}/a"
        first = await asker.ask(
            "PATCH",
            at + applying("one"),
            config_map("a", {"x": "1", "y": "1"}),
            status=201,
            Content_Type=rest_place.APPLY_PATCH,
        )
        assert first.tree["metadata"]["managedFields"][0]["manager"] == "one"
        other = config_map("a", {"z": "2"})
        await asker.patch(at + applying("two"), other, rest_place.APPLY_PATCH)
        again = await asker.patch(
            at + applying("one"), config_map("a", {"x": "1"}), rest_place.APPLY_PATCH
        )
        assert again["data"] == {"x": "1", "z": "2"}
        same = await asker.patch(
            at + applying("one"), config_map("a", {"x": "1"}), rest_place.APPLY_PATCH
        )
        assert same["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]

    run_story(story)


def test_two_appliers_with_two_values_conflict_until_one_forces() -> None:
    async def story(asker: Asker) -> None:
        at = f"{DEPLOYMENTS}/web"
        await asker.ask(
            "PATCH",
            at + applying("one"),
            deployment("web", image="a"),
            status=201,
            Content_Type=rest_place.APPLY_PATCH,
        )
        theirs = deployment("web", image="b")
        refused = await asker.ask(
            "PATCH", at + applying("two"), theirs, status=409, Content_Type=rest_place.APPLY_PATCH
        )
        assert refused.tree["message"] == (
            'Apply failed with 1 conflict: conflict with "one": '
            '.spec.template.spec.containers[name="c"].image'
        )
        forced = await asker.patch(at + applying("two", "true"), theirs, rest_place.APPLY_PATCH)
        assert forced["spec"]["template"]["spec"]["containers"] == [{"name": "c", "image": "b"}]
        await asker.ask(
            "PATCH",
            at + applying("one"),
            deployment("web", image="a"),
            status=409,
            Content_Type=rest_place.APPLY_PATCH,
        )

    run_story(story)


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    async def story(asker: Asker) -> None:
        await asker.create(CONFIG_MAPS, config_map("a", {"x": "1"}))
        at = f"{CONFIG_MAPS}/a" + applying("one")
        other = config_map("a", {"x": "2"})
        refused = await asker.ask(
            "PATCH", at, other, status=409, Content_Type=rest_place.APPLY_PATCH
        )
        assert refused.tree["message"] == (
            'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x'
        )
        added = config_map("a", {"y": "2"})
        applied = await asker.patch(at, added, rest_place.APPLY_PATCH)
        assert applied["data"] == {"x": "1", "y": "2"}

    run_story(story)


def test_an_update_takes_a_field_from_its_applier() -> None:
    async def story(asker: Asker) -> None:
        at = f"{DEPLOYMENTS}/web"
        await asker.ask(
            "PATCH",
            at + applying("one"),
            deployment("web", 1),
            status=201,
            Content_Type=rest_place.APPLY_PATCH,
        )
        await asker.patch(f"{at}?fieldManager=scaler", {"spec": {"replicas": 5}})
        refused = await asker.ask(
            "PATCH",
            at + applying("one"),
            deployment("web", 1),
            status=409,
            Content_Type=rest_place.APPLY_PATCH,
        )
        assert 'conflict with "scaler" using apps/v1: .spec.replicas' in refused.tree["message"]

    run_story(story)


# Delete


def test_a_deletion_may_name_the_object_it_means() -> None:
    async def story(asker: Asker) -> None:
        made = await asker.create(CONFIG_MAPS, config_map("a"))
        wrong = {"preconditions": {"uid": "another"}}
        refused = (await asker.ask("DELETE", f"{CONFIG_MAPS}/a", wrong, status=409)).tree
        assert "the UID in the precondition (another) does not match" in refused["message"]
        right = {"preconditions": {"uid": made["metadata"]["uid"]}}
        done = (await asker.ask("DELETE", f"{CONFIG_MAPS}/a", right, status=200)).tree
        assert (done["status"], done["details"]["uid"]) == ("Success", made["metadata"]["uid"])

    run_story(story)


async def owner_and_owned(asker: Asker) -> None:
    owner = await asker.create(CONFIG_MAPS, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    await asker.create(CONFIG_MAPS, config_map("owned", ownerReferences=[reference]))


async def until_gone(asker: Asker, path: str) -> None:
    """Waits for the deletion of an object by watching it."""
    listed = await asker.get(path.rpartition("/")[0])
    name = path.rpartition("/")[2]
    if name not in [item["metadata"]["name"] for item in listed["items"]]:
        return
    version = listed["metadata"]["resourceVersion"]
    place = (
        f"{path.rpartition('/')[0]}?fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
    )
    async with asyncio.timeout(30), asker.watch(place) as events:
        async for event in events:
            if event["type"] == "DELETED":
                return


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_what_an_object_owns_goes_with_it(policy: str) -> None:
    async def story(asker: Asker) -> None:
        await owner_and_owned(asker)
        options = {"propagationPolicy": policy}
        await asker.ask("DELETE", f"{CONFIG_MAPS}/owner", options, status=200)
        await until_gone(asker, f"{CONFIG_MAPS}/owned")
        await until_gone(asker, f"{CONFIG_MAPS}/owner")

    run_story(story)


def test_orphans_stay() -> None:
    async def story(asker: Asker) -> None:
        await owner_and_owned(asker)
        options = {"propagationPolicy": "Orphan"}
        await asker.ask("DELETE", f"{CONFIG_MAPS}/owner", options, status=200)
        await until_gone(asker, f"{CONFIG_MAPS}/owner")
        owned = await asker.get(f"{CONFIG_MAPS}/owned")
        assert "ownerReferences" not in owned["metadata"]

    run_story(story)


def test_a_namespace_takes_its_objects_along_and_ends_after_them() -> None:
    async def story(asker: Asker) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await asker.create("/api/v1/namespaces", namespace)
        inside = CONFIG_MAPS.replace("default", "team")
        await asker.create(inside, config_map("a", finalizers=["x/keep"]))
        ending = (await asker.ask("DELETE", "/api/v1/namespaces/team", status=200)).tree
        assert ending["status"]["phase"] == "Terminating"
        refused = (await asker.ask("POST", inside, config_map("b"), status=403)).tree
        assert "because it is being terminated" in refused["message"]
        await asker.patch(f"{inside}/a", {"metadata": {"finalizers": None}})
        await until_gone(asker, "/api/v1/namespaces/team")
        await asker.ask("GET", f"{inside}/a", status=404)
        protected = await asker.ask("DELETE", "/api/v1/namespaces/kube-system", status=403)
        assert "this namespace may not be deleted" in protected.tree["message"]

    run_story(story)


def test_a_collection_is_deleted_by_selector() -> None:
    async def story(asker: Asker) -> None:
        for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
            await asker.create(CONFIG_MAPS, config_map(name, labels={"l": label}))
        await asker.ask("DELETE", f"{CONFIG_MAPS}?labelSelector=l%3Dx", status=200)
        left = (await asker.get(CONFIG_MAPS))["items"]
        assert [item["metadata"]["name"] for item in left] == ["b"]

    run_story(story)


# Subresources


def test_a_scale_is_read_and_written() -> None:
    async def story(asker: Asker) -> None:
        await asker.create(DEPLOYMENTS, deployment("web", 2))
        scale = await asker.get(f"{DEPLOYMENTS}/web/scale")
        assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
            "Scale",
            {"replicas": 2},
            "app=web",
        )
        scale["spec"]["replicas"] = 5
        await asker.ask("PUT", f"{DEPLOYMENTS}/web/scale", scale, status=200)
        assert (await asker.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 5
        await asker.ask("PUT", f"{DEPLOYMENTS}/web/scale", scale, status=409)  # of an older version
        await asker.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 1}})
        assert (await asker.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 1

    run_story(story)


def test_a_disruption_budget_protects_its_last_pods() -> None:
    async def story(asker: Asker) -> None:
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "one-stays"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await asker.create(budgets, budget)
        ready = {
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        }
        for name in ("a", "b"):
            await asker.create(PODS, pod(name, labels={"app": "x"}))
            await asker.patch(f"{PODS}/{name}/status", ready)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        await asker.ask("POST", f"{PODS}/a/eviction", eviction, status=201)
        refused = (await asker.ask("POST", f"{PODS}/b/eviction", eviction, status=429)).tree
        assert refused["message"] == (
            "Cannot evict pod as it would violate the pod's disruption budget."
        )
        [cause] = refused["details"]["causes"]
        assert cause == {
            "reason": "DisruptionBudget",
            "message": "The disruption budget one-stays needs 1 healthy pods and has 1 currently",
        }
        await asker.get(f"{PODS}/b")

    run_story(story)


def test_the_one_user_may_do_everything_and_others_nothing() -> None:
    async def story(asker: Asker) -> None:
        reviews = "/apis/authorization.k8s.io/v1"
        mine = await asker.create(f"{reviews}/selfsubjectaccessreviews", {"spec": {}})
        assert mine["status"]["allowed"] is True
        theirs = await asker.create(
            f"{reviews}/subjectaccessreviews", {"spec": {"user": "another"}}
        )
        assert theirs["status"]["allowed"] is False
        tokens = "/apis/authentication.k8s.io/v1/tokenreviews"
        known = await asker.create(tokens, {"spec": {"token": rest_place.TOKEN}})
        assert known["status"]["user"]["username"] == "kubernetes-admin"
        assert not (await asker.create(tokens, {"spec": {"token": "x"}}))["status"]["authenticated"]

    run_story(story)


def test_the_priority_classes_of_the_system_cannot_be_deleted() -> None:
    async def story(asker: Asker) -> None:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        refused = await asker.ask("DELETE", f"{path}/system-node-critical", status=403)
        assert refused.tree["message"] == (
            'priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: '
            "this is a system priority class and cannot be deleted"
        )

    run_story(story)


# Versions


def test_events_of_both_versions_are_the_same_objects() -> None:
    async def story(asker: Asker) -> None:
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "dovetail",
            "reportingInstance": "i",
            "action": "Binding",
            "reason": "Scheduled",
            "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "default", "name": "a"},
            "note": "placed",
        }
        await asker.create("/apis/events.k8s.io/v1/namespaces/default/events", event)
        core = "/api/v1/namespaces/default/events"
        selected = f"{core}?fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DPod"
        [seen] = (await asker.get(selected))["items"]
        assert (seen["apiVersion"], seen["message"]) == ("v1", "placed")
        assert seen["involvedObject"]["name"] == "a"
        assert seen["reportingComponent"] == "dovetail"
        assert "regarding" not in seen
        core_event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "f"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "b"},
            "message": "old style",
            "reason": "Old",
            "type": "Normal",
        }
        await asker.create(core, core_event)
        new = await asker.get("/apis/events.k8s.io/v1/namespaces/default/events/f")
        assert (new["note"], new["regarding"]["name"]) == ("old style", "b")
        none = await asker.get(f"{core}?fieldSelector=involvedObject.name%3Dc")
        assert none["items"] == []

    run_story(story)


def test_a_taint_rule_is_served_in_both_versions() -> None:
    async def story(asker: Asker) -> None:
        rule = {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "spec": {
                "deviceSelector": {"driver": "gpu.nvidia.com"},
                "taint": {"key": "x", "effect": "NoSchedule"},
            },
        }
        made = await asker.create("/apis/resource.k8s.io/v1beta2/devicetaintrules", rule)
        assert made["apiVersion"] == "resource.k8s.io/v1beta2"
        stored = await asker.get("/apis/resource.k8s.io/v1/devicetaintrules/r")
        assert stored["apiVersion"] == "resource.k8s.io/v1"
        assert stored["metadata"]["uid"] == made["metadata"]["uid"]

    run_story(story)


# Custom resources


def test_a_definition_serves_its_kind_at_once_and_takes_its_objects_along() -> None:
    async def story(asker: Asker) -> None:
        queues = "/apis/example.com/v1/namespaces/default/queues"
        await asker.ask("GET", queues, status=404)
        made = await asker.create(DEFINITIONS, definition())
        assert {entry["type"]: entry["status"] for entry in made["status"]["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        tree = {
            "apiVersion": "example.com/v1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"size": 3},
            "status": {"x": 1},
        }
        created = await asker.create(queues, tree)
        assert "status" not in created
        ours = {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {},
        }
        await asker.create("/apis/dovetail.dev/v1alpha1/queues", ours)
        [listed] = (await asker.get(queues))["items"]  # the other Queue is elsewhere
        assert listed["spec"] == {"size": 3}

        patched = await asker.patch(f"{queues}/q/status", {"status": {"y": 2}, "spec": {"size": 9}})
        assert (patched["spec"], patched["status"]) == ({"size": 3}, {"y": 2})
        table = await asker.get(queues, Accept=rest_place.TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
        assert table["rows"][0]["cells"] == ["q", 3]
        assert (await asker.get(f"{queues}/q/scale"))["spec"] == {"replicas": 3}
        strict = await asker.ask(
            "POST",
            f"{queues}?fieldValidation=Strict",
            tree | {"metadata": {"name": "r"}, "spec": {"sise": 1}},
            status=400,
        )
        assert 'unknown field "spec.sise"' in strict.tree["message"]
        strategic = await asker.ask(
            "PATCH", f"{queues}/q", {}, status=415, Content_Type=rest_place.STRATEGIC_PATCH
        )
        assert strategic.tree["reason"] == "UnsupportedMediaType"

        await asker.ask("DELETE", f"{DEFINITIONS}/queues.example.com", status=200)
        await asker.ask("GET", queues, status=404)
        await asker.create(DEFINITIONS, definition())
        assert (await asker.get(queues))["items"] == []
        assert len((await asker.get("/apis/dovetail.dev/v1alpha1/queues"))["items"]) == 1

    run_story(story)


def test_discovery_lists_a_definitions_kind_while_it_is_there() -> None:
    async def story(asker: Asker) -> None:
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

        async def groups() -> set[str]:
            plain = {group["name"] for group in (await asker.get("/apis"))["groups"]}
            items = (await asker.get("/apis", Accept=aggregated))["items"]
            assert {item["metadata"]["name"] for item in items} == plain
            return plain

        assert "example.com" not in await groups()
        await asker.create(DEFINITIONS, definition())
        assert "example.com" in await groups()
        resources = (await asker.get("/apis/example.com/v1"))["resources"]
        names = [resource["name"] for resource in resources]
        assert names == ["queues", "queues/status", "queues/scale"]
        document = await asker.get("/openapi/v3/apis/example.com/v1")
        assert "/apis/example.com/v1/namespaces/{namespace}/queues/{name}" in document["paths"]
        await asker.ask("DELETE", f"{DEFINITIONS}/queues.example.com", status=200)
        assert "example.com" not in await groups()

    run_story(story)


def test_a_volume_claim_without_a_size_or_with_an_impossible_class_is_refused() -> None:
    async def story(asker: Asker) -> None:
        path = "/api/v1/namespaces/default/persistentvolumeclaims"
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "Your class"},
        }
        refused = await asker.ask("POST", path, claim, status=422)
        causes = {each["field"]: each["message"] for each in refused.tree["details"]["causes"]}
        assert causes["spec.accessModes"] == "Required value: at least 1 access mode is required"
        assert causes["spec.resources[storage]"] == "Required value"
        start = 'Invalid value: "Your class": a lowercase RFC 1123 subdomain must consist of'
        assert causes["spec.storageClassName"].startswith(start)

    run_story(story)
