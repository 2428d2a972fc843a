"""Plays a scenario on a real server until nothing changes any more: our scheduler, nodes, and stand-in controllers.

The scheduler is the whole process as it is shipped, under the chart's rights, with the scenario's policy; nodes are
played by hollow kubelets. It is over when everything is calm on the server, the scheduler's picture shows just that,
and the engine, asked once more, would change nothing. Never decides anything itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from dovetail.boot import clocks, hollow_nodes, scheduler
from dovetail.hollow import hollow_kubelets, pod_stages
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.model import configuration, policy
from dovetail.replay.scenarios import build_scenario, scenario_format, scenario_state
from dovetail.replay.scenarios.scenario_format import State
from dovetail.schedule import decide
from dovetail.world.world import World
from tests.e2e.batch import setting
from tests.support.waiting import comes_true_within

Tree = dict[str, Any]
PATIENCE_SECONDS = 30.0
ENDING_SECONDS = (
    0.3  # that a pod takes to end: long enough for a controller that makes another one at once
)
PAUSE_SECONDS = (
    0.1  # between two looks, which list much and take time from the scheduler in this process
)
SOON_SECONDS = 10.0  # what time alone changes later than that is not waited for
STEPS = tuple(policy.Step(action.value) for action in scenario_format.Action)


class End(NamedTuple):
    """How a scenario ended, and what nodes found wrong meanwhile."""

    situation: scenario_state.ScenarioState
    violations: list[str]
    calm: str  # what is not calm yet; nothing if all is


def played(
    made: setting.Setting, scheduling: client_config.Connection, playing: client_config.Connection
) -> End:
    """Runs until nothing changes, or for long enough."""
    thresholds = gc.get_threshold()
    try:
        return asyncio.run(_played(made, scheduling, playing))
    finally:
        gc.unfreeze()  # the process froze what it found, in the belief that it stays
        gc.set_threshold(*thresholds)


def policy_of(scenario: scenario_format.Scenario) -> policy.Policy:
    """The scenario's policy, as a scheduler without an end has it: all steps, and no past before this one."""
    asked = build_scenario.policy_of(scenario)
    # Past use would be recorded from now on; on paper none is.
    batch = {name: getattr(asked.batch, name) for name in asked.batch.__struct_fields__} | {
        "usage_weight": 0.0
    }
    return policy.Policy(
        weights=asked.weights,
        allocation=asked.allocation,
        steps=STEPS,
        batch=policy.Batch(**batch),
        scheduler_names=("dovetail",),
    )


async def _played(
    made: setting.Setting, scheduling: client_config.Connection, playing: client_config.Connection
) -> End:
    settings = configuration.SchedulerConfiguration(
        leader_election=configuration.LeaderElection(enabled=False),
        serving=configuration.Serving(port=0),
    )
    process = scheduler.Process(scheduling, settings)
    process.settings = process.settings._replace(policy=policy_of(made.scenario))
    pods: list[Tree] = []  # as of the last look
    async with _running(process):
        # Nodes come after the first look: a pod that is ending as the scenario begins is seen to be.
        await _until(lambda: _has_looked(process))
        await asyncio.to_thread(made.renew, await asyncio.to_thread(made.all_pods))
        async with _nodes(made, playing) as nodes:
            calm = await _until(lambda: _unrest(made, process, pods))
        violations = [f"{violation.pod}: {violation.message}" for violation in nodes.violations]
    return End(situation_of(pods), violations, calm)


async def _until(unrest: Callable[[], Awaitable[str]]) -> str:
    """Waits until nothing is left to wait for, or for long enough; what was left."""
    left = ""

    async def is_calm() -> bool:
        nonlocal left
        left = await unrest()
        return not left

    await comes_true_within(is_calm, seconds=PATIENCE_SECONDS, pause=PAUSE_SECONDS)
    return left


async def _has_looked(process: scheduler.Process) -> str:
    loop = process.scheduler
    return (
        ""
        if loop is not None and (loop.cycles or loop.is_idle)
        else "the scheduler has not looked around"
    )


@contextlib.asynccontextmanager
async def _running(process: scheduler.Process) -> AsyncIterator[None]:
    task = asyncio.create_task(process.run())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _nodes(
    made: setting.Setting, connection: client_config.Connection
) -> AsyncIterator[hollow_kubelets.HollowKubelets]:
    """Hollow nodes; pods that are to stay are never let go."""
    clock = clocks.SystemClock()
    async with transport.Transport(
        connection, concurrency=16, user_agent="dovetail-player"
    ) as opened:
        nodes = hollow_kubelets.HollowKubelets(
            client.KubeApi(opened),
            clock,
            let_go=hollow_nodes.pod_deleter(opened),
            stages=pod_stages.Stages(terminate_seconds=ENDING_SECONDS),
        )
        feeds = {kind: nodes.feed(kind) for kind in hollow_kubelets.WATCHED}
        tasks = [
            asyncio.create_task(_fed(opened, kind, _Sparing(made, feed), clock))
            for kind, feed in feeds.items()
        ]
        for feed in feeds.values():
            await feed.synced.wait()
        tasks.append(asyncio.create_task(nodes.run()))
        try:
            yield nodes
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Sparing:
    """What a watch tells nodes, without the end of pods that are to stay: those are never let go."""

    def __init__(self, made: setting.Setting, feed: hollow_kubelets.Feed) -> None:
        self._made = made
        self._feed = feed

    def replaced(self, result: list[Any], resource_version: str) -> None:
        self._feed.replaced(
            [item for item in result if not self._is_spared(item)], resource_version
        )

    def changed(self, result: Any) -> None:
        if not self._is_spared(result):
            self._feed.changed(result)

    def deleted(self, result: Any) -> None:
        self._feed.deleted(result)

    def broken(self, reason: str) -> None:
        self._feed.broken(reason)

    def unreadable(self, name: str, problem: str) -> None:
        self._feed.unreadable(name, problem)

    def _is_spared(self, result: Any) -> bool:
        is_ending = isinstance(result, pods.Pod) and result.metadata.deletion_timestamp is not None
        return is_ending and self._made.is_staying({"metadata": {"labels": result.metadata.labels}})


async def _fed(
    opened: transport.Transport, kind: registry.Kind, feed: _Sparing, clock: clocks.SystemClock
) -> None:
    params = hollow_nodes.BOUND if kind is registry.POD else None
    await watch.follow(opened, kind, feed, clock=clock, params=params)


async def _unrest(made: setting.Setting, process: scheduler.Process, pods: list[Tree]) -> str:
    """What is not calm; empty if all is. Recreates pods that are gone. The pods it has seen are left in the list."""
    pods[:] = await asyncio.to_thread(made.all_pods)
    if await asyncio.to_thread(made.renew, pods):
        return "pods were recreated"
    result = await asyncio.to_thread(made.all_claims)
    if restless := unrest_of(made, pods, result):
        return restless
    seen, loop = process.informer, process.scheduler
    if seen is None or loop is None or not seen.synced.is_set():
        return "the scheduler has not looked around"
    if not loop.is_idle:
        return "the scheduler is busy"
    if not _knows(seen.world, pods):
        return "the scheduler does not know all pods as they are"
    claims = {
        claim.metadata.uid: claim.metadata.resource_version for claim in seen.world.claims.values()
    }
    if claims != {
        claim["metadata"]["uid"]: claim["metadata"]["resourceVersion"] for claim in result
    }:
        return "the scheduler does not know all claims as they are"
    if unseen := [
        pod.metadata.name
        for id_, pod in seen.world.pods.items()
        if _is_owner_unseen(seen.world, id_)
    ]:
        return f"the scheduler does not know what made {unseen[0]}"
    # Nodes, slices and queues too: without them the engine finds nothing to do.
    verdict = await process._consistent()
    if not verdict["consistent"]:
        return f"the scheduler's picture is behind: {verdict}"
    # The comparison lists everything, which takes seconds on a busy machine: an eviction may have begun meanwhile.
    if not loop.is_idle or not _knows(seen.world, pods):
        return "the scheduler went on during the comparison"
    now = process.clock.now()
    plan = decide.decide(seen.world, process.settings.policy, now, process.settings.budget)
    if plan.placements or plan.evictions:
        return f"the engine would go on: {plan.placements or plan.evictions}"
    if plan.wake_at is not None and (plan.wake_at - now).total_seconds() < SOON_SECONDS:
        return "time alone changes something soon"
    return ""


def _knows(world: World, pods: list[Tree]) -> bool:
    """Whether the scheduler's picture has these pods, in these versions and no others."""
    known = {uid: pod.metadata.resource_version for uid, pod in world.pods.items()}
    return known == {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in pods}


def _is_owner_unseen(world: World, id_: str) -> bool:
    """News of two kinds lag behind each other: a pod may be there, and its Job not yet."""
    member = world.gangs.of(id_)
    return world.gangs.is_owner_unseen(id_) or (
        member is not None and not world.gangs.definition(member.gang).is_known
    )


def unrest_of(made: setting.Setting, pods: list[Tree], claims: list[Tree]) -> str:
    """What is under way on the server."""
    uids = {pod["metadata"]["uid"] for pod in pods}
    for pod in pods:
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp") and not made.is_staying(pod):
            return f"pod {name} is ending"
        if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            return f"pod {name} is starting"
        if pod["status"]["phase"] == "Pending" and not made.has_claims(pod, claims):
            return f"pod {name} waits for its claims"
    for claim in claims:
        users = [item["uid"] for item in claim.get("status", {}).get("reservedFor", ())]
        owner = setting.owner_of(claim)
        if (owner and owner not in uids) or not uids.issuperset(users):
            return f"claim {claim['metadata']['name']} is of a pod that is gone"
        if "allocation" in claim.get("status", {}) and not users:
            return f"claim {claim['metadata']['name']} has devices and no users"
    return ""


def situation_of(pods: list[Tree]) -> scenario_state.ScenarioState:
    """The state of every pod, in the words of scenarios. A nominated pod waits, as between two cycles."""
    last = sorted(
        pods, key=lambda pod: not pod["metadata"].get("deletionTimestamp")
    )  # what is ending counts least
    result = {
        setting.stands_for(pod): scenario_state.PodState(
            _state(pod), pod["spec"].get("nodeName", "")
        )
        for pod in last
    }
    return scenario_state.ScenarioState(result, {})


def _state(pod: Tree) -> State:
    phase = pod["status"]["phase"]
    if phase in ("Succeeded", "Failed"):
        return State(phase.lower())
    if pod["metadata"].get("deletionTimestamp"):
        return State.STUCK if pod["metadata"].get("finalizers") else State.TERMINATING
    if pod["spec"].get("nodeName"):
        return State.RUNNING
    return State.GATED if pod["spec"].get("schedulingGates") else State.PENDING
