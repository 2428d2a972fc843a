"""Allocation beside upstream's allocator: proofs that nothing fits, MIG nodes filled to the brim, large fleets."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from bench import pods
from dovetail.allocate import allocator, outcome
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes as wire
from dovetail.kubetypes.core import pods as running
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model import policy
from dovetail.replay import allocation_worlds
from dovetail.schedule import decide
from dovetail.world import events, world
from tests.support.oracle import Oracle

Tree = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)
ROUNDS = 5
PATIENCE_SECONDS = 10.0  # kube-scheduler's own limit per node
SIZES = (8, 16, 32, 64)
MIG_CLAIMS = 120
MIG_SEEDS = 12
COMPUTE_SLICES = 8 * 7  # of a node
FLEETS = {500: 4000, 10_000: 4000}  # nodes: claims
GO_SECONDS = 60.0  # upstream is stopped after this long; its rate is that of what it did


def proofs(oracle: Oracle) -> dict[str, Any]:
    """Asking for more than there is; milliseconds until the "no"."""
    asked = {
        f"{count + 1} of {count} identical": (count, pods.one_more_than(count)) for count in SIZES
    }
    asked |= {
        "3+3+3+4 of 12 identical": (12, [[3, 3, 3, 4]]),
        "ten requests on nine identical": (9, [[1] * 10]),
        "8+9 of 16 identical": (16, [[8, 9]]),
    }
    return {
        name: _proof(pods.identical(count, wanted), oracle)
        for name, (count, wanted) in asked.items()
    }


def _proof(made: Tree, oracle: Oracle) -> Tree:
    question = _question(made)
    view = question.views["a"]
    taken = []
    for _ in range(ROUNDS):
        taken.append(
            _milliseconds(lambda: allocator.allocate(view, question.claims, question.classes))
        )
    found = allocator.allocate(view, question.claims, question.classes)
    began = time.perf_counter()
    request = {"op": "allocate", "timeoutSeconds": PATIENCE_SECONDS, **made}
    theirs = oracle.ask(request)["answers"]["a"]
    return {
        "oursMilliseconds": round(statistics.median(taken), 3),
        "firstMilliseconds": round(taken[0], 3),
        "ours": type(found).__name__,
        "goMilliseconds": round((time.perf_counter() - began) * 1000, 1),
        "go": theirs["outcome"],
        "goCalls": theirs.get("calls"),
    }


def mig(oracle: Oracle) -> dict[str, Any]:
    """Claims for a mix of profiles on one node of eight GPUs with 26 candidates each, until long after it is full."""
    rows = []
    for seed in range(MIG_SEEDS):
        made = pods.mig_node(MIG_CLAIMS, seed)
        ours, theirs = _fill(made), oracle.ask({"op": "bench", "what": "allocate", **made})
        rows.append(
            (
                ours,
                theirs,
                _compute_slices(made, ours["placed"]),
                _compute_slices(made, theirs["placed"]),
            )
        )
    rates = [(ours["perSecond"], theirs["perSecond"]) for ours, theirs, _, _ in rows]
    return {
        f"{MIG_SEEDS} nodes, {MIG_CLAIMS} claims each, mixed profiles": {
            "oursPerSecond": round(statistics.median(ours for ours, _ in rates), 1),
            "goPerSecond": round(statistics.median(go for _, go in rates), 1),
            "ratio": round(statistics.median(ours / go for ours, go in rates), 2),
            "oursPlaced": sum(len(ours["placed"]) for ours, _, _, _ in rows),
            "goPlaced": sum(len(theirs["placed"]) for _, theirs, _, _ in rows),
            "oursComputeSlices": sum(used for _, _, used, _ in rows),
            "goComputeSlices": sum(used for _, _, _, used in rows),
            "ofComputeSlices": MIG_SEEDS * COMPUTE_SLICES,
            "undecided": sum(ours["undecided"] for ours, _, _, _ in rows),
        }
    }


def _fill(made: Tree) -> Tree:
    """Every claim in turn on the one node; what it gets stays taken."""
    loaded = _loaded(made)
    (node,) = loaded.nodes
    wanted = [_struct(claims.ResourceClaim, one) for one in made["claims"]]
    placed, undecided = [], 0
    began = time.perf_counter()
    for number, claim in enumerate(wanted):
        found = allocator.allocate(loaded.view(node), [claim], loaded.classes)
        undecided += isinstance(found, outcome.Undecided)
        if isinstance(found, outcome.Allocated):
            placed.append(number)
            loaded.assume(_pod(number), node, {("default", claim.metadata.name): found.results[0]})
    took = time.perf_counter() - began
    return {"placed": placed, "undecided": undecided, "perSecond": len(wanted) / took}


def _compute_slices(made: Tree, placed: list[int]) -> int:
    """How much of the node's GPUs the claims got: "3g.40gb" is three of a GPU's seven compute slices."""
    return sum(int(pods.profile_of(made["claims"][at]).partition("g")[0]) for at in placed)


def nodes(oracle: Oracle) -> dict[str, Any]:
    """A node for each of many one-GPU claims; upstream stops at the first node that fits, ours weighs all of them."""
    return {
        f"{size} nodes, {count} claims": _spread(size, count, oracle=oracle)
        for size, count in FLEETS.items()
    }


def _spread(size: int, count: int, *, oracle: Oracle) -> Tree:
    made = pods.whole_gpus(size, count)
    began = time.perf_counter()
    loaded = _loaded(made)
    load_seconds = time.perf_counter() - began
    for number, claim in enumerate(made["claims"]):
        loaded.apply(events.Changed(_struct(claims.ResourceClaim, claim)))
        loaded.apply(events.Changed(_pod(number)))
    first = _milliseconds(lambda: decide.decide(loaded, budget=policy.Budget(pods=1))) / 1000
    began = time.perf_counter()
    plan = decide.decide(loaded)
    ours = time.perf_counter() - began
    asked = {"op": "bench", "what": "allocate", "seconds": GO_SECONDS, **made}
    in_order, rotating = oracle.ask(asked), oracle.ask({**asked, "rotate": True})
    return {
        "oursPerSecond": round(count / ours, 1),
        "goPerSecond": round(in_order["perSecond"], 1),
        "ratio": round(count / ours / in_order["perSecond"], 1),
        "goRotatingPerSecond": round(rotating["perSecond"], 1),
        "ratioRotating": round(count / ours / rotating["perSecond"], 1),
        "oursMicrosecondsPerClaim": round(ours / count * 1e6, 1),
        "oursMicrosecondsPerFurtherClaim": round((ours - first) / (count - 1) * 1e6, 1),
        "oursFirstMilliseconds": round(first * 1000, 1),
        "oursPlaced": len(plan.placements),
        "goDone": in_order["count"],
        "goPlaced": len(in_order["placed"]),
        "loadSeconds": round(load_seconds, 2),
        "peakMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _loaded(made: Tree) -> world.World:
    """A World that took the objects in one by one."""
    loaded = world.World()
    for one in made["nodes"]:
        loaded.apply(events.Changed(_struct(wire.Node, one)))
    for one in made["deviceClasses"]:
        loaded.apply(events.Changed(_struct(device_classes.DeviceClass, one)))
    for one in made["resourceSlices"]:
        loaded.apply(events.Changed(_struct(slices.ResourceSlice, one)))
    return loaded


def _pod(number: int) -> running.Pod:
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{number}"}]}
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"pod-{number}"}
    return _struct(running.Pod, {"metadata": metadata, "spec": spec})


def _struct(kind: type[S], tree: Tree) -> S:
    return codec.decode_struct(kind, msgspec.json.encode(tree))


def _question(made: Tree) -> allocation_worlds.Question:
    return allocation_worlds.question(
        msgspec.json.decode(msgspec.json.encode(made), type=allocation_worlds.World)
    )


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
