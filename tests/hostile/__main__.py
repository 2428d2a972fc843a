"""Campaign after campaign until an honest pod suffers: `python -m tests.hostile [--seed 7] [--rounds 3]`.

A line per round. Rounds have queues and only priorities in turns. The first violation ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys

from dovetail.devcluster import kube_binaries
from tests.hostile import attacks, campaign
from tests.support import live


def main(arguments: list[str] | None = None) -> int:
    """0 when no honest pod suffered, or when interrupted; 1 at the first violation."""
    namespace = _parsed(arguments)
    seeds = (
        itertools.count(namespace.seed)
        if namespace.rounds is None
        else range(namespace.seed, namespace.seed + namespace.rounds)
    )
    chosen = (
        {name: attacks.ATTACKS[name] for name in namespace.attacks} if namespace.attacks else None
    )
    with contextlib.suppress(KeyboardInterrupt):
        for seed in seeds:
            report = fight(
                seed, version=namespace.kubernetes, chosen=chosen, mixtures=namespace.mixtures
            )
            print(report.line(), flush=True)
            for violation in report.verdict.violations:
                print(f"  {violation.rule}: {violation.text}")
            if report.verdict.violations:
                return 1
    return 0


def fight(
    seed: int, *, version: str, chosen: dict[str, attacks.Attack] | None = None, mixtures: int = 12
) -> campaign.Report:
    """One campaign on a cluster of its own; odd seeds have queues, even ones only priorities."""
    with live.private(version, tokens=(campaign.TOKEN,)) as cluster:
        sizes = campaign.Sizes()._replace(mixtures=mixtures)
        return campaign.Campaign(cluster, seed=seed, has_queues=seed % 2 == 1, say=_say).run(
            sizes, chosen
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument(
        "--rounds", type=int, default=None, help="how many; without end if not given"
    )
    parser.add_argument(
        "--mixtures", type=int, default=12, help="random mixtures after the single attacks"
    )
    parser.add_argument("--attacks", nargs="*", choices=sorted(attacks.ATTACKS), help="only these")
    parser.add_argument(
        "--kubernetes",
        choices=kube_binaries.VERSIONS,
        default=kube_binaries.DEFAULT,
        help="which version",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
