"""Splits requests into independent parts, so that each can be solved alone.

Two requests can affect each other only through a device both could take, a counter set devices of both draw on, a
constraint that covers both, or the number of devices one claim may hold. Requests linked by any of these, directly or
through others, form one part. The split is exact: a solution of all requests is one solution per part, and costs add
up, because every cost belongs to a single device or counter set.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.allocate.ask.device_requests import Request
from dovetail.allocate.index.pool_index import bits
from dovetail.allocate.solve.solver import SearchContext, count_of
from dovetail.kubetypes.resource.claims import MAX_RESULTS


def independent_parts(context: SearchContext, requests: Sequence[Request]) -> list[list[Request]]:
    """The parts, in the order of their first requests."""
    if len(requests) <= 1:
        return [list(requests)] if requests else []
    parts = _Parts(len(requests))
    _join_by_devices(context, requests, parts)
    for constraint in context.constraints:
        parts.join(
            [
                number
                for number, request in enumerate(requests)
                if any(map(constraint.covers, request.options))
            ]
        )
    _join_by_limit(context, requests, parts)
    return parts.listed(requests)


def _join_by_devices(context: SearchContext, requests: Sequence[Request], parts: _Parts) -> None:
    node = context.node
    by_device: dict[int, int] = {}  # device -> a request that could take it
    by_counter_set: dict[tuple[int, str], int] = {}  # pool and counter set -> such a request
    by_mask: dict[int, int] = {}  # mask -> a request with these candidates
    for number, request in enumerate(requests):
        mask = 0
        for option in request.options:
            # Devices that a request for all devices must take count even if they are in use.
            candidates = context.candidates[option]
            mask |= candidates.mask | candidates.wanted
        if mask in by_mask:  # the same devices: no need to walk them again
            parts.join([by_mask[mask], number])
            continue
        by_mask[mask] = number
        for device in bits(mask):
            parts.join([by_device.setdefault(device, number), number])
            if not node.charged >> device & 1:
                continue
            counter_sets = {(pool, name) for (pool, name, _), _ in node.charges(device)}
            for counter_set in counter_sets:
                parts.join([by_counter_set.setdefault(counter_set, number), number])


def _join_by_limit(context: SearchContext, requests: Sequence[Request], parts: _Parts) -> None:
    """Joins the requests of a claim whose largest options together exceed what a claim may hold."""
    most: dict[int, int] = {}
    for request in requests:
        devices = max(count_of(context, option) for option in request.options)
        most[request.claim] = most.get(request.claim, 0) + devices
    for claim, devices in most.items():
        if devices > MAX_RESULTS:
            parts.join([n for n, request in enumerate(requests) if request.claim == claim])


class _Parts:
    """Union-find over requests; the lowest number of a part is its root."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def root(self, number: int) -> int:
        while self.parent[number] != number:
            number = self.parent[number]
        return number

    def join(self, numbers: Sequence[int]) -> None:
        roots = sorted({self.root(number) for number in numbers})
        for root in roots[1:]:
            self.parent[root] = roots[0]

    def listed(self, requests: Sequence[Request]) -> list[list[Request]]:
        by_root: dict[int, list[Request]] = {}
        for number, request in enumerate(requests):
            by_root.setdefault(self.root(number), []).append(request)
        return list(by_root.values())
