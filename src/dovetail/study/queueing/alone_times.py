"""How long each job would take from submission to end if its queue had nothing but its quota: hard partitions.

Given the jobs, the assumptions of a study and the size of nodes. A queue's jobs run first come, and any later job that
has room, on nodes that hold its quota. A job larger than its quota has no such time, nor has one that stays behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.study.queueing import job_list, job_rules, rule_run, study_file

RULE: Final = "pooled"


def alone(
    jobs: Sequence[job_list.Job],
    *,
    study: study_file.Study,
    quotas: Mapping[str, int],
    gpus_per_node: int,
    seed: int = 0,
) -> dict[str, int]:
    """Seconds from submission to end, by job."""
    by_queue: dict[str, list[job_list.Job]] = defaultdict(list)
    for job in jobs:
        if job.gpus <= quotas.get(job.queue, 0):
            by_queue[job.queue].append(job)
    seconds: dict[str, int] = {}
    for queue, own in sorted(by_queue.items()):
        nodes = _nodes(quotas[queue], gpus_per_node)
        run = rule_run.RuleRun(
            nodes, own, rule=job_rules.named(RULE), study=_without_loss(study), seed=seed
        )
        for row in run.run().rows.values():
            if row.end_s is not None:
                seconds[row.name] = row.end_s - row.submit_s
    return seconds


def _nodes(gpus: int, gpus_per_node: int) -> list[int]:
    """Full nodes, and a smaller one for what is left."""
    full, left = divmod(gpus, gpus_per_node)
    return [gpus_per_node] * full + ([left] if left else [])


def _without_loss(study: study_file.Study) -> study_file.Study:
    return msgspec.structs.replace(study, node_loss=None)
