"""The part of a scenario that changes in a run: each pod's state and node, and the devices of pods and claims.

`begin` allocates devices to the pods that run from the start: the GPUs that the scenario names to the pods that share
them, free ones to all other pods. Given a scenario. Never chooses a node, never decides which pod may run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dovetail import errors
from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.resource import claims
from dovetail.quantity import quantity
from dovetail.replay.scenarios import scenario_claims, scenario_format, scenario_nodes
from dovetail.replay.scenarios.scenario_format import State


class PodState(NamedTuple):
    """State, node and devices of a pod."""

    state: State
    node: str = ""
    held: Mapping[str, claims.AllocationResult] = {}  # allocations of its own claims, by role
    started_s_ago: float | None = None


class SharedClaimState(NamedTuple):
    """Allocation and users of a claim that pods share."""

    allocation: claims.AllocationResult | None = None
    users: tuple[str, ...] = ()  # pods by name


class ScenarioState(NamedTuple):
    """Everything that changes in a run."""

    pods: Mapping[str, PodState]
    claims: Mapping[str, SharedClaimState]


def begin(scenario: scenario_format.Scenario) -> ScenarioState:
    """The state at the start. Raises InputError if a node's pods hold more GPUs than it has."""
    allocations: dict[str, dict[str, claims.AllocationResult]] = {}  # by pod and role
    gpu_sizes = {node.gpu.memory_mib for node in scenario.nodes if node.gpu.count}
    claimed_nodes = scenario_nodes.claimed_gpu_nodes(scenario)
    for node in scenario.nodes:
        pods_on_node = [pod for pod in scenario.pods if _is_on(pod, node)]
        has_claimed = node.name in claimed_nodes
        board = _Board(
            node, is_shareable=scenario_nodes.is_shareable(node, has_claimed=has_claimed)
        )
        for pod, results in board.give(pods_on_node, sized=len(gpu_sizes) > 1):
            by_role = allocations.setdefault(pod.name, {})
            by_role[scenario_claims.GPU] = allocation(results, node.name)
        for pod, results in _zone_allocations(node, pods_on_node, scenario):
            by_role = allocations.setdefault(pod.name, {})
            by_role[scenario_claims.NUMA] = allocation(results, node.name)

    pods = {}
    for job in scenario.jobs:
        for pod in job.pods:
            own_allocations = allocations.get(pod.name, {})
            pods[pod.name] = PodState(pod.state, _node_of(pod), own_allocations, job.started_s_ago)
    return ScenarioState(pods, {claim.name: _holding(claim, scenario) for claim in scenario.claims})


def allocation(
    results: tuple[claims.DeviceRequestAllocationResult, ...], node: str
) -> claims.AllocationResult:
    """An allocation of devices of one node, usable on that node only."""
    by_name = node_selectors.NodeSelectorRequirement(
        key=node_selectors.FIELD_NODE_NAME, operator="In", values=(node,)
    )
    return claims.AllocationResult(
        devices=claims.DeviceAllocationResult(results=results),
        node_selector=node_selectors.NodeSelector(
            node_selector_terms=(node_selectors.NodeSelectorTerm(match_fields=(by_name,)),)
        ),
    )


class _Board:
    """The GPUs of a node while they are allocated to its pods."""

    def __init__(self, node: scenario_format.Node, *, is_shareable: bool) -> None:
        self._node = node
        self._is_shareable = is_shareable
        self._free = list(range(node.gpu.count))
        self._named: dict[str, int] = {}  # index by the scenario's name for a shared GPU
        self._free_mib: dict[int, int] = {}  # by index, of shared GPUs

    def give(
        self, pods: list[scenario_format.Pod], *, sized: bool
    ) -> Iterator[tuple[scenario_format.Pod, tuple[claims.DeviceRequestAllocationResult, ...]]]:
        """Devices for each pod that requests any: named shares first, then other shares, then whole GPUs."""
        sharing = [pod for pod in pods if pod.request.is_share]
        self._resolve_names(sharing)
        sharing.sort(key=lambda pod: not pod.devices)
        for pod in sharing:
            yield pod, self._shares(pod, sized=sized)

        full_mib = self._node.gpu.memory_mib
        for pod in pods:
            if pod.request.gpu and not pod.request.is_share:
                devices = [self._take_free(pod) for _ in range(pod.request.gpu)]
                yield pod, self._results(pod, devices, name=scenario_claims.REQUEST, mib=full_mib)

    def _shares(
        self, pod: scenario_format.Pod, *, sized: bool
    ) -> tuple[claims.DeviceRequestAllocationResult, ...]:
        mib = scenario_claims.share_mib(pod.request, self._node.gpu.memory_mib)
        devices = [self._share(pod, number, mib) for number in range(pod.request.gpu_devices)]
        name = scenario_claims.REQUEST
        if sized and pod.request.gpu_fraction is not None:
            name += f"/of-{self._node.gpu.memory_mib}-mib"  # the subrequest for this size
        return self._results(pod, devices, name=name, mib=mib)

    def _resolve_names(self, pods: list[scenario_format.Pod]) -> None:
        """Binds every name to a GPU: a number to the GPU of that index if there is one, others to any free GPU."""
        names = dict.fromkeys(name for pod in pods for name in pod.devices)
        for name in names:
            if name.isascii() and name.isdecimal() and int(name) in self._free:
                self._free.remove(int(name))
                self._share_out(int(name), name)

        # Numbers first: another name must not take the GPU that a number means.
        for pod in pods:
            for name in pod.devices:
                if name not in self._named:
                    self._share_out(self._take_free(pod), name)

    def _share_out(self, index: int, name: str) -> None:
        self._named[name] = index
        self._free_mib[index] = self._node.gpu.memory_mib

    def _share(self, pod: scenario_format.Pod, number: int, mib: int) -> int:
        """The GPU of a pod's nth share: the one it names, else the first shared one with room, else a free one."""
        if number < len(pod.devices):
            index = self._named[pod.devices[number]]
        else:
            with_room = (index for index, free in self._free_mib.items() if free >= mib)
            index = next(with_room, -1)
            if index < 0:
                index = self._take_free(pod)
                self._free_mib[index] = self._node.gpu.memory_mib
        self._free_mib[index] -= mib
        return index

    def _take_free(self, pod: scenario_format.Pod) -> int:
        if not self._free:
            have = self._node.gpu.count
            raise errors.InputError(
                f"pod {pod.name!r}: node {self._node.name!r} has {have} GPUs and no free one for it"
            )
        return self._free.pop(0)

    def _results(
        self, pod: scenario_format.Pod, devices: list[int], *, name: str, mib: int
    ) -> tuple[claims.DeviceRequestAllocationResult, ...]:
        return tuple(self._result(pod, index, name=name, mib=mib) for index in devices)

    def _result(
        self, pod: scenario_format.Pod, index: int, *, name: str, mib: int
    ) -> claims.DeviceRequestAllocationResult:
        amounts: dict[str, quantity.Quantity] = {
            scenario_nodes.MEMORY: scenario_nodes.mebibytes(mib)
        }
        return claims.DeviceRequestAllocationResult(
            request=name,
            driver=scenario_nodes.GPU_DRIVER,
            pool=self._node.name,
            device=scenario_nodes.gpu_name(index),
            share_id=f"{pod.name}-{index}" if self._is_shareable else None,
            consumed_capacity=amounts if self._is_shareable else {},
        )


def _zone_allocations(
    node: scenario_format.Node, pods: list[scenario_format.Pod], scenario: scenario_format.Scenario
) -> Iterator[tuple[scenario_format.Pod, tuple[claims.DeviceRequestAllocationResult, ...]]]:
    """The parts of NUMA zones that pods hold. Only Guaranteed pods are aligned to zones."""
    if not scenario_nodes.has_zones(scenario):
        return
    for pod in pods:
        if pod.qos != scenario_claims.GUARANTEED:
            continue
        results = []
        for name, amounts in pod.numa_placement.items():
            zone = scenario_nodes.zone_of(node, name)
            if zone is not None:
                results.append(_zone_result(pod, node, zone, amounts))
        if results:
            yield pod, tuple(results)


def _zone_result(
    pod: scenario_format.Pod, node: scenario_format.Node, zone: str, amounts: Mapping[str, float]
) -> claims.DeviceRequestAllocationResult:
    return claims.DeviceRequestAllocationResult(
        request=scenario_claims.REQUEST,
        driver=scenario_nodes.NUMA_DRIVER,
        pool=node.name,
        device=zone,
        share_id=f"{pod.name}-{zone}",
        consumed_capacity={
            resource: scenario_nodes.exact(amount) for resource, amount in amounts.items()
        },
    )


def _holding(claim: scenario_format.Claim, scenario: scenario_format.Scenario) -> SharedClaimState:
    if not claim.allocated:
        return SharedClaimState(None, claim.reserved_for)
    slices_by_device = {
        (device_slice.pool, device): device_slice
        for device_slice in scenario.device_slices
        for device in device_slice.devices
    }

    def result(device: scenario_format.HeldDevice) -> claims.DeviceRequestAllocationResult:
        device_slice = slices_by_device[device.pool, device.device]
        return claims.DeviceRequestAllocationResult(
            request=scenario_claims.REQUEST,
            driver=scenario_nodes.claimed_driver(gpu=device_slice.gpu),
            pool=device.pool,
            device=device.device,
        )

    first = claim.allocated[0]
    node = slices_by_device[first.pool, first.device].node
    return SharedClaimState(
        allocation(tuple(map(result, claim.allocated)), node), claim.reserved_for
    )


def _is_on(pod: scenario_format.Pod, node: scenario_format.Node) -> bool:
    return pod.state in scenario_format.HOLDING and pod.node == node.name


def _node_of(pod: scenario_format.Pod) -> str:
    if pod.state in scenario_format.HOLDING or pod.state is State.NOMINATED:
        return pod.node or ""
    return ""
