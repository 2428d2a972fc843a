"""Configurations in the MIG manager's ConfigMap: added, kept, copied, and what keeps a geometry from being started."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
import yaml

from dovetail import errors
from dovetail.ask import cluster_view
from dovetail.ask.lifecycle import geometry_upgrade, mig_config_map
from dovetail.kubetypes import codec, object_set, registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock
from tests.upgrade import trees

Tree = dict[str, Any]
PLACE = "gpu-operator"
NAME = "dovetail-mig-config"
OURS = {"dovetail-0123456789": [{"devices": [0], "mig-enabled": False}]}
THEIRS = {"theirs": [{"devices": "all", "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}]}


def _api(*maps: tuple[str, Tree]) -> SimApi:
    api = SimApi(VirtualClock())
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    for name, file in maps:
        _put(api, name, yaml.safe_dump(file))
    return api


def _put(api: SimApi, name: str, text: str) -> None:
    metadata = {"name": name, "namespace": PLACE}
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    api.put(tree | {"data": {"config.yaml": text, "other": "kept"}})


def _extended(api: SimApi) -> mig_config_map.Extended:
    return asyncio.run(mig_config_map.extended(api, OURS, name=NAME, namespace=PLACE))


def _stored(api: SimApi) -> Tree:
    document = asyncio.run(api.get(Target(mig_config_map.KIND, PLACE, NAME)))
    data: Tree = codec.parsed(document)["data"]
    return data | {"config.yaml": yaml.safe_load(data["config.yaml"])}


def _file(configs: Tree) -> Tree:
    return {"version": "v1", "mig-configs": configs}


def test_configurations_of_others_and_other_keys_stay() -> None:
    api = _api((NAME, _file(THEIRS)))
    asyncio.run(mig_config_map.write(api, _extended(api)))
    assert _stored(api) == {"config.yaml": _file(THEIRS | OURS), "other": "kept"}


def test_nothing_is_written_where_everything_is_there() -> None:
    api = _api((NAME, _file(THEIRS | OURS)))
    extended = _extended(api)
    assert extended.tree is None
    assert "stays as it is: 2 configurations" in extended.sentence(is_dry_run=False)


def test_a_new_one_begins_with_what_the_operator_ships() -> None:
    api = _api((mig_config_map.OPERATORS_OWN, _file(THEIRS)))
    extended = _extended(api)
    asyncio.run(mig_config_map.write(api, extended))
    assert _stored(api)["config.yaml"] == _file(THEIRS | OURS)
    assert extended.copied_from == mig_config_map.OPERATORS_OWN


def test_without_the_operators_file_a_new_one_keeps_its_default() -> None:
    assert _extended(_api()).configurations == ("all-disabled", *OURS)


def test_a_writer_that_came_between_is_not_overwritten() -> None:
    api = _api((NAME, _file(THEIRS)))
    extended = _extended(api)
    patch = {"data": {"config.yaml": yaml.safe_dump(_file({"newer": []}))}}
    asyncio.run(api.patch(Target(mig_config_map.KIND, PLACE, NAME), codec.encode_tree(patch)))
    with pytest.raises(failures.Conflict):
        asyncio.run(mig_config_map.write(api, extended))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version: v2\nmig-configs: {}", "expected version v1"),
        ("version: v1\nmig-configs: []", "expected version v1"),
        ("[", "config.yaml: "),
        ("version: v1\nmig-configs: {}\n---\n{}", "expected version v1"),
    ],
)
def test_a_file_that_cannot_be_extended_is_left_as_it_is(text: str, why: str) -> None:
    api = _api()
    _put(api, NAME, text)
    with pytest.raises(errors.InputError, match=why):
        _extended(api)


# What stands against a start


def _seen(*items: Tree) -> cluster_view.View:
    stored = [
        object_set.stored_item(registry.STACK_UPGRADE, codec.encode_tree(item))
        if item["kind"] == registry.STACK_UPGRADE.name
        else codec.decode(item)
        for item in items
    ]
    objects = object_set.of("test", stored)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return cluster_view.View(objects, now, "test", is_embedded=False)


def _policy(name: str = "") -> Tree:
    policy = trees.policy()
    policy["spec"]["migManager"] = {"config": {"name": name}} if name else {}
    return policy


def _obstacle(*items: Tree) -> geometry_upgrade.Obstacle | None:
    seen = _seen(*items)
    pointer = mig_config_map.pointer(seen)
    return geometry_upgrade.obstacle(seen, pointer, name=NAME, namespace=PLACE)


def _upgrade(phase: str) -> Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "StackUpgrade",
        "metadata": {"name": "roll"},
        "spec": {"to": {"driver": trees.NEW}},
        "status": {"phase": phase},
    }


def test_another_upgrade_under_way_keeps_it_from_starting() -> None:
    obstacle = _obstacle(_policy(NAME), _upgrade("Paused"))
    assert obstacle is not None
    assert obstacle.why == "stackupgrade/roll is under way: Paused"
    assert obstacle.next_step == "dovetail stack upgrade status roll"
    assert _obstacle(_policy(NAME), _upgrade("Completed")) is None


def test_a_manager_that_reads_another_config_map_is_named_with_the_option_that_helps() -> None:
    obstacle = _obstacle(_policy("team-configs"))
    assert obstacle is not None
    assert "migManager.config.name of ClusterPolicy policy is team-configs" in obstacle.why
    assert "--config-map team-configs" in obstacle.next_step


def test_a_manager_in_another_namespace_is_named() -> None:
    manager = trees.pod("nvidia-mig-manager", "test/mig-manager:v0.15.0", "a")
    manager["metadata"]["namespace"] = "nvidia"
    obstacle = _obstacle(_policy(NAME), manager)
    assert obstacle is not None
    assert obstacle.next_step.endswith("--operator-namespace nvidia")


def test_a_policy_that_names_the_operators_own_file_has_to_be_pointed_at_ours() -> None:
    api = _api((mig_config_map.OPERATORS_OWN, _file(THEIRS)))
    seen = _seen(_policy())
    assert _obstacle(_policy()) is None  # what we write is read by no manager yet, and harms none
    obstacle = geometry_upgrade.unread(mig_config_map.pointer(seen), _extended(api))
    assert obstacle is not None
    assert obstacle.next_step.startswith("kubectl patch clusterpolicy policy --type merge")
    assert f'"name":"{NAME}"' in obstacle.next_step
    pointed = mig_config_map.pointer(_seen(_policy(NAME)))
    assert geometry_upgrade.unread(pointed, _extended(api)) is None


def test_without_a_policy_only_a_config_map_that_is_there_is_believed() -> None:
    pointer = mig_config_map.pointer(_seen())
    assert geometry_upgrade.unread(pointer, _extended(_api())) is not None
    assert geometry_upgrade.unread(pointer, _extended(_api((NAME, _file(THEIRS))))) is None


def test_labels_whose_configuration_the_file_lacks_are_found() -> None:
    seen = _seen(trees.node("a", {"nvidia.com/mig.config": "custom"}), trees.node("b"))
    assert mig_config_map.unknown_labels(seen, ("all-disabled",)) == {"custom": "a"}
    assert mig_config_map.unknown_labels(seen, ("all-disabled", "custom")) == {}
