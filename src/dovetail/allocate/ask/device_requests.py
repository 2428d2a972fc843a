"""Flattens claims into requests and their options, and rejects invalid ones.

Given claims and device classes; returns requests with every alternative, its count, and its selectors in the order
they apply. Never looks at a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.cel import selectors
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.errors import ExpressionError
from dovetail.kubetypes.node_selectors import DeviceToleration
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.resource.device_classes import DeviceClass, DeviceSelector
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity.quantity import Quantity

Requested = claims.ExactDeviceRequest | claims.DeviceSubRequest


class BrokenSelector(NamedTuple):
    """A selector that does not compile: its position, and the problem."""

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

    def __init__(
        self, *, claim: int, request: int, index: int, name: str, base_name: str, subject: str
    ) -> None:
        self.claim = claim
        self.request = request  # position in the claim
        self.index = index  # position in firstAvailable
        self.name = name  # as written in results: `request` or `request/sub`
        self.base_name = base_name
        self.subject = subject
        self.count: int | None = None  # None: all devices
        self.is_admin = False
        self.expressions: tuple[str, ...] = ()
        self.class_selectors = 0  # how many of the expressions are the class's
        self.broken: BrokenSelector | None = None
        self.tolerations: tuple[DeviceToleration, ...] = ()
        self.capacity: Mapping[str, Quantity] = {}
        self.capacity_key: tuple[tuple[str, str], ...] = ()
        self.device_class = DeviceClass()


class Request(NamedTuple):
    """A request with its options, most preferred first."""

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
    """A request that no node can serve as written; carries the reason."""

    def __init__(self, subject: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = Reason(code=ReasonCode.INPUT, subject=subject, detail=detail)


def flattened(
    claims: Sequence[claims.ResourceClaim],
    classes: Mapping[str, DeviceClass],
    effort: Effort = UNBOUNDED,
) -> list[Request]:
    """The requests of all claims, in order. Raises InvalidRequest, or Unfinished if selectors take too long."""
    return [
        _request(claim, request, classes, position=(number, index), effort=effort)
        for number, claim in enumerate(claims)
        for index, request in enumerate(claim.spec.devices.requests)
    ]


def claim_name(claim: claims.ResourceClaim) -> str:
    """A claim as reasons name it."""
    meta = claim.metadata
    return f"claim {meta.namespace}/{meta.name}" if meta.namespace else f"claim {meta.name}"


def _request(
    claim: claims.ResourceClaim,
    request: claims.DeviceRequest,
    classes: Mapping[str, DeviceClass],
    *,
    position: tuple[int, int],
    effort: Effort,
) -> Request:
    number, index = position
    subject = f"{claim_name(claim)}: request {request.name}"
    if request.first_available:
        options = tuple(
            _option(
                sub, classes, _alternative(position, place, request.name, sub.name, subject), effort
            )
            for place, sub in enumerate(request.first_available)
        )
        return Request(number, index, options, is_list=True)
    if request.exactly is None:
        raise InvalidRequest(
            subject, "neither exactly nor firstAvailable is set; a request needs one of them"
        )
    option = Option(
        claim=number,
        request=index,
        index=0,
        name=request.name,
        base_name=request.name,
        subject=subject,
    )
    option.is_admin = request.exactly.admin_access or False
    return Request(
        number, index, (_option(request.exactly, classes, option, effort),), is_list=False
    )


def _alternative(
    position: tuple[int, int], place: int, base: str, sub: str, subject: str
) -> Option:
    """An entry of firstAvailable, still without what it requests."""
    return Option(
        claim=position[0],
        request=position[1],
        index=place,
        name=f"{base}/{sub}",
        base_name=base,
        subject=f"{subject}/{sub}",
    )


def _option(
    requested: Requested, classes: Mapping[str, DeviceClass], option: Option, effort: Effort
) -> Option:
    """Fills the option with what is requested."""
    subject = option.subject
    if requested.derived_attributes:
        raise InvalidRequest(subject, "derived attributes are an alpha feature that is off")
    if not requested.device_class_name:
        raise InvalidRequest(subject, "no device class is named")
    device_class = classes.get(requested.device_class_name)
    if device_class is None:
        raise InvalidRequest(subject, f"device class {requested.device_class_name} does not exist")
    option.device_class = device_class
    option.count = _count(requested, subject)

    of_class = _expressions(device_class.spec.selectors, subject)
    option.expressions = of_class + _expressions(requested.selectors, subject)
    option.class_selectors = len(of_class)
    option.broken = _first_broken(option.expressions, effort)
    option.tolerations = requested.tolerations
    if requested.capacity is not None and requested.capacity.requests:
        option.capacity = requested.capacity.requests
        option.capacity_key = tuple(
            sorted((name, amount.text) for name, amount in option.capacity.items())
        )
    return option


def _count(requested: Requested, subject: str) -> int | None:
    """How many devices are requested; None for all."""
    mode = requested.allocation_mode
    if mode == claims.MODE_EXACT_COUNT:
        return max(requested.count, 0)
    if mode == claims.MODE_ALL:
        return None
    modes = f"{claims.MODE_EXACT_COUNT}, {claims.MODE_ALL}"
    raise InvalidRequest(subject, f"allocation mode {mode!r} is unknown; known: {modes}")


def _expressions(listed: Sequence[DeviceSelector], subject: str) -> tuple[str, ...]:
    expressions = []
    for number, selector in enumerate(listed):
        if selector.cel is None:
            raise InvalidRequest(
                subject, f"selector {number} is not a CEL expression, the only kind there is"
            )
        expressions.append(selector.cel.expression)
    return tuple(expressions)


def _first_broken(expressions: tuple[str, ...], effort: Effort) -> BrokenSelector | None:
    for position, expression in enumerate(expressions):
        problem = compile_problem(expression, effort)
        if problem is not None:
            return BrokenSelector(position, problem)
    return None


def compile_problem(expression: str, effort: Effort = UNBOUNDED) -> str | None:
    """Why an expression cannot be compiled for evaluation; None when it can."""
    try:
        selectors.selector(expression, effort)
    except ExpressionError as error:
        return str(error)
    return None
