"""Makes a list of jobs from a recorded history: what waited and ran, when, for how long, on how many GPUs.

Given records. Pods of one controller that hold equally many GPUs and came within a minute are the pods of one job. Left
out and counted: work that still runs, and work on parts of GPUs. Pure; never opens a store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.model.accounting import records
from dovetail.study.queueing import job_list

TOGETHER_MILLIS: Final = 60_000  # pods of one controller that came within so long are one job
_WHOLE: Final = (records.Form.WHOLE, records.Form.COUNTED)


class Recorded(NamedTuple):
    """The jobs, and the pods that cannot be replayed."""

    jobs: tuple[job_list.Job, ...]
    open_pods: int
    divided_pods: int  # they held parts of GPUs


class _Pod(NamedTuple):
    submitted: int
    start: int
    end: int
    gpus: int
    owner: records.Owner


def jobs(history: records.Records) -> Recorded:
    """The jobs, by submission; the first one is submitted at second 0."""
    allocations: dict[str, list[records.Allocation]] = defaultdict(list)
    for allocation in history.allocations:
        allocations[allocation.owner.pod_uid].append(allocation)
    waiting_since: dict[str, int] = {}
    for waiting in history.waiting:
        earlier = waiting_since.get(waiting.owner.pod_uid, waiting.start)
        waiting_since[waiting.owner.pod_uid] = min(earlier, waiting.start)
    pods, open_pods, divided_pods = [], 0, 0
    for pod_uid, own in allocations.items():
        pod = _pod(own, waiting_since.get(pod_uid))
        if any(each.form not in _WHOLE for each in own):
            divided_pods += 1
        elif pod is None:
            open_pods += 1
        elif pod.gpus:
            pods.append(pod)
    if not pods:
        raise errors.NotFound("the history holds no work on whole GPUs that has ended")
    begin = min(pod.submitted for pod in pods)
    listed = [_job(number, group, begin) for number, group in enumerate(_groups(pods))]
    return Recorded(
        tuple(sorted(listed, key=lambda job: (job.submit_seconds, job.name))),
        open_pods,
        divided_pods,
    )


def _pod(own: Sequence[records.Allocation], waiting_since: int | None) -> _Pod | None:
    ends = [each.end for each in own if each.end is not None]
    if len(ends) < len(own):
        return None
    start = min(each.start for each in own)
    submitted = start if waiting_since is None else min(start, waiting_since)
    # One allocation may have been recorded in several pieces; the GPUs of the longest time count once.
    micro_gpu = {each.allocation: each.micro_gpu for each in own}
    gpus = sum(micro_gpu.values()) // records.MICRO_GPU
    return _Pod(submitted, start, max(ends), gpus, own[0].owner)


def _groups(pods: Iterable[_Pod]) -> list[list[_Pod]]:
    by_controller: dict[tuple[str, ...], list[_Pod]] = defaultdict(list)
    for pod in pods:
        owner = pod.owner
        name = owner.controller or owner.pod_uid
        key = (owner.namespace, owner.controller_kind, name, owner.queue, str(pod.gpus))
        by_controller[key].append(pod)
    groups: list[list[_Pod]] = []
    for _, same in sorted(by_controller.items()):
        same.sort(key=lambda pod: (pod.submitted, pod.start, pod.owner.pod_uid))
        for pod in same:
            last = groups[-1] if groups and pod is not same[0] else None
            if last is not None and pod.submitted - last[0].submitted <= TOGETHER_MILLIS:
                last.append(pod)
            else:
                groups.append([pod])
    return groups


def _job(number: int, group: Sequence[_Pod], begin: int) -> job_list.Job:
    seconds = max(pod.end - pod.start for pod in group) / 1000
    return job_list.Job(
        name=f"h{number:07d}",
        submit_seconds=(group[0].submitted - begin) // 1000,
        duration_seconds=max(1, round(seconds)),
        gpus=sum(pod.gpus for pod in group),
        pods=len(group),
        queue=group[0].owner.queue,
    )
