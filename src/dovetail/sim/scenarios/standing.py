"""Where every pod of a scenario stands, and which devices it and the claims hold: the part that changes in a run.

`begin` gives devices to what runs from the start: GPUs that pods share are those the scenario names, everybody else
holds ones nobody is named for. Given a scenario. Never chooses between nodes, never decides who may run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dovetail import errors
from dovetail.model import claims, quantity, selectors
from dovetail.sim.scenarios import claiming, machines, reading
from dovetail.sim.scenarios.reading import State


class Standing(NamedTuple):
    """Where a pod is."""

    state: State
    node: str = ""
    held: Mapping[str, claims.AllocationResult] = {}  # by role, what its own claims hold
    started_s_ago: float | None = None


class Holding(NamedTuple):
    """A claim pods share."""

    allocation: claims.AllocationResult | None = None
    users: tuple[str, ...] = ()  # pods by name


class Situation(NamedTuple):
    """Everything that changes in a run."""

    pods: Mapping[str, Standing]
    claims: Mapping[str, Holding]


def begin(scenario: reading.Scenario) -> Situation:
    """How the scenario starts. Raises InputError where a node's pods hold more GPUs than it has."""
    held: dict[str, dict[str, claims.AllocationResult]] = {}
    claimed = {one.node for one in scenario.device_slices if one.gpu}
    for node in scenario.nodes:
        there = [pod for job in scenario.jobs for pod in job.pods if _is_on(pod, node)]
        board = _Board(node, is_shareable=machines.is_shareable(node, has_claimed=node.name in claimed))
        sized = len({one.gpu.memory_mib for one in scenario.nodes if one.gpu.count}) > 1
        for pod, results in (*board.give(there, sized=sized), *_zoned(node, there, scenario)):
            role = claiming.NUMA if results[0].driver == machines.NUMA_DRIVER else claiming.GPU
            held.setdefault(pod.name, {})[role] = allocation(results, node.name)
    pods = {
        pod.name: Standing(pod.state, _node_of(pod), held.get(pod.name, {}), job.started_s_ago)
        for job in scenario.jobs
        for pod in job.pods
    }
    return Situation(pods, {claim.name: _holding(claim, scenario) for claim in scenario.claims})


def allocation(results: tuple[claims.DeviceRequestAllocationResult, ...], node: str) -> claims.AllocationResult:
    """Devices of one node, usable there alone."""
    named = selectors.NodeSelectorRequirement(key=selectors.FIELD_NODE_NAME, operator="In", values=(node,))
    return claims.AllocationResult(
        devices=claims.DeviceAllocationResult(results=results),
        node_selector=selectors.NodeSelector(node_selector_terms=(selectors.NodeSelectorTerm(match_fields=(named,)),)),
    )


class _Board:
    """The GPUs of a node, and who gets which of them."""

    def __init__(self, node: reading.Node, *, is_shareable: bool) -> None:
        self._node = node
        self._is_shareable = is_shareable
        self._free = list(range(node.gpu.count))
        self._named: dict[str, int] = {}
        self._left: dict[int, int] = {}  # MiB of GPUs that are shared already

    def give(
        self, pods: list[reading.Pod], *, sized: bool
    ) -> Iterator[tuple[reading.Pod, tuple[claims.DeviceRequestAllocationResult, ...]]]:
        """Devices for each pod that wants any: those with names first, then shares, then whole GPUs."""
        self._settle_names(pods)
        request = claiming.REQUEST + (f"/of-{self._node.gpu.memory_mib}-mib" if sized else "")
        for pod in sorted(pods, key=lambda one: not one.devices):
            wanted = pod.request
            if wanted.is_share:
                mib = claiming.share_mib(wanted, self._node.gpu.memory_mib)
                given = [self._share(pod, number, mib) for number in range(wanted.gpu_devices)]
                name = request if wanted.gpu_fraction is not None else claiming.REQUEST
                yield pod, tuple(self._result(pod, index, name=name, mib=mib) for index in given)
        for pod in pods:
            if pod.request.gpu and not pod.request.is_share:
                given = [self._whole(pod) for _ in range(pod.request.gpu)]
                full = self._node.gpu.memory_mib
                yield pod, tuple(self._result(pod, index, name=claiming.REQUEST, mib=full) for index in given)

    def _settle_names(self, pods: list[reading.Pod]) -> None:
        """A name that is a number is that GPU where there is one; every other name is one nobody else has."""
        names = list(dict.fromkeys(name for pod in pods if pod.request.is_share for name in pod.devices))
        for name in names:
            if name.isascii() and name.isdecimal() and int(name) in self._free:
                self._open(name, int(name))
        for pod in pods:
            for name in pod.devices if pod.request.is_share else ():
                if name not in self._named:
                    self._open(name, self._any(pod))

    def _open(self, name: str, index: int) -> None:
        self._free.remove(index)
        self._named[name] = index
        self._left[index] = self._node.gpu.memory_mib

    def _share(self, pod: reading.Pod, number: int, mib: int) -> int:
        if number < len(pod.devices):
            index = self._named[pod.devices[number]]
        else:
            index = next((one for one, left in self._left.items() if left >= mib), -1)
            if index < 0:
                index = self._any(pod)
                self._free.remove(index)
                self._left[index] = self._node.gpu.memory_mib
        self._left[index] -= mib
        return index

    def _whole(self, pod: reading.Pod) -> int:
        index = self._any(pod)
        self._free.remove(index)
        return index

    def _any(self, pod: reading.Pod) -> int:
        if not self._free:
            have = self._node.gpu.count
            raise errors.InputError(
                f"pod {pod.name!r}: node {self._node.name!r} has {have} GPUs and no free one for it"
            )
        return self._free[0]

    def _result(self, pod: reading.Pod, index: int, *, name: str, mib: int) -> claims.DeviceRequestAllocationResult:
        amounts: dict[str, quantity.Quantity] = {machines.MEMORY: machines.mebibytes(mib)}
        return claims.DeviceRequestAllocationResult(
            request=name,
            driver=machines.GPU_DRIVER,
            pool=self._node.name,
            device=machines.gpu_name(index),
            share_id=f"{pod.name}-{index}" if self._is_shareable else None,
            consumed_capacity=amounts if self._is_shareable else {},
        )


def _zoned(
    node: reading.Node, pods: list[reading.Pod], scenario: reading.Scenario
) -> Iterator[tuple[reading.Pod, tuple[claims.DeviceRequestAllocationResult, ...]]]:
    """Zones of pods that hold parts of them."""
    if not machines.has_zones(scenario):
        return
    for pod in pods:
        results = tuple(
            claims.DeviceRequestAllocationResult(
                request=claiming.REQUEST,
                driver=machines.NUMA_DRIVER,
                pool=node.name,
                device=zone,
                share_id=f"{pod.name}-{zone}",
                consumed_capacity={resource: machines.exact(much) for resource, much in amounts.items()},
            )
            for name, amounts in pod.numa_placement.items()
            if (zone := machines.zone_of(node, name)) is not None
        )
        if results and pod.qos == claiming.GUARANTEED:
            yield pod, results


def _holding(claim: reading.Claim, scenario: reading.Scenario) -> Holding:
    if not claim.allocated:
        return Holding(None, claim.reserved_for)
    homes = {
        (one.pool, device): (one.node, machines.claimed_driver(gpu=one.gpu))
        for one in scenario.device_slices
        for device in one.devices
    }
    results = tuple(
        claims.DeviceRequestAllocationResult(
            request=claiming.REQUEST, driver=homes[one.pool, one.device][1], pool=one.pool, device=one.device
        )
        for one in claim.allocated
    )
    first = claim.allocated[0]
    return Holding(allocation(results, homes[first.pool, first.device][0]), claim.reserved_for)


def _is_on(pod: reading.Pod, node: reading.Node) -> bool:
    return pod.state in reading.HOLDING and pod.node == node.name


def _node_of(pod: reading.Pod) -> str:
    has_node = pod.state in reading.HOLDING or pod.state is State.NOMINATED
    return (pod.node or "") if has_node else ""
