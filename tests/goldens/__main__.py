"""Records what the engine answers, or compares it with an earlier record. Messages are left out.

    python -m tests.goldens record DIRECTORY     # before a change that must not change any answer
    python -m tests.goldens compare DIRECTORY    # after it

Answers of the three doors for recorded data, plans and dumps of random worlds, and the course of
random clusters. One file per question, one line per answer.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.model import plan
from dovetail.world import dump
from tests.backfill import __main__ as backfill
from tests.batch import random_clusters
from tests.generators import worlds
from tests.scenarios import test_second_reading as scenarios
from tests.schedule import build
from tests.schedule import test_properties as properties
from tests.support import shared

DOOR: Final = (sys.executable, "-c", "from dovetail.cli.main import main; main()")


def main() -> int:
    """Records or compares every question; 1 where an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="", help="questions whose name contains this")
    options = parser.parse_args()

    differs = False
    for name, answers in QUESTIONS.items():
        if options.only not in name:
            continue
        path = options.directory / f"{name}.jsonl"
        lines = list(answers())
        if options.action == "record":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines))
            print(f"{name}: {len(lines)} answers recorded", flush=True)
        else:
            differs |= _compare(name, lines, path.read_text().split("\n"))
    return 1 if differs else 0


def _compare(name: str, lines: list[str], recorded: list[str]) -> bool:
    changed = [
        at for at, pair in enumerate(zip(lines, recorded, strict=False)) if len(set(pair)) > 1
    ]
    for at in changed[:3]:
        print(f"{name}, line {at + 1}:\n  was {recorded[at][:600]}\n  is  {lines[at][:600]}")
    verdict = f"{len(changed)} differ" if changed else "all the same"
    print(f"{name}: {len(lines)} answers of {len(recorded)}, {verdict}", flush=True)
    return bool(changed) or len(lines) != len(recorded)


def public_scenarios() -> Iterator[str]:
    """`decide --scenarios` for the public scenarios."""
    path = shared.data("scenarios/kai_public.jsonl.gz")
    yield from _asked("decide", "--scenarios", str(path), "-o", "jsonl")


def random_scenarios() -> Iterator[str]:
    """`decide --scenarios` for scenarios drawn at random."""
    drawn = [scenarios.drawn(seed, run) for run in scenarios.RUNS.values() for seed in range(60)]
    yield from _asked_about(drawn, "decide", "--scenarios")


def recorded_worlds() -> Iterator[str]:
    """`allocate --worlds` for upstream's worlds."""
    for name in ("probes", "fuzz_a"):
        path = shared.data(f"conformance/dra/{name}.jsonl.gz")
        for line in _asked("allocate", "--worlds", str(path), "-o", "jsonl"):
            yield _without_reasons(line)


def random_allocations() -> Iterator[str]:
    """`allocate --worlds` for worlds drawn at random."""
    drawn = [worlds.world(random.Random(seed)) | {"id": str(seed)} for seed in range(600)]
    for line in _asked_about(drawn, "allocate", "--worlds"):
        yield _without_reasons(line)


def selector_cases() -> Iterator[str]:
    """`cel eval --cases`: outcome and cost of every recorded expression on every recorded device."""
    table = shared.document("conformance/dra/cel_extra.json.gz")
    expressions = sorted({case["expression"] for case in table["cases"]})
    cases = [
        {"id": f"{name} {expression}", "expression": expression, "device": device}
        for expression in expressions
        for name, device in sorted(table["devices"].items())
    ]
    yield from _asked_about(cases, "cel", "eval", "--cases")


def random_plans() -> Iterator[str]:
    """Plans for random worlds, and a digest of the World's dump before and after."""
    for seed in range(150):
        world = properties.random_world(seed)
        before = _digest(dump.dump(world))
        decision = build.decided(world)
        yield _line([seed, before, _digest(dump.dump(world)), essence(decision)])


def lives() -> Iterator[str]:
    """What happens in random clusters with queues and gangs, decision after decision."""
    sizes = [
        *((random_clusters.SMALL, seed) for seed in range(60)),
        *((random_clusters.MEDIUM, seed) for seed in range(6)),
    ]
    for size, seed in sizes:
        cluster = random_clusters.seeded(seed, size)
        plans: list[Any] = []

        def noted(_: Any, decision: plan.Plan, plans: list[Any] = plans) -> list[str]:
            plans.append(essence(decision))
            return []

        cluster.judge = noted
        try:
            cluster.live(most=300)
            end = ""
        except Exception as error:
            end = type(error).__name__
        evictions = [list(map(str, event)) for event in cluster.evictions]
        yield _line([seed, end, evictions, _digest(plans), cluster.started, cluster.ended])


def backfilled() -> Iterator[str]:
    """Promises and starts of random yards."""
    for is_ranked in (False, True):
        for seed in range(60):
            timed = backfill.drawn(seed, is_ranked=is_ranked)
            promises = {
                name: [[str(item.start), str(item.latest), list(item.nodes)] for item in kept]
                for name, kept in sorted(timed.promised.items())
            }
            yield _line([seed, promises])


def essence(decision: plan.Plan) -> dict[str, Any]:
    """A plan without its prose."""
    return {
        "placements": [
            [
                placement.pod.name,
                placement.node,
                msgspec.to_builtins(placement.allocations, enc_hook=str),
                msgspec.to_builtins(placement.reservations),
                msgspec.to_builtins(placement.volumes),
                [[term.name, term.milli_gpu] for term in placement.terms],
            ]
            for placement in decision.placements
        ],
        "evictions": [
            [eviction.pod.name, str(eviction.rule), str(eviction.beneficiary), eviction.moves_to]
            for eviction in decision.evictions
        ],
        "nominations": [
            [nomination.pod.name, nomination.node] for nomination in decision.nominations
        ],
        "refusals": [
            [
                refusal.pod.name,
                refusal.is_undecided,
                [
                    [str(o.reason.code), o.nodes, str(o.reason.need), str(o.reason.have)]
                    for o in refusal.obstacles
                ],
            ]
            for refusal in decision.refusals
        ],
        "promises": [
            [str(p.gang), str(p.start), str(p.latest), list(p.nodes)] for p in decision.promises
        ],
        "wake_at": str(decision.wake_at),
    }


QUESTIONS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "public-scenarios": public_scenarios,
    "random-scenarios": random_scenarios,
    "recorded-worlds": recorded_worlds,
    "random-allocations": random_allocations,
    "selector-cases": selector_cases,
    "random-plans": random_plans,
    "lives": lives,
    "backfilled": backfilled,
}


def _asked(*arguments: str) -> list[str]:
    done = subprocess.run([*DOOR, *arguments], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def _asked_about(documents: list[dict[str, Any]], *arguments: str) -> list[str]:
    with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as file:
        file.write(b"\n".join(map(msgspec.json.encode, documents)))
        file.flush()
        return _asked(*arguments, file.name, "-o", "jsonl")


def _without_reasons(line: str) -> str:
    answer = msgspec.json.decode(line)
    del answer["reasons"]
    return _line(answer)


def _digest(tree: Any) -> str:
    return hashlib.sha256(_line(tree).encode()).hexdigest()


def _line(tree: Any) -> str:
    return msgspec.json.encode(tree, enc_hook=str, order="sorted").decode()


if __name__ == "__main__":
    sys.exit(main())
