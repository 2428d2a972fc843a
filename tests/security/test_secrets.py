"""Secrets are never asked for, and those we must hold are never shown: rights, logs, errors, snapshots."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dovetail import errors
from dovetail.boot import http_server, logs
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import decode
from dovetail.kubetypes import registry
from dovetail.model import configuration
from dovetail.ports import failures
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format
from tests.kube import serving
from tests.security import hostile
from tests.security.test_injection import written
from tests.support import live

TOKEN = "s3cret-t0ken"
PLANTED = "hush-c3VwZXItc2VjcmV0"
KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: a
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:1"}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
users: [{{name: a, user: {{token: {TOKEN}, client-key-data: "{PLANTED}", password: {PLANTED}, username: [}}}}]
"""


def test_the_rights_name_every_resource_and_no_secret() -> None:
    rules = [rule for right in live.rights() for rule in right.get("rules", ())]
    assert rules
    named = {resource for rule in rules for resource in rule["resources"]}
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    groups = {group for rule in rules for group in rule["apiGroups"]}
    assert not [
        item
        for item in named
        if "*" in item or "secret" in item or "configmap" in item or "exec" in item
    ]
    assert "*" not in verbs | groups
    assert not verbs & {"deletecollection", "impersonate", "bind", "escalate"}
    assert {name for rule in rules if "delete" in rule["verbs"] for name in rule["resources"]} == {
        "intents"
    }
    assert {name for rule in rules if "update" in rule["verbs"] for name in rule["resources"]} == {
        "resourceclaims"
    }
    for rule in rules:
        if set(rule["verbs"]) & {"create", "patch"} and "pods" in rule["resources"]:
            pytest.fail("a scheduler writes no pods, only their status, binding and eviction")


def test_no_kind_we_watch_or_save_carries_secrets() -> None:
    kept = {kind.plural for kind in (*registry.WATCHED, *snapshot_format.KINDS)}
    assert not kept & {"secrets", "configmaps", "serviceaccounts"}


@pytest.mark.parametrize("status", [200, 401, 403, 500])
def test_a_token_is_in_no_failure_and_no_log(status: int) -> None:
    async def main() -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            assert request.headers["Authorization"] == f"Bearer {TOKEN}"
            return (
                serving.refusal(status, "Because", "no")
                if status != 200
                else web.Response(body=b"nonsense")
            )

        async with (
            serving.serving(handle) as url,
            transport.Transport(serving.connection(url, token=TOKEN)) as over,
        ):
            answer = await over.request("GET", "/api/v1/pods")
            with pytest.raises(failures.ApiFailure) as failure:
                await _fails(over, answer)
            assert TOKEN not in f"{failure.value} {failure.value!r} {answer} {over!r}"

    with written(logs.TextLines()) as lines:
        logging.getLogger("aiohttp").setLevel(logging.DEBUG)
        asyncio.run(main())
    assert TOKEN not in "\n".join(lines)


async def _fails(over: transport.Transport, answer: transport.Answer) -> None:
    """What a caller does with such an answer."""
    if answer.is_success:
        decode.page(answer.body, doing="list pods")
    async for _ in over.lines("/api/v1/pods"):
        pytest.fail("nothing was to be read")


def test_a_kubeconfig_that_cannot_be_read_is_not_quoted(tmp_path: Path) -> None:
    for text in (
        KUBECONFIG,
        KUBECONFIG.replace("username: [", "username: [a]"),
        f"token: {TOKEN}\n\t{PLANTED}: [",
    ):
        (tmp_path / "config").write_text(text)
        with pytest.raises(errors.InputError) as refusal:
            client_config.load(str(tmp_path / "config"))
        assert TOKEN not in str(refusal.value)
        assert PLANTED not in str(refusal.value)


def test_the_configuration_that_is_served_holds_no_field_that_says_it_is_secret() -> None:
    tree = dict.fromkeys(
        ("token", "bearerToken", "client_secret", "PASSWORD", "tls-private-key", "keyData"), PLANTED
    )
    shown = http_server.without_secrets({"a": [tree, {"b": tree}], **tree, "name": "kept"})
    assert PLANTED not in str(shown)
    assert shown["name"] == "kept"
    fields = {
        field.encode_name for field in msgspec.structs.fields(configuration.SchedulerConfiguration)
    }
    assert fields, "what is served is this struct: a secret in it would have to be named as one"


def planted_objects() -> dict[registry.Kind, list[bytes]]:
    """Objects with the secret wherever their owners put such things."""
    container: dict[str, Any] = {
        "name": "main",
        "image": f"registry.example.com/{PLANTED}",
        "command": ["run", PLANTED],
        "args": [f"--key={PLANTED}"],
        "env": [{"name": "TOKEN", "value": PLANTED}],
        "envFrom": [{"secretRef": {"name": PLANTED}}],
    }
    metadata = {
        "name": "a",
        "namespace": "team",
        "uid": "uid-a",
        "labels": {"note": PLANTED},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": f'{{"password":"{PLANTED}"}}'
        },
        "managedFields": [{"manager": PLANTED}],
    }
    spec = {
        "containers": [container],
        "imagePullSecrets": [{"name": PLANTED}],
        "serviceAccountName": PLANTED,
    }
    spec["volumes"] = [{"name": "v", "secret": {"secretName": PLANTED}}]
    status = {
        "message": PLANTED,
        "conditions": [{"type": "Ready", "status": "False", "message": PLANTED}],
    }
    opaque = {"driver": "gpu.example.com", "parameters": {"license": PLANTED}}
    config_ = {"devices": {"requests": [], "config": [{"opaque": opaque}]}}
    return {
        registry.POD: [msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})],
        registry.CLAIM: [msgspec.json.encode({"metadata": metadata, "spec": config_})],
        registry.NODE: [
            msgspec.json.encode(
                {"metadata": metadata | {"namespace": ""}, "spec": {"providerID": PLANTED}}
            )
        ],
    }


def saved(directory: Path, documents: dict[registry.Kind, list[bytes]]) -> str:
    """Every byte of a redacted snapshot of these objects."""
    facts = snapshot_format.Facts(taken_at="2026-01-01T00:00:00Z", cluster=PLANTED)
    with snapshot_files.Draft(
        directory, is_forced=False, redacts=True, say=lambda text: None
    ) as draft:
        for kind, result in documents.items():
            for document in result:
                draft.put(kind, document)
        draft.finish(facts)
    return "".join(file.name + file.read_text() for file in directory.rglob("*") if file.is_file())


def test_a_redacted_snapshot_holds_nothing_of_planted_secrets(tmp_path: Path) -> None:
    text = saved(tmp_path / "snapshot", planted_objects())
    assert PLANTED not in text
    assert '"containers"' in text, "the objects themselves are there"


def test_a_hostile_object_does_not_keep_a_snapshot_from_being_taken(tmp_path: Path) -> None:
    documents = planted_objects()
    documents[registry.POD] += [
        b'{"metadata":{"name":"deep"},"x":' + hostile.deep(3000) + b"}",
        b'{"metadata":{"name":"../../../../elsewhere/x","namespace":"../.."}}',
        b"[]",
    ]
    saved(tmp_path / "snapshot", documents)
    assert [item.name for item in tmp_path.iterdir()] == ["snapshot"], (
        "names of objects make no paths"
    )
    assert len(saved_objects.read(tmp_path / "snapshot").manifest.files) > 0
