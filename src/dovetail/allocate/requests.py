"""Flattens claims into requests and their options, and refuses what cannot be understood.

Given claims and device classes; gives requests with every alternative spelled out, the counts, the selectors in the
order they apply. Never looks at a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.cel import selectors
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.errors import ExpressionError
from dovetail.model import claims as wire
from dovetail.model.classes import DeviceClass, DeviceSelector
from dovetail.model.quantity import Quantity
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.model.selectors import DeviceToleration

Requested = wire.ExactDeviceRequest | wire.DeviceSubRequest


class Broken(NamedTuple):
    """A selector that does not compile: how many stand before it, and what is wrong."""

    position: int
    message: str


class Option:
    """One way to satisfy a request. Compared by identity."""

    __slots__ = (
        "base_name",
        "broken",
        "capacity",
        "capacity_key",
        "claim",
        "class_selectors",
        "count",
        "device_class",
        "expressions",
        "index",
        "is_admin",
        "name",
        "request",
        "subject",
        "tolerations",
    )

    def __init__(self, *, claim: int, request: int, index: int, name: str, base_name: str, subject: str) -> None:
        self.claim = claim
        self.request = request  # position in the claim
        self.index = index  # position among firstAvailable
        self.name = name  # as results spell it: `request` or `request/sub`
        self.base_name = base_name
        self.subject = subject
        self.count: int | None = None  # None: all devices
        self.is_admin = False
        self.expressions: tuple[str, ...] = ()
        self.class_selectors = 0  # how many of the expressions are the class's
        self.broken: Broken | None = None
        self.tolerations: tuple[DeviceToleration, ...] = ()
        self.capacity: Mapping[str, Quantity] = {}
        self.capacity_key: tuple[tuple[str, str], ...] = ()
        self.device_class = DeviceClass()


class Request(NamedTuple):
    """A request with its options, most wanted first."""

    claim: int
    place: int  # in the claim
    options: tuple[Option, ...]
    is_list: bool  # a firstAvailable request

    @property
    def subject(self) -> str:
        """The request as reasons name it."""
        subject = self.options[0].subject
        return subject.rpartition("/")[0] if self.is_list else subject


class InvalidRequest(Exception):
    """A request nobody can serve; carries the reason."""

    def __init__(self, subject: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = Reason(code=ReasonCode.INPUT, subject=subject, detail=detail)


def flattened(
    claims: Sequence[wire.ResourceClaim], classes: Mapping[str, DeviceClass], effort: Effort = UNBOUNDED
) -> list[Request]:
    """The requests of all claims, in order. Raises InvalidRequest, or Unfinished where selectors take too long."""
    return [
        _request(claim, request, classes, position=(number, index), effort=effort)
        for number, claim in enumerate(claims)
        for index, request in enumerate(claim.spec.devices.requests)
    ]


def claim_name(claim: wire.ResourceClaim) -> str:
    """A claim as reasons name it."""
    meta = claim.metadata
    return f"claim {meta.namespace}/{meta.name}" if meta.namespace else f"claim {meta.name}"


def _request(
    claim: wire.ResourceClaim,
    request: wire.DeviceRequest,
    classes: Mapping[str, DeviceClass],
    *,
    position: tuple[int, int],
    effort: Effort,
) -> Request:
    number, index = position
    subject = f"{claim_name(claim)}: request {request.name}"
    if request.first_available:
        options = tuple(
            _option(sub, classes, _named(position, place, request.name, sub.name, subject), effort)
            for place, sub in enumerate(request.first_available)
        )
        return Request(number, index, options, is_list=True)
    if request.exactly is None:
        raise InvalidRequest(subject, "neither exactly nor firstAvailable is set; one of them says what is wanted")
    option = Option(claim=number, request=index, index=0, name=request.name, base_name=request.name, subject=subject)
    option.is_admin = request.exactly.admin_access or False
    return Request(number, index, (_option(request.exactly, classes, option, effort),), is_list=False)


def _named(position: tuple[int, int], place: int, base: str, sub: str, subject: str) -> Option:
    full = f"{base}/{sub}"
    return Option(
        claim=position[0], request=position[1], index=place, name=full, base_name=base, subject=f"{subject}/{sub}"
    )


def _option(wanted: Requested, classes: Mapping[str, DeviceClass], option: Option, effort: Effort) -> Option:
    if wanted.derived_attributes:
        raise InvalidRequest(option.subject, "derived attributes are an alpha feature that is off")
    if not wanted.device_class_name:
        raise InvalidRequest(option.subject, "no device class is named")
    device_class = classes.get(wanted.device_class_name)
    if device_class is None:
        raise InvalidRequest(option.subject, f"device class {wanted.device_class_name} does not exist")
    if wanted.allocation_mode == wire.MODE_EXACT_COUNT:
        option.count = max(wanted.count, 0)
    elif wanted.allocation_mode != wire.MODE_ALL:
        known = f"{wire.MODE_EXACT_COUNT}, {wire.MODE_ALL}"
        raise InvalidRequest(option.subject, f"allocation mode {wanted.allocation_mode!r} is unknown; known: {known}")
    option.device_class = device_class
    shared = _expressions(device_class.spec.selectors, option.subject)
    option.expressions = shared + _expressions(wanted.selectors, option.subject)
    option.class_selectors = len(shared)
    option.broken = _first_broken(option.expressions, effort)
    option.tolerations = wanted.tolerations
    if wanted.capacity is not None and wanted.capacity.requests:
        option.capacity = wanted.capacity.requests
        option.capacity_key = tuple(sorted((name, amount.text) for name, amount in option.capacity.items()))
    return option


def _expressions(listed: Sequence[DeviceSelector], subject: str) -> tuple[str, ...]:
    found = []
    for number, one in enumerate(listed):
        if one.cel is None:
            raise InvalidRequest(subject, f"selector {number} is not a CEL expression, the only kind there is")
        found.append(one.cel.expression)
    return tuple(found)


def _first_broken(expressions: tuple[str, ...], effort: Effort) -> Broken | None:
    for position, expression in enumerate(expressions):
        problem = compile_problem(expression, effort)
        if problem is not None:
            return Broken(position, problem)
    return None


def compile_problem(expression: str, effort: Effort = UNBOUNDED) -> str | None:
    """Why an expression cannot be compiled for evaluation; None when it can."""
    try:
        selectors.selector(expression, effort)
    except ExpressionError as error:
        return str(error)
    return None
