"""Plans of roll-outs on small clusters, and the command."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from dovetail.answer.drain import drain_filters
from dovetail.answer.rollout import rollout, rollout_answer, rollout_policy
from dovetail.ask.lifecycle import rollout_asked
from dovetail.tables.answers import rollout_picture
from tests.answer.drain.building import budget
from tests.answer.what_if import building
from tests.cli import running

TIMES = rollout_policy.Durations(1800, 3000, "test")
ALL_EXIST = drain_filters.DaemonSets(None)
Tree = dict[str, Any]


def node(name: str, **labels: str) -> Tree:
    return building.plugin_node(name, gpus=8, labels=labels)


def gang(name: str, nodes: list[str], *, gpus: int = 8, runtime: str = "") -> list[Tree]:
    """A gang of one pod on each node, which cannot do without any of them."""
    trees = []
    for number, where in enumerate(nodes):
        tree = building.pod(f"{name}-{number}", gpus=gpus, node=where, job=name, runtime=runtime)
        tree["metadata"]["labels"] |= {
            "dovetail.dev/gang": name,
            "dovetail.dev/gang-min": str(len(nodes)),
            "app": "web",
        }
        tree["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        trees.append(tree)
    return trees


def planned(*trees: Tree, nodes: tuple[str, ...] = (), **policy: Any) -> rollout_answer.Plan:
    replica = building.replica_of(*trees)
    chosen = nodes or tuple(sorted(replica.world.nodes))
    wish = rollout.Wish({"driver": "580.95.05"}, chosen, (), building.NOW, building.DAY, {})
    options = {"max_unavailable": "1", "canary": 0} | policy
    rules = rollout_policy.Policy(durations=TIMES, **options)
    return rollout.planned(replica, wish, rules, ALL_EXIST)


def work(plan: rollout_answer.Plan) -> list[tuple[int, str, str, tuple[str, ...]]]:
    return [
        (wave.number, each.work, each.fate, each.after) for wave in plan.waves for each in wave.work
    ]


def order(plan: rollout_answer.Plan) -> list[str]:
    return [name for wave in plan.waves for name in wave.nodes]


def test_empty_nodes_go_first_and_displaced_work_lands_on_a_finished_node() -> None:
    plan = planned(node("a"), node("b"), *gang("train", ["a"]))
    assert plan.can_finish
    assert order(plan) == ["b", "a"]
    assert work(plan) == [(2, "default/gang/train", "moves", ("b",))]
    assert plan.chosen.displaced == 1
    # The order by name displaces it twice: from a to b, and from b back to a.
    assert plan.compared[0].displaced == 2
    assert plan.compared[0].total > plan.chosen.total


def test_a_gang_is_displaced_whole_and_waits_until_its_nodes_are_back() -> None:
    plan = planned(node("a"), node("b"), *gang("train", ["a", "b"]), max_unavailable="2")
    assert [wave.nodes for wave in plan.waves] == [("a", "b")]
    ((_, _, fate, after),) = work(plan)
    assert (fate, after) == ("waits", ("a", "b"))
    (each,) = plan.waves[0].work
    assert (each.waits_seconds, each.lost_seconds) == (1800, 3600)
    # 16 GPUs: an hour of work is done again, half an hour is waited, five minutes are needed to restart.
    assert plan.chosen.total == 25.33


def test_work_that_ends_soon_is_waited_for() -> None:
    ends = gang("ends", ["a"], runtime="80m")  # began an hour ago: twenty minutes are left
    plan = planned(node("a"), node("b"), node("c"), *ends, *gang("stays", ["b"]))
    assert order(plan) == ["c", "a", "b"]  # a is empty when the second wave begins
    assert {name for _, name, _, _ in work(plan)} == {"default/gang/stays"}


def test_the_canary_goes_alone_and_first() -> None:
    trees = [node(f"n{number}") for number in range(5)]
    plan = planned(*trees, max_unavailable="4", canary=1, canary_seconds=3600)
    assert [len(wave.nodes) for wave in plan.waves] == [1, 4]
    assert [wave.is_canary for wave in plan.waves] == [True, False]
    assert plan.waves[1].start == "2026-11-17T13:30:00Z"


def test_waiting_work_that_starts_later_is_named() -> None:
    waiting = building.pod("next", gpus=8, job="next", runtime="1h")
    ends = gang("ends", ["a"], runtime="70m")
    plan = planned(node("a"), *ends, waiting)
    (slip,) = plan.slips
    assert slip.work.endswith("next")
    assert (slip.before, slip.seconds) == ("2026-11-17T12:10:00Z", 1200)


def test_a_budget_gets_back_what_a_pod_took_that_starts_again() -> None:
    lone = [building.pod(f"web-{at}", gpus=1, node="a", job="web") for at in range(3)]
    for tree in lone:
        tree["metadata"]["labels"] |= {"app": "web"}
        tree["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    plan = planned(node("a"), node("b"), *lone, budget(maxUnavailable=1), nodes=("a",))
    assert plan.blockers == ()


def test_a_budget_of_one_protects_a_whole_gang() -> None:
    work_ = gang("train", ["a", "b"])
    plan = planned(node("a"), node("b"), node("c"), *work_, budget(maxUnavailable=1), nodes=("a",))
    assert [blocker.code for blocker in plan.blockers] == ["DisruptionBudget"]


def test_pods_of_other_schedulers_start_again_too() -> None:
    (tree,) = gang("train", ["a"])
    tree["spec"]["schedulerName"] = "default-scheduler"
    replica = building.replica_of(node("a"), node("b"), tree)
    replica.policy = msgspec.structs.replace(replica.policy, scheduler_names=("dovetail",))
    wish = rollout.Wish({"driver": "580.95.05"}, ("a",), (), building.NOW, building.DAY, {})
    rules = rollout_policy.Policy(durations=TIMES, max_unavailable="1", canary=0)
    plan = rollout.planned(replica, wish, rules, ALL_EXIST)
    assert plan.can_finish
    assert [each.after for each in plan.waves[0].work] == [("b",)]


def test_a_budget_of_none_cannot_finish_and_names_the_pods() -> None:
    plan = planned(node("a"), node("b"), *gang("train", ["a"]), budget(maxUnavailable=0))
    assert not plan.can_finish
    (blocker,) = plan.blockers
    assert (blocker.code, blocker.subjects) == ("DisruptionBudget", ("default/train-0",))


def test_a_bare_pod_a_large_unit_and_a_short_window_are_blockers() -> None:
    bare = building.pod("bare", gpus=1, node="a")
    racks = [node(name, rack="r1") for name in "ab"]
    window = rollout_policy.window("22:00-22:30")
    plan = planned(*racks, bare, together="rack", windows=(window,))
    codes = {blocker.code for blocker in plan.blockers}
    assert codes == {"NoController", "UnitTooLarge", "WindowTooShort"}


def test_work_that_never_fits_again_is_a_blocker() -> None:
    # No node has the label that it selects any more.
    pinned = gang("pinned", ["a"])
    pinned[0]["spec"]["nodeSelector"] = {"kubernetes.io/os": "none"}
    plan = planned(node("a"), node("b"), *pinned)
    assert [blocker.code for blocker in plan.blockers] == ["NeverFits"]
    assert work(plan)[0][2] == "never"


@pytest.mark.slow
def test_the_command_prints_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    objects = tmp_path / "cluster.json"
    names = [f"n{number}" for number in range(6)]
    pairs = itertools.pairwise(names[:5])
    trees = [node(name) for name in names]
    trees += [tree for pair in pairs for tree in gang(f"g{pair[0]}", list(pair), gpus=4)]
    objects.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": trees}))
    words = ("stack", "plan", "--to", "driver=580.95.05", "--max-unavailable", "2", "-o", "json")

    def asked(*more: str, seed: str = "0") -> running.Run:
        return running.outside(
            tmp_path / "none", *words, *more, "--snapshot", str(objects), PYTHONHASHSEED=seed
        )

    first, second = asked(seed="1"), asked(seed="2")
    assert first.code == 0, first.err
    assert first.out == second.out
    assert msgspec.json.decode(first.out)["nodes"] == 6


def test_the_command_refuses_bad_input_and_shows_a_timeline(tmp_path: Path) -> None:
    objects = tmp_path / "cluster.json"
    trees = [node("a"), node("b"), *gang("train", ["a"])]
    objects.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": trees}))

    def asked(*words: str) -> running.Run:
        return running.inside(
            tmp_path / "none", "stack", "plan", *words, "--snapshot", str(objects)
        )

    good = ("--to", "driver=580.95.05", "--max-unavailable", "1")
    done = asked(*good, "--price", "a100=2")
    assert done.code == 0, done.err
    assert "canary" in done.out
    assert any(line.startswith("canary") and "#" in line for line in done.lines)
    assert asked(*good, "--window", "22:00-22:10").code == 1
    for wrong in (
        ("--to", "driver=new"),
        ("--to", "rocket=1.0"),
        (*good, "--to", "driver=1.0"),
        (*good, "--window", "sometimes"),
        (*good, "--node-minutes", "50/30"),
        (*good, "--start", "2001-01-01T00:00:00Z"),
        (*good, "--nodes", "rack=none"),
        (*good, "--durations", str(objects)),
    ):
        refused = asked(*wrong)
        assert (refused.code, refused.out) == (2, ""), wrong


def test_patience_lets_work_end_instead_of_evicting_it() -> None:
    trees = [node("a"), node("b"), *gang("ends", ["a"], runtime="3h"), *gang("stays", ["b"])]
    hurried = planned(*trees)
    patient = planned(*trees, patience_seconds=4 * 3600)
    assert "default/ends" in {name.replace("gang/", "") for _, name, _, _ in work(hurried)}
    assert all("ends" not in name for _, name, _, _ in work(patient))
    assert patient.chosen.total < hurried.chosen.total
    assert patient.end > hurried.end


def test_patience_ends_when_the_rest_would_not_be_done_in_time() -> None:
    trees = [node("a"), *gang("long", ["a"], runtime="90h")]
    plan = planned(*trees, patience_seconds=3600)
    assert [fate for _, _, fate, _ in work(plan)] == ["waits"]
    assert plan.waves[0].start == plan.start


def test_the_picture_shows_every_node_its_times_and_escapes_names() -> None:
    trees = [node("a"), node("b"), *gang("w", ["a"], runtime="90h")]
    plan = planned(*trees)
    picture = rollout_picture.svg(plan)
    assert picture == rollout_picture.svg(planned(*trees))
    root = ElementTree.fromstring(picture)
    bars = [each for each in root.iter() if each.get("class") in ("node", "node canary")]
    assert len(bars) == 2
    titles = [each.text or "" for each in root.iter() if each.tag.endswith("}title")]
    assert any(text.startswith("a: wave") and "work leaves it" in text for text in titles)
    assert any(text.startswith("b: wave") and "empty" in text for text in titles)
    renamed = msgspec.structs.replace(plan, to={"<script>": "&"})
    page = rollout_picture.page(renamed)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_curve_is_lower_by_the_gpus_of_a_wave_while_it_lasts() -> None:
    levels = rollout_picture._levels([("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", 8)], 24)
    assert [gpus for _, gpus in levels] == [16, 24]


def test_durations_come_from_the_nodes_that_earlier_upgrades_have_done(tmp_path: Path) -> None:
    def upgraded(name: str, phase: str, minutes: int) -> Tree:
        began, ended = "2026-11-01T00:00:00Z", f"2026-11-01T00:{minutes:02}:00Z"
        return {"name": name, "phase": phase, "startedAt": began, "finishedAt": ended}

    nodes = [upgraded("a", "Done", 20), upgraded("b", "Done", 30), upgraded("c", "Failed", 59)]
    upgrade = {"kind": "StackUpgrade", "status": {"nodes": nodes}}
    path = tmp_path / "upgrades.json"
    path.write_bytes(msgspec.json.encode({"kind": "List", "items": [upgrade]}))
    times = rollout_asked.node_durations(None, str(path))
    assert times == rollout_policy.Durations(1200, 1800, "2 recorded nodes")
