"""Parts requests into those that can get in each other's way and those that cannot.

Requests meet in devices, in counters devices draw on, in constraints, and in the number of devices a claim may hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.allocate.facts import bits
from dovetail.allocate.ground import CounterKey
from dovetail.allocate.requests import Request
from dovetail.allocate.settled import Terms, count_of
from dovetail.model.claims import MAX_RESULTS


def independent(terms: Terms, requests: Sequence[Request]) -> list[list[Request]]:
    """Requests by part, in order; two parts never meet."""
    if len(requests) <= 1:
        return [list(requests)] if requests else []
    parts = _Parts(len(requests))
    _by_devices(terms, requests, parts)
    for rule in terms.constraints:
        parts.join([n for n, request in enumerate(requests) if any(map(rule.covers, request.options))])
    most: dict[int, int] = {}
    for request in requests:
        most[request.claim] = most.get(request.claim, 0) + max(count_of(terms, one) for one in request.options)
    for claim, devices in most.items():
        if devices > MAX_RESULTS:
            parts.join([n for n, request in enumerate(requests) if request.claim == claim])
    return parts.listed(requests)


def _by_devices(terms: Terms, requests: Sequence[Request], parts: _Parts) -> None:
    owners: dict[int, int] = {}  # device or counter set -> a request that wants it
    sets: dict[tuple[int, str], int] = {}
    seen: dict[int, int] = {}  # mask -> request
    for number, request in enumerate(requests):
        mask = 0
        for option in request.options:
            mask |= terms.candidates[option].mask | terms.candidates[option].wanted
        if mask in seen:
            parts.join([seen[mask], number])
            continue
        seen[mask] = number
        for device in bits(mask):
            parts.join([owners.setdefault(device, number), number])
            if terms.ground.charged >> device & 1:
                for key in {_set_of(key) for key, _ in terms.ground.charges(device)}:
                    parts.join([sets.setdefault(key, number), number])


def _set_of(key: CounterKey) -> tuple[int, str]:
    return key[0], key[1]


class _Parts:
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
        found: dict[int, list[Request]] = {}
        for number, request in enumerate(requests):
            found.setdefault(self.root(number), []).append(request)
        return list(found.values())
