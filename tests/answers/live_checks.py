"""What the live scheduler does with a story: whether the pod gets a node, as it is or after a suggested change.

Given a story and the patches of a suggestion. Every check starts from the story's objects again. Changes are carried
out as a client would: merge patch, deletion, creation, in the order of the suggestion. Never judges an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.answers import answer_form, live_cluster, story_file

BEFORE_SECONDS: Final = 3.0  # controllers and the scheduler come to rest
LONGEST_SECONDS: Final = 20.0  # virtual; evictions and gangs take a few
DELETION_SECONDS: Final = 5.0  # at most, until what was deleted is gone


class _Before(NamedTuple):
    """What there was before a change. A pod that had its node already and does not run there needs a successor."""

    is_first: bool = False  # nothing is changed
    known: frozenset[str] = frozenset()  # uids of pods
    owner: tuple[str, str] | None = None  # kind and name of what would create the pod again


class LiveStory:
    """A story that can be lived through again and again."""

    def __init__(self, story: story_file.Story) -> None:
        self._story = story
        self._stored = live_cluster.stored(story.objects, story.now)

    def starts(self) -> bool:
        """Whether the live scheduler gives the pod a node."""
        return asyncio.run(self._starts())

    def problem_with(self, patches: Sequence[answer_form.Patch]) -> str:
        """Why the pod does not start after the change; empty if it does."""
        return asyncio.run(self._problem_with(patches))

    async def _starts(self) -> bool:
        cluster = live_cluster.LiveCluster(self._stored, self._story.now)
        async with cluster.running():
            return await self._is_placed_in_time(cluster, before=_Before(is_first=True))

    async def _problem_with(self, patches: Sequence[answer_form.Patch]) -> str:
        cluster = live_cluster.LiveCluster(self._stored, self._story.now)
        async with cluster.running():
            await cluster.pass_time(BEFORE_SECONDS)
            before = self._state_before(cluster)
            for patch in patches:
                refusal = await _carried_out(cluster, patch)
                if refusal:
                    return refusal

            if await self._is_placed_in_time(cluster, before):
                return ""
            return f"does not start: {self._message(cluster, before)}"

    async def _is_placed_in_time(self, cluster: live_cluster.LiveCluster, before: _Before) -> bool:
        elapsed = 0.0
        while elapsed < LONGEST_SECONDS:
            if self._is_placed(cluster, before):
                return True
            await cluster.pass_time(live_cluster.STEP_SECONDS)
            elapsed += live_cluster.STEP_SECONDS
        return False

    def _is_placed(self, cluster: live_cluster.LiveCluster, before: _Before) -> bool:
        """Whether the pod, or another one of its owner that was created since, has a node."""
        question = self._story.question
        if question.kind != "pod":
            return _has_all_pods(cluster, question)
        if (question.namespace, question.name) in cluster.placed_keys:
            return True
        if before.is_first:
            pod = cluster.api.find(registry.POD, question.name, namespace=question.namespace)
            return pod is not None and bool(pod.spec.node_name)
        if before.owner is None:
            return False
        created = cluster.pods_of(*before.owner, question.namespace)
        return _on_nodes(pod for pod in created if pod.metadata.uid not in before.known) > 0

    def _state_before(self, cluster: live_cluster.LiveCluster) -> _Before:
        present: list[pods.Pod] = cluster.api.all(registry.POD)
        return _Before(
            known=frozenset(pod.metadata.uid for pod in present),
            owner=self._outermost_owner(),
        )

    def _outermost_owner(self) -> tuple[str, str] | None:
        """Kind and name of the object that would create the pod again, where it is in the story."""
        question = self._story.question
        if question.kind != "pod":
            return None
        by_uid = {tree["metadata"]["uid"]: tree for tree in self._story.objects}
        current: live_cluster.Tree | None = self._story.asked_object()
        outermost = None
        while current is not None:
            references = current["metadata"].get("ownerReferences", [])
            owners = [by_uid[item["uid"]] for item in references if item["uid"] in by_uid]
            current = owners[0] if owners else None
            if current is not None:
                outermost = (current["kind"].lower(), current["metadata"]["name"])
        return outermost

    def _message(self, cluster: live_cluster.LiveCluster, before: _Before) -> str:
        """What the scheduler says about the pod, or about the one that took its place."""
        question = self._story.question
        if question.kind != "pod":
            return "too few of its pods have nodes"
        pod = cluster.api.find(registry.POD, question.name, namespace=question.namespace)
        waiting = [pod] if pod is not None else []
        if before.owner is not None:
            waiting += cluster.pods_of(*before.owner, question.namespace)
        messages = [
            condition.message
            for pod in waiting
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.message
        ]
        return messages[0] if messages else "no pod has its place, or none has a message"


async def _carried_out(cluster: live_cluster.LiveCluster, patch: answer_form.Patch) -> str:
    """Why the server refused a change; empty if it did not."""
    reference = patch.object
    served = cluster.api.kinds.named(reference.api_version, reference.kind)
    if served is None:
        return f"{reference.kind} {reference.name}: not served, so nothing can be verified"
    target = Target(served.kind, reference.namespace, reference.name)
    try:
        if patch.merge is not None:
            await cluster.api.patch(target, msgspec.json.encode(patch.merge))
        elif patch.create is not None:
            collection = target._replace(name="")
            await cluster.api.create(collection, msgspec.json.encode(patch.create))
        else:
            await cluster.api.delete(target)
            await _gone(cluster, target)
    except failures.ApiFailure as failure:
        return f"{reference.kind} {reference.name}: refused: {failure}"
    return ""


async def _gone(cluster: live_cluster.LiveCluster, target: Target) -> None:
    """Waits for an object that finalizers or a running pod keep; what goes at once leaves no time for anything else."""
    elapsed = 0.0
    key = (target.namespace, target.name)
    while elapsed < DELETION_SECONDS and cluster.api.shelf.find(target.kind, key) is not None:
        await cluster.pass_time(live_cluster.STEP_SECONDS)
        elapsed += live_cluster.STEP_SECONDS


def _has_all_pods(cluster: live_cluster.LiveCluster, question: story_file.Question) -> bool:
    """Whether a workload has as many pods on nodes as it wants."""
    owner = cluster.tree_of(question.kind, question.name, question.namespace)
    if owner is None:
        return False
    spec = owner["spec"]
    wanted = int(spec.get("replicas", spec.get("parallelism", 1)))
    created = cluster.pods_of(question.kind, question.name, question.namespace)
    return _on_nodes(created) >= wanted and not spec.get("suspend")


def _on_nodes(created: Iterable[pods.Pod]) -> int:
    return sum(bool(pod.spec.node_name) for pod in created)
