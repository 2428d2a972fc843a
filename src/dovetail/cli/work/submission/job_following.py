"""Follows a job that was just submitted: why it waits, where it runs, what it prints, how it ends.

Given a cluster and the job's name. Writes messages as the state changes and the pods' output as it comes. Returns the
exit code: 0 if the job succeeds, 1 if it fails. Leaving it (Ctrl-C) does not end the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.ask import api_session
from dovetail.ask.submission import job_manifest
from dovetail.cli import output
from dovetail.cli.work import pod_logs, work_logs, work_targets
from dovetail.kube import object_requests
from dovetail.kubetypes import registry
from dovetail.ports import api, failures
from dovetail.tables import text

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

POLL_SECONDS: Final = 0.5
FAILED: Final = 1

Tree = dict[str, Any]


class Ending(NamedTuple):
    """How a job ended."""

    code: int
    message: str


def follow(choice: cluster_choice.Choice, namespace: str, name: str) -> int:
    """Follows the job to its end. On the embedded cluster, where nothing runs, only to its start."""
    try:
        return api_session.run(
            choice,
            lambda over: _Following(over, namespace, name).run(has_logs=not choice.is_embedded),
        )
    except KeyboardInterrupt:
        output.say(f"\njob.batch/{name} goes on")
        output.next_step(f"cancel job/{name}")
        raise


class _Following:
    def __init__(self, over: transport.Transport, namespace: str, name: str) -> None:
        self._over = over
        self._namespace = namespace
        self._name = name
        self._message = ""
        self._readers: dict[str, asyncio.Task[None]] = {}  # of logs, by pod
        self._has_spoken_of_logs = False

    async def run(self, *, has_logs: bool) -> int:
        try:
            while True:
                job, pods = await self._state()
                if job is None:
                    output.say(f"job.batch/{self._name} was deleted")
                    return FAILED
                self._say_once(state_of(job, pods))
                if has_logs:
                    self._read_logs(pods)
                if ending := ending_of(job):
                    await asyncio.gather(*self._readers.values(), return_exceptions=True)
                    self._say_once(f"job.batch/{self._name} {ending.message}")
                    return ending.code
                if not has_logs and _are_running(job, pods):
                    output.say(
                        "the embedded cluster runs no containers: there is no output to follow"
                    )
                    output.next_step(f"cancel job/{self._name}")
                    return 0
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for reader in self._readers.values():
                reader.cancel()

    async def _state(self) -> tuple[Tree | None, list[Tree]]:
        selector = {"labelSelector": f"{job_manifest.JOB_NAME_LABEL}={self._name}"}
        job, pods = await asyncio.gather(
            object_requests.read(
                self._over, api.Target(work_targets.JOB, self._namespace, self._name)
            ),
            object_requests.listed(
                self._over, registry.POD, namespace=self._namespace, params=selector
            ),
        )
        return job, work_targets.sorted_by_index(pods)

    def _say_once(self, message: str) -> None:
        if message and message != self._message:
            self._message = message
            output.say(message)

    def _read_logs(self, pods: Sequence[Tree]) -> None:
        for pod in pods:
            name = work_targets.name_of(pod)
            if name not in self._readers and work_logs.has_started(pod):
                prefix = f"[pod/{name}] " if len(pods) > 1 else ""
                self._readers[name] = asyncio.create_task(self._read_log(name, prefix))

    async def _read_log(self, name: str, prefix: str) -> None:
        def write(line: str) -> None:
            output.write_text(f"{prefix}{line}\n")

        try:
            await pod_logs.followed(self._over, self._namespace, name, pod_logs.LogOptions(), write)
        except failures.ApiFailure as error:
            if not self._has_spoken_of_logs:
                self._has_spoken_of_logs = True
                output.say(f"no logs: {error}")


def state_of(job: Tree, pods: Sequence[Tree]) -> str:
    """What the job does now, in one line."""
    wanted = int((job.get("spec") or {}).get("parallelism") or 1)
    if not pods:
        return "waits for its pods to be created"
    waiting = [pod for pod in pods if not (pod.get("spec") or {}).get("nodeName")]
    waiting = [pod for pod in waiting if not work_targets.is_ended(pod)]
    if waiting:
        return (
            f"{len(waiting)} of {text.counted(wanted, 'pod')} waiting: {waiting_reason(waiting[0])}"
        )
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    nodes = ", ".join(dict.fromkeys(str(pod["spec"]["nodeName"]) for pod in running))
    if running:
        return f"{len(running)} of {text.counted(wanted, 'pod')} running on {nodes}"
    return ""


def waiting_reason(pod: Tree) -> str:
    """What the scheduler says about a pod without a node."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("message"):
            return str(condition["message"])
    return "the scheduler has not answered yet"


def ending_of(job: Tree) -> Ending | None:
    """How the job ended; None while it goes on."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return Ending(0, "succeeded")
        if condition.get("type") == "Failed":
            reason = condition.get("message") or condition.get("reason") or ""
            return Ending(FAILED, f"failed: {reason}" if reason else "failed")
    return None


def _are_running(job: Tree, pods: Sequence[Tree]) -> bool:
    wanted = int((job.get("spec") or {}).get("parallelism") or 1)
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    return len(running) >= wanted
