"""Objects that no sound server stores, but snapshots and hands do: the search passes over them and never fails."""

from __future__ import annotations

import copy
import datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail import errors
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes import search
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.test_claim_fixes import ATTRIBUTES
from tests.answer.fixes.test_pod_fixes import TAINT, affinity, neighbours

Tree = dict[str, Any]
ODD = [None, {}, [], "", "x", 0, -1, True, [None], {"a": None}]
NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)


def objects() -> list[Tree]:
    """A little of everything that rules look at."""
    constraint = {"requests": ["gpus"], "matchAttribute": f"{build.DRIVER}/root"}
    pod = build.pod(
        gpus=9,
        nodeSelector={"gpu": "h100"},
        affinity=affinity({"key": "pool", "operator": "In", "values": ["x"]})
        | neighbours("podAntiAffinity", "db"),
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {},
            }
        ],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
        **build.uses(),
    )
    pod["metadata"] |= {
        "uid": "p",
        "annotations": {"dovetail.dev/topology-required": "rack"},
        "labels": {"dovetail.dev/queue": "q", "dovetail.dev/gang": "g"},
    }
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "made"}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    wanted = {
        "count": 2,
        "when": f'{ATTRIBUTES}.architecture == "hopper"',
        "constraints": [constraint],
    }
    made = build.claim("made", **wanted)
    made["metadata"]["ownerReferences"] = [owner]
    made["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = "ExactCount"
    return [
        build.node("a", labels={"gpu": "H100"}, taints=[TAINT]),
        build.gpu_slice("a"),
        build.device_class(),
        build.queue("q", resources={"gpu": {"limit": "2", "quota": "1"}}),
        build.priority_class("urgent", 5),
        build.template(**wanted),
        made,
        pod,
    ]


def paths(tree: Any, base: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    places = []
    for step, value in items:
        if step not in ("kind", "apiVersion", "metadata", "uid", "name", "namespace"):
            places.append((*base, step))
        places += paths(value, (*base, step))
    return places


@st.composite
def odd_objects(draw: st.DrawFn) -> list[Tree]:
    trees = copy.deepcopy(objects())
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(trees)))
        place: Any = trees
        for step in path[:-1]:
            place = place[step]
        if len(path) > 1:
            place[path[-1]] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return trees


@given(odd_objects())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_odd_objects_never_break_the_search(trees: list[Tree]) -> None:
    stored = []
    for tree in trees:
        try:
            stored.append(codec.decode(tree))
        except errors.InputError:
            continue
    replica = Replica(object_set.of("odd", stored), policy.DEFAULT, NOW)
    for fix in search.search(replica, "p"):
        assert fix.patch
        assert fix.title
