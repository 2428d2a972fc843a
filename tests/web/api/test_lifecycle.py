"""Upgrades, versions and repairs as the dashboard's server answers: what happened, what is unknown, who may see."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.tables.stack import upgrade_items
from dovetail.web import api, asked, problems
from dovetail.web.api import hidden_names
from tests.web.api import clusters, stack_clusters

CLUSTER = stack_clusters.StackCluster(clusters.NOW)
MINUTE = datetime.timedelta(minutes=1)


def _ask(path: str, may: asked.Visibility = asked.EVERYTHING, **params: Any) -> Any:
    return _asked_of(CLUSTER.objects(), path, may, **params)


def _asked_of(
    trees: list[clusters.Tree], path: str, may: asked.Visibility = asked.EVERYTHING, **params: Any
) -> Any:
    endpoint = next(each for each in api.ENDPOINTS if each.path == path)
    question = clusters.asked_of(trees, name="stack", may=may)
    return endpoint.answer(question, endpoint.params(**params))


def _upgrade(**spec: Any) -> upgrade_items.UpgradeItem:
    trees = [*CLUSTER.objects()[:8], CLUSTER.running_upgrade(**spec)]
    (item,) = _asked_of(trees, "/upgrades").items
    return item


def _may(*kinds: registry.Kind) -> asked.Visibility:
    return asked.Visibility(everywhere=frozenset(kind.unique_name for kind in kinds))


def test_upgrades_under_way_come_before_those_that_ended() -> None:
    items = _ask("/upgrades").items
    assert [item.name for item in items] == [stack_clusters.UPGRADE, "operator-26-7-0"]
    (over,) = _ask("/upgrades", phase=("Completed",)).items
    assert (over.is_ended, over.done, over.nodes) == (True, 1, 1)


def test_each_node_says_which_phases_it_went_through_and_when() -> None:
    item = _upgrade()
    nodes = {node.name: node for wave in item.waves for node in wave.nodes}
    phases = [span.phase for span in nodes[stack_clusters.CANARY].spans]
    steps = [step.partition("=")[0] for step in stack_clusters.STEPS]
    assert phases == [*steps, "Done"]
    for node in nodes.values():
        for before, after in zip(node.spans, node.spans[1:], strict=False):
            assert before.end == after.start
        if node.spans:
            assert node.spans[0].start == node.started_at
            assert node.spans[-1].end is None
    assert nodes["h100-6"].spans == ()
    assert nodes["h100-5"].by_hand[1].startswith("install driver")


def test_a_node_of_an_older_status_shows_that_its_phases_were_not_recorded() -> None:
    tree = CLUSTER.running_upgrade()
    for node in tree["status"]["nodes"]:
        node.pop("passed", None)
    (item,) = _asked_of([*CLUSTER.objects()[:8], tree], "/upgrades").items
    canary = item.waves[0].nodes[0]
    assert [span.phase for span in canary.spans] == [upgrade_items.NOT_RECORDED, "Done"]
    assert item.in_service[-1].gpus == 32  # service follows all the same


def test_gpus_in_service_follow_fences_and_failures() -> None:
    item = _upgrade()
    assert item.gpus == 64
    levels = [point.gpus for point in item.in_service]
    # The canary leaves and returns; of the next two one stays out; three are under way.
    assert levels == [56, 64, 56, 48, 56, 48, 40, 32]
    times = [point.at for point in item.in_service]
    assert times == sorted(times)
    assert times[0] == clusters.NOW - stack_clusters.CANARY_MINUTES * MINUTE


def test_the_end_is_expected_by_what_nodes_took_unless_people_or_windows_decide() -> None:
    assert _upgrade().expected_end is None  # a person has to install one
    tree = CLUSTER.running_upgrade()
    del tree["status"]["nodes"][5]["byHand"]
    (item,) = _asked_of([tree], "/upgrades").items
    node = stack_clusters.NODE_SECONDS / 60
    # The last of the running wave began 8 minutes ago; the next wave follows it.
    assert item.expected_end == clusters.NOW + (node - 8 + node) * MINUTE
    assert "median of 2 nodes" in item.expectation

    tree["spec"]["waves"]["windows"] = ["Sat,Sun 22:00-06:00"]
    (item,) = _asked_of([tree], "/upgrades").items
    assert item.expected_end is None
    assert "windows" in item.expectation


def test_a_broken_status_is_shown_as_far_as_it_can_be_read() -> None:
    tree = CLUSTER.running_upgrade()
    passed = ["Draining=soon", "=", "", "Applying=999999999999"]
    tree["status"]["nodes"][0] |= {"passed": passed}
    tree["status"]["waves"].pop()  # two nodes name a wave that is not there
    (item,) = _asked_of([tree], "/upgrades").items
    assert [span.phase for span in item.waves[0].nodes[0].spans][-2:] == ["Applying", "Done"]
    assert item.nodes == 6


def test_upgrades_need_the_right_to_list_them_and_nodes_one_of_their_own() -> None:
    with pytest.raises(problems.Refusal, match="you may not list stackupgrades"):
        _ask("/upgrades", _may(registry.NODE))
    item = _ask("/upgrades", _may(registry.STACK_UPGRADE)).items[0]
    text = msgspec.json.encode(item).decode()
    assert "h100-" not in text
    assert "research/llama" in text  # no pod of that namespace is hidden here
    assert {node.name for wave in item.waves for node in wave.nodes} == {hidden_names.HIDDEN}
    assert (item.name, item.to, item.gpus) == (stack_clusters.UPGRADE, "driver=595.91.07", 0)
    assert item.phases["Applying"] == 2


def test_the_stack_joins_nodes_with_the_same_versions_and_marks_skew() -> None:
    stack = _ask("/stack")
    rows = {row.nodes: row.stack for row in stack.rows}
    assert rows[("a100-0", "a100-1")].gpus == 4
    assert str(rows[("h100-0",)].driver_loaded) == stack_clusters.NEW
    assert str(rows[("h100-0",)].driver_desired) == stack_clusters.NEW
    skew = {(each.pool, each.fact): each.values for each in stack.skew}
    assert skew[("h100", "driver loaded")] == {stack_clusters.OLD: 7, stack_clusters.NEW: 1}
    assert skew[("h100", "kernel")] == {"6.8.0-60-generic": 7, "6.8.0-63-generic": 1}
    assert not [pool for pool, _ in skew if pool != "h100"]
    unknown = {each.fact for each in stack.unknown}
    assert {"toolkit", "kubernetes"} <= unknown
    assert stack.not_listed == ()


def test_what_only_hidden_objects_show_is_unknown_and_the_kinds_are_named() -> None:
    stack = _ask("/stack", _may(registry.NODE))
    (row,) = [row.stack for row in stack.rows if row.nodes == ("h100-0",)]
    assert str(row.driver_loaded) == stack_clusters.NEW  # a label of the node
    assert not row.driver_desired.is_known
    assert stack.objects == ()
    assert "clusterpolicies" in stack.not_listed
    assert "nodes" not in stack.not_listed
    with pytest.raises(problems.Refusal, match="you may not list nodes"):
        _ask("/stack", _may(registry.POD))


def test_repairs_say_the_remedy_the_try_and_what_they_wait_for() -> None:
    (item,) = _ask("/healing").items
    assert (item.node, item.remedy, item.tries) == ("l40s-0", "reset-gpu", 2)
    assert item.reason == "reset-gpu done; its GPUs are awaited"
    assert [attempt.result for attempt in item.attempts] == ["failed"]
    with pytest.raises(problems.Refusal, match="you may not list nodes"):
        _ask("/healing", _may(registry.STACK_UPGRADE))


@pytest.mark.parametrize("text", ["{", "[]", '{"phase": "asleep"}', '{"began": 1e300}'])
def test_a_repair_that_another_writer_broke_is_shown_as_such(text: str) -> None:
    node = CLUSTER.node("gpu-0")
    node["metadata"]["annotations"] = {"dovetail.dev/heal": text}
    (item,) = _asked_of([node], "/healing").items
    assert item.remedy == ""
    assert item.began is None
