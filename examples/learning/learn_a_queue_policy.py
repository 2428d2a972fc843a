"""Learns a linear queue policy by cross-entropy search, and shows its waiting beside fixed rules on jobs it never saw.

Each choice gets a score, weights times features; the highest score with room starts. A generation draws weights around
a mean, keeps the best quarter by mean waiting, and moves the mean there. Needs nothing besides Dovetail.
"""

import argparse
import random
import statistics

from dovetail.sdk import QueueEnvironment
from dovetail.study.queueing import generated_jobs, job_log, job_rules, rule_run, study_file

GPUS_BY_NODE = [8] * 4
FEATURES = 6  # of a job
RULES = ("fifo", "pooled", "sjf", "qssf")
Weights = list[float]


def episode(environment: QueueEnvironment, weights: Weights, seed: int) -> float:
    """Mean waiting in seconds where these weights decide."""
    _, info = environment.reset(seed=seed)
    is_ended = info["ended"] == len(environment.log.rows)
    while not is_ended:
        features, mask = environment.features(), info["action_mask"]
        scores = [
            sum(w * f for w, f in zip(weights, features[FEATURES * n :], strict=False))
            for n in range(len(mask) - 1)
        ]
        ready = [number for number in range(len(scores)) if mask[number]]
        action = max(ready, key=lambda number: scores[number])
        _, _, is_ended, _, info = environment.step(action)
    return waiting(environment.log)


def waiting(log: job_log.Log) -> float:
    """Mean waiting in seconds."""
    return statistics.fmean(row.waiting_s for row in log.rows.values())


def learned(environment: QueueEnvironment, seeds: range, generations: int) -> Weights:
    """Cross-entropy search from no weights at all, which is first come."""
    chance = random.Random(1)  # noqa: S311
    mean, spread = [0.0] * FEATURES, [1.0] * FEATURES
    for _ in range(generations):
        drawn = [[chance.gauss(m, s) for m, s in zip(mean, spread, strict=True)] for _ in range(16)]
        drawn.sort(key=lambda weights: sum(episode(environment, weights, seed) for seed in seeds))
        best = list(zip(*drawn[:4], strict=True))
        mean = [statistics.fmean(each) for each in best]
        spread = [max(statistics.pstdev(each), 0.05) for each in best]
    return mean


def by_rule(name: str, days: float, load: float, seed: int) -> float:
    """Mean waiting in seconds under a fixed rule, on the same jobs."""
    jobs = generated_jobs.draw(generated_jobs.Arrivals(days=days, load=load),
                               gpus_by_node=GPUS_BY_NODE, queues=(), seed=seed)  # fmt: skip
    run = rule_run.RuleRun(
        GPUS_BY_NODE, jobs, rule=job_rules.named(name), study=study_file.Study(), seed=seed
    )
    return waiting(run.run())


parser = argparse.ArgumentParser()
parser.add_argument("--generations", type=int, default=12)
parser.add_argument("--days", type=float, default=1.0)
parser.add_argument("--load", type=float, default=0.9)
parser.add_argument("--choices", type=int, default=32)
given = parser.parse_args()
environment = QueueEnvironment.drawn(
    GPUS_BY_NODE, days=given.days, load=given.load, choices=given.choices
)
weights = learned(environment, range(1, 5), given.generations)
print("weights:", ", ".join(f"{weight:.2f}" for weight in weights))
unseen = range(101, 111)
means = {name: [by_rule(name, given.days, given.load, seed) for seed in unseen] for name in RULES}
means["learned"] = [episode(environment, weights, seed) for seed in unseen]
for name, each in means.items():
    print(f"{name:8} waits {statistics.fmean(each):6.0f} s on {len(each)} unseen draws")
