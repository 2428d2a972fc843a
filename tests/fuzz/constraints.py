"""Clusters and pods with all constraints: where a pod may run, node by node, by us and by upstream's filter plugins.

`python -m tests.fuzz.constraints --count 20000 --record` writes down what was compared.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.fuzz import findings
from tests.generators import constraints
from tests.schedule import upstream
from tests.support import oracle as oracles

Tree = dict[str, Any]
PODS: Final = 40  # in one story
RESULTS: Final = findings.ROOT / "bench" / "results" / "constraints.json"
_SHRINKING_STEPS: Final = 600


def cases(rng: random.Random, count: int) -> list[int]:
    """Seeds of stories that hold so many pods together."""
    return [rng.getrandbits(32) for _ in range(max(count // PODS, 1))]


def run(oracle: oracles.Oracle, batch: list[int], *, tally: findings.Tally, seed: int) -> None:
    """Runs the stories on both sides, counts pods and records what differs."""
    for number in batch:
        _compare(oracle, number, tally=tally, seed=seed, seen=(upstream.Tally(), upstream.Tally()))


def _compare(
    oracle: oracles.Oracle,
    number: int,
    *,
    tally: findings.Tally,
    seed: int,
    seen: tuple[upstream.Tally, upstream.Tally],
) -> None:
    """One story, pod by pod and then with all pods between two changes at once; `seen` goes on counting."""
    story = constraints.story(random.Random(number), upstream.admit(oracle), pod_count=PODS)
    for telling, counted in zip((upstream.tell, upstream.tell_at_once), seen, strict=True):
        before, pods = len(counted.disagreements), counted.pods
        telling(story, oracle, counted)
        _noted(
            oracle, counted.disagreements[before:], tally=tally, seed=seed, pods=counted.pods - pods
        )


def _noted(
    oracle: oracles.Oracle,
    disagreements: list[upstream.Disagreement],
    *,
    tally: findings.Tally,
    seed: int,
    pods: int,
) -> None:
    tally.counts[findings.AGREE] += pods - len(
        {disagreement.pod["metadata"]["name"] for disagreement in disagreements}
    )
    for disagreement in disagreements:
        tally.counts[disagreement.why] += 1
        if tally.wants(disagreement.why, disagreement.ours.partition(":")[0], disagreement.theirs):
            tally.add(_finding(oracle, disagreement, seed))


def _finding(
    oracle: oracles.Oracle, disagreement: upstream.Disagreement, seed: int
) -> findings.Finding:
    objects, pod, least = _minimised(oracle, disagreement)
    case = {"objects": objects, "pod": pod, "node": least[1]}
    return findings.Finding(
        what="constraints",
        kind=disagreement.why,
        seed=seed,
        case=case,
        ours=least[2],
        theirs=least[3],
    )


def _minimised(
    oracle: oracles.Oracle, disagreement: upstream.Disagreement
) -> tuple[list[Tree], Tree, tuple[str, str, str, str]]:
    """The cluster and the pod without whatever the disagreement does not need."""
    objects, pod, least = disagreement.objects, disagreement.pod, disagreement[:4]
    if _again(oracle, objects, pod, disagreement.why) is None:
        return objects, pod, ("only after what happened before", *least[1:])
    steps, shrunk = _SHRINKING_STEPS, True
    while shrunk and steps > 0:
        shrunk = False
        for fewer, less in _smaller(objects, pod):
            steps -= 1
            still = _again(oracle, fewer, less, disagreement.why)
            if still is not None:
                objects, pod, least, shrunk = fewer, less, still, True
                break
            if steps <= 0:
                break
    return objects, pod, least


def _again(
    oracle: oracles.Oracle, objects: list[Tree], pod: Tree, why: str
) -> tuple[str, str, str, str] | None:
    messages = upstream.Both(oracle, objects).judge(pod)
    return next(
        (
            disagreement
            for disagreement in upstream.disagreements(messages)
            if disagreement[0] == why
        ),
        None,
    )


def _smaller(objects: list[Tree], pod: Tree) -> Iterator[tuple[list[Tree], Tree]]:
    """Many objects less, one object less, or one part of a spec less."""
    for size in (8, 1):
        for at in range(0, len(objects), size):
            yield objects[:at] + objects[at + size :], pod
    for path in _parts(pod["spec"]):
        yield objects, {**pod, "spec": _without(pod["spec"], path)}
    for at, item in enumerate(objects):
        for path in _parts(item.get("spec") or {}):
            yield (
                [*objects[:at], {**item, "spec": _without(item["spec"], path)}, *objects[at + 1 :]],
                pod,
            )


def _parts(spec: Tree) -> Iterator[tuple[Any, ...]]:
    for name, value in spec.items():
        if name in ("containers", "nodeName", "accessModes", "resources", "capacity"):
            continue
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in _parts(value))
        elif isinstance(value, list):
            yield from ((name, at) for at in range(len(value)))


def _without(spec: Tree, path: tuple[Any, ...]) -> Tree:
    less = copy.deepcopy(spec)
    holder: Any = less
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return less


def main(arguments: list[str] | None = None) -> int:
    """0 when nothing differed, 1 when something did."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.constraints", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first story; the next ones follow"
    )
    parser.add_argument("--count", type=int, default=20_000, help="pods")
    parser.add_argument(
        "--record", action="store_true", help=f"write {RESULTS.relative_to(findings.ROOT)}"
    )
    expected = parser.parse_args(arguments)
    tally, seen, seed = (
        findings.Tally("constraints"),
        (upstream.Tally(), upstream.Tally()),
        expected.seed,
    )
    with oracles.start() as oracle:
        while seen[0].pods < expected.count:
            _compare(oracle, seed, tally=tally, seed=seed, seen=seen)
            seed += 1
            if seed % 25 == 0:
                print(
                    f"{seen[0].pods} pods, {tally.disagreements} disagreements",
                    file=sys.stderr,
                    flush=True,
                )
    summary = _summary(*seen, first=expected.seed, last=seed - 1)
    print(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
    if expected.record:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    return 1 if tally.disagreements else 0


def _summary(seen: upstream.Tally, together: upstream.Tally, *, first: int, last: int) -> Tree:
    """Without dates: the same run writes the same file."""
    kinds = {kind: {"pods": seen.carried[kind]} for kind in sorted(seen.carried)}
    for kind, count in seen.refused.items():
        kinds[kind]["kept_off_a_node"] = count
    return {
        "upstream": findings.upstream_version(),
        "seeds": {"first": first, "last": last, "pods_each": PODS},
        "pods": seen.pods,
        "placed": seen.placed,
        "nodes_asked": seen.nodes_asked,
        "not_taken_by_the_api_server": seen.refused_by_the_api,
        "disagreements": len(seen.disagreements),
        "several_in_one_decision": {
            "pods": together.pods,
            "placed": together.placed,
            "disagreements": len(together.disagreements),
        },
        "refusals_by_upstream_plugin": dict(sorted(seen.refusals.items())),
        "kinds": kinds,
    }


if __name__ == "__main__":
    sys.exit(main())
