"""PriorityClasses of the in-memory API server: what a new pod takes from them, and what no longer changes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi

Tree = dict[str, Any]


def priority_class(name: str, value: int, **fields: Any) -> Tree:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return head | {"metadata": {"name": name}, "value": value} | fields


def pod(name: str, **spec: Any) -> Tree:
    containers = [{"name": "main", "image": "example"}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return head | {"spec": {"containers": containers} | spec}


def priority_of(api: SimApi, name: str) -> int | None:
    priority: int | None = api.find(registry.POD, name, namespace="default").spec.priority
    return priority


def test_a_pod_without_a_class_takes_the_default_one_and_keeps_it() -> None:
    api = SimApi(is_complete=True)
    api.put(pod("before"))
    api.put(priority_class("usual", 500, globalDefault=True, preemptionPolicy="Never"))
    api.put(pod("after"))
    assert (priority_of(api, "before"), priority_of(api, "after")) == (0, 500)
    after = api.tree(registry.POD, "after", namespace="default")["spec"]
    assert (after["priorityClassName"], after["preemptionPolicy"]) == ("usual", "Never")

    kind = api.kind_of(priority_class("usual", 500))
    api.shelf.delete(kind, ("", "usual"))
    api.put(pod("later"))
    assert (priority_of(api, "after"), priority_of(api, "later")) == (500, 0)


def test_the_value_of_a_class_never_changes() -> None:
    api = SimApi(is_complete=True)
    api.put(priority_class("high", 1000))
    target = Target(api.kind_of(priority_class("high", 1000)), "", "high")
    with pytest.raises(failures.Refused, match="may not be changed"):
        asyncio.run(api.patch(target, msgspec.json.encode({"value": 2000})))
    with pytest.raises(failures.Refused, match="no PriorityClass with name nosuch"):
        api.put(pod("wrong", priorityClassName="nosuch"))


def test_system_classes_are_built_in() -> None:
    api = SimApi(is_complete=True)
    kind = api.kind_of(priority_class("any", 1))
    names = [tree["metadata"]["name"] for tree in (record.tree for record in api.shelf.all(kind))]
    assert names == ["system-cluster-critical", "system-node-critical"]
