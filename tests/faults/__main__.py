"""Campaign after campaign until one finds harm: `python -m tests.faults [--seed 7] [--rounds 3]`.

Each round breaks things around the scheduler, then lets a hostile tenant work beside honest ones; rounds take the
supported versions of Kubernetes in turns. A line per campaign. The first campaign with a violation ends it: exit code
1, and the folder with the recorded history, the faults and the logs is named and kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

from dovetail.devcluster import control_plane, go_build, kube_binaries
from tests.faults import campaign, campaign_cluster
from tests.hostile import __main__ as hostile


def main(arguments: list[str] | None = None) -> int:
    """0 when every round was without harm, or when interrupted; 1 at the first violation, or without real parts."""
    namespace = _parsed(arguments)
    versions = (namespace.kubernetes,) if namespace.kubernetes else kube_binaries.VERSIONS
    try:
        parts = [kube_binaries.binaries(version, say=_say) for version in versions]
    except (kube_binaries.PartsMissing, go_build.BuildFailed) as problem:
        _say(str(problem))
        return 1
    seeds = (
        itertools.count(namespace.seed)
        if namespace.rounds is None
        else range(namespace.seed, namespace.seed + namespace.rounds)
    )
    _say(f"breaking things from seed {namespace.seed}; stop with Ctrl-C")
    with contextlib.suppress(KeyboardInterrupt):
        for seed in seeds:
            directory = Path(tempfile.mkdtemp(prefix=f"dovetail-chaos-{seed}-"))
            report = fight(parts[seed % len(parts)], directory, seed=seed, sizes=campaign.Sizes())
            print(report.line(), flush=True)
            if report.violations:
                for violation in report.violations:
                    print(f"  {violation.rule} at revision {violation.revision}: {violation.text}")
                print(f"history, faults and logs: {directory}")
                return 1
            shutil.rmtree(directory, ignore_errors=True)
            beside = hostile.fight(seed, version=versions[seed % len(versions)])
            print(beside.line(), flush=True)
            if beside.verdict.violations:
                for suffered in beside.verdict.violations:
                    print(f"  {suffered.rule}: {suffered.text}")
                return 1
    return 0


def fight(
    parts: kube_binaries.Parts, directory: Path, *, seed: int, sizes: campaign.Sizes
) -> campaign.Report:
    """One campaign on a control plane of its own."""
    plane = control_plane.start(parts, directory / "plane", **campaign_cluster.options(directory))
    try:
        return asyncio.run(campaign.Campaign(plane, directory, seed=seed, say=_say).run(sizes))
    finally:
        plane.stop(graceful=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument(
        "--rounds", type=int, default=None, help="how many; without end if not given"
    )
    parser.add_argument("--kubernetes", choices=kube_binaries.VERSIONS, help="one version only")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
