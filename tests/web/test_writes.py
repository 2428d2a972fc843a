"""Changes through the dashboard: all by dry run first, only with the flag, only what answers are about."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.sim.server.api_server import SimApi
from tests.support import waiting
from tests.web.serving_dashboards import CONFIRMED, Answer, Client, pod, story

WORK = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""


def _ref(kind: str, name: str, namespace: str = "train", api_version: str = "v1") -> dict[str, str]:
    return {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}


async def _fix(client: Client, *patches: dict[str, Any]) -> Answer:
    return await client.ask("POST", "/api/v1/fixes", headers=CONFIRMED, body=list(patches))


async def _submit(client: Client, manifest: str, namespace: str = "train") -> Answer:
    body = {"manifest": manifest, "namespace": namespace}
    return await client.ask("POST", "/api/v1/work", headers=CONFIRMED, body=body)


async def _names(client: Client) -> set[str]:
    return {item["name"] for item in (await client.get("/api/v1/pods")).tree["items"]}


def test_a_fix_is_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("old", "train"))
        api.put(pod("labelled", "train"))
        answer = await _fix(
            client,
            {"object": _ref("Pod", "old"), "delete": True},
            {"object": _ref("Pod", "labelled"), "merge": {"metadata": {"labels": {"a": "b"}}}},
            {"object": _ref("Pod", "new"), "create": pod("new", "train")},
        )
        assert answer.status == 200, answer.body
        assert answer.tree["changed"] == [
            "deleted Pod train/old",
            "changed Pod train/labelled",
            "created Pod train/new",
        ]
        await waiting.until(lambda: _is(client, {"labelled", "new"}), "the change to be seen")
        writes = [record for record in caplog.records if record.message == "dashboard.write"]
        assert [record.__dict__["target"] for record in writes] == [
            "Pod train/old",
            "Pod train/labelled",
            "Pod train/new",
        ]

    async def _is(client: Client, names: set[str]) -> bool:
        return await _names(client) == names

    with caplog.at_level(logging.WARNING, logger="dovetail.audit"):
        story(tell, allow_writes=True)


def test_a_fix_of_which_a_part_is_refused_changes_nothing() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("old", "train"))
        broken = pod("Not A Name", "train")
        answer = await _fix(
            client,
            {"object": _ref("Pod", "old"), "delete": True},
            {"object": _ref("Pod", "Not A Name"), "create": broken},
        )
        assert answer.status == 422
        absent = {"object": _ref("Pod", "absent"), "merge": {"metadata": {"labels": {"a": "b"}}}}
        answer = await _fix(client, {"object": _ref("Pod", "old"), "delete": True}, absent)
        assert answer.status == 404
        assert "absent" in answer.tree["detail"]
        assert await client.get("/api/v1/pods/train/old")

    story(tell, allow_writes=True)


def test_what_answers_are_not_about_cannot_be_written() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for kind, api_version in (
            ("Secret", "v1"),
            ("ServiceAccount", "v1"),
            ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1"),
            ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"),
        ):
            tree = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}
            ref = _ref(kind, "a", api_version=api_version)
            assert (await _fix(client, {"object": ref, "create": tree})).status == 403
            manifest = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n"
            assert (await _submit(client, manifest)).status in (400, 403)

    story(tell, allow_writes=True)


def test_a_patch_that_is_none_is_refused() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        ref = _ref("Pod", "a")
        for wrong in (
            [{"object": ref}],
            [{"object": ref, "delete": True, "merge": {}}],
            [{"object": {"kind": "Pod"}}],
            [],
            [{"object": _ref("Pod", ""), "delete": True}],
            {"object": ref},
        ):
            answer = await client.ask("POST", "/api/v1/fixes", headers=CONFIRMED, body=wrong)
            assert answer.status == 400, wrong

    story(tell, allow_writes=True)


def test_work_is_submitted_as_a_whole_or_not_at_all() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        answer = await _submit(client, WORK)
        assert answer.status == 201, answer.body
        first, second = answer.tree["changed"]
        assert first == "created Pod train/a"
        assert second.startswith("created Job train/train-")

        again = await _submit(client, WORK.replace("generateName: train-", "name: fresh"))
        assert again.status == 409  # pod a exists; the job was not created
        broken = await _submit(client, WORK.replace("spec: {containers", "spc: {containers"))
        assert broken.status == 400
        assert broken.tree["field"] == "manifest"

    story(tell, allow_writes=True)


def test_an_upgrade_is_paused_and_the_operators_objects_are_left_alone() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        upgrade = {
            "apiVersion": registry.STACK_UPGRADE.api_version,
            "kind": registry.STACK_UPGRADE.name,
            "metadata": {"name": "roll"},
            "spec": {"to": {"driver": "595.91.07"}},
        }
        api.put(upgrade)
        ref = {"apiVersion": upgrade["apiVersion"], "kind": upgrade["kind"], "name": "roll"}
        answer = await _fix(client, {"object": ref, "merge": {"spec": {"paused": True}}})
        assert answer.status == 200, answer.body
        assert answer.tree["changed"] == ["changed StackUpgrade roll"]
        assert api.find(registry.STACK_UPGRADE, "roll").spec.paused

        operator = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "a"}
        refused = await _fix(client, {"object": operator, "merge": {"spec": {}}})
        assert refused.status == 403
        assert "writes no ClusterPolicy" in refused.tree["detail"]

    story(tell, allow_writes=True)


def test_an_upgrade_stays_as_it_is_without_the_right_to_write() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        kind = registry.STACK_UPGRADE
        ref = {"apiVersion": kind.api_version, "kind": kind.name, "name": "roll"}
        answer = await _fix(client, {"object": ref, "merge": {"spec": {"aborted": True}}})
        assert answer.status == 403
        assert answer.tree["next"] == "start it with --allow-writes"

    story(tell)
