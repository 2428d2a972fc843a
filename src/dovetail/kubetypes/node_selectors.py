"""Decides whether a node selector matches a node and whether a toleration covers a taint.

Given the wire structs and plain labels; returns what kube-scheduler would, for malformed selectors, too.
Never reads a cluster, never fills in defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from dovetail import cache, errors
from dovetail.kubetypes import meta

# The only node field a selector can see: core/v1 NodeSelectorTerm.matchFields.
FIELD_NODE_NAME = "metadata.name"
# Of label values, and of the name part of a label key: apimachinery validate/content.
MAX_LABEL_LENGTH = 63
MAX_PREFIX_LENGTH = 253  # DNS subdomain in front of a label key
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

_PRESENCE_TESTS = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")
_OPERATORS = ("In", "NotIn", *_PRESENCE_TESTS, *_COMPARISONS)
_LABEL_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_DECIMAL = re.compile(r"([+-]?)0*([0-9]+)")


class NodeSelectorRequirement(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One test of one label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Tests that must all hold. A term without any test matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class DeviceTaint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A mark on a device that keeps away requests without a matching toleration."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: meta.Time | None = None


class DeviceToleration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Taints a request accepts. An empty key or effect stands for all; an empty operator means Equal."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SelectorError(errors.InputError):
    """A node selector that cannot be read. Each problem opens with the path of the field to repair."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def picks_node(selector: NodeSelector, labels: Mapping[str, str], *, node_name: str) -> bool:
    """Whether any term holds for the node. Raises SelectorError if any term is malformed, as DRA does."""
    faults = problems(selector)
    if faults:
        raise SelectorError(faults)
    return any(_term_holds(term, labels, node_name) for term in selector.node_selector_terms)


def picks_node_leniently(
    selector: NodeSelector, labels: Mapping[str, str], *, node_name: str
) -> bool:
    """As a pod's required node affinity: a malformed term is an error only if no other term holds."""
    faults: list[str] = []
    for index, term in enumerate(selector.node_selector_terms):
        term_faults = _term_problems(term, f"nodeSelectorTerms[{index}]")
        faults += term_faults
        if not term_faults and _term_holds(term, labels, node_name):
            return True
    if faults:
        raise SelectorError(tuple(faults))
    return False


def failing_requirements(
    term: NodeSelectorTerm, labels: Mapping[str, str], *, node_name: str
) -> tuple[NodeSelectorRequirement, ...]:
    """The tests of a sound term that do not hold for the node."""
    failing = [
        requirement
        for requirement in term.match_expressions
        if not _label_holds(requirement, labels)
    ]
    failing += [
        requirement
        for requirement in term.match_fields
        if node_name and not _field_holds(requirement, node_name)
    ]
    return tuple(failing)


@cache.remembered(4096)
def problems(selector: NodeSelector) -> tuple[str, ...]:
    """Everything that makes the selector unreadable, with paths below it; empty when it is sound."""
    faults: list[str] = []
    for index, term in enumerate(selector.node_selector_terms):
        faults += _term_problems(term, f"nodeSelectorTerms[{index}]")
    return tuple(faults)


class Tolerating(Protocol):
    """What tolerations of devices and of nodes have in common."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class Tainting(Protocol):
    """What taints of devices and of nodes have in common."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


def tolerates(toleration: Tolerating, taint: Tainting) -> bool:
    """Whether the toleration covers the taint, of a device or a node. The caller decides which effects matter.

    An empty key or effect stands for all, an empty operator for Equal; other operators never match.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    if not all(_label_holds(requirement, labels) for requirement in term.match_expressions):
        return False
    # A node without a name shows no fields, and then upstream skips the field tests altogether.
    if not node_name:
        return True
    return all(_field_holds(requirement, node_name) for requirement in term.match_fields)


def _label_holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compares(value, requirement.values, lambda have, bound: have > bound)
        case "Lt":
            return _compares(value, requirement.values, lambda have, bound: have < bound)
        case _:
            return False


def _compares(
    value: str | None, bounds: tuple[str, ...], holds: Callable[[int, int], bool]
) -> bool:
    """A label that is missing or not an integer satisfies neither Gt nor Lt."""
    have = None if value is None else _int64(value)
    bound = _int64(bounds[0]) if len(bounds) == 1 else None
    return have is not None and bound is not None and holds(have, bound)


def _field_holds(requirement: NodeSelectorRequirement, node_name: str) -> bool:
    """Fields other than the name read as empty text, they are not an error."""
    have = node_name if requirement.key == FIELD_NODE_NAME else ""
    return (have in requirement.values) == (requirement.operator == "In")


def _term_problems(term: NodeSelectorTerm, path: str) -> list[str]:
    faults: list[str] = []
    for index, requirement in enumerate(term.match_expressions):
        faults += _label_problems(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        faults += _field_problems(requirement, f"{path}.matchFields[{index}]")
    return faults


def _label_problems(requirement: NodeSelectorRequirement, path: str) -> list[str]:
    operator, values = requirement.operator, requirement.values
    if operator not in _OPERATORS:
        known = ", ".join(_OPERATORS)
        return [f"{path}.operator: {operator!r} is unknown; known: {known}"]

    faults = [f"{path}.key: {reason}" for reason in _key_problems(requirement.key)]
    count_problem = _count_problem(operator, len(values))
    if count_problem:
        faults.append(f"{path}.values: {operator} {count_problem}")

    if operator in _COMPARISONS:
        for index, value in enumerate(values):
            if _int64(value) is None:
                faults.append(f"{path}.values[{index}]: {value!r} is not a 64-bit integer")

    # Label rules apply to bounds, too: a negative bound is refused although it is an integer.
    for index, value in enumerate(values):
        if not _can_be_label_value(value):
            faults.append(f"{path}.values[{index}]: {value!r} cannot be a label value")
    return faults


def _count_problem(operator: str, count: int) -> str:
    """What is wrong with the number of values for a known operator; empty if nothing is."""
    if operator in _COMPARISONS:
        return "" if count == 1 else f"needs exactly one value, has {count}"
    if operator in _PRESENCE_TESTS:
        return f"takes no values, has {count}" if count else ""
    return "" if count else "needs at least one value"


def _can_be_label_value(value: str) -> bool:
    if not value:
        return True
    if len(value) > MAX_LABEL_LENGTH:
        return False
    return _LABEL_NAME.fullmatch(value) is not None


def _field_problems(requirement: NodeSelectorRequirement, path: str) -> list[str]:
    if requirement.operator not in ("In", "NotIn"):
        return [
            f"{path}.operator: {requirement.operator!r} does not apply to fields; known: In, NotIn"
        ]
    if len(requirement.values) != 1:
        return [f"{path}.values: fields need exactly one value, has {len(requirement.values)}"]
    return []


def _key_problems(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    if len(name) > MAX_LABEL_LENGTH or not _LABEL_NAME.fullmatch(name):
        return [
            f"{key!r} cannot be a label key: the name must be 1-{MAX_LABEL_LENGTH} of A-Z a-z 0-9 - _ ."
        ]
    if slash and not _is_dns_subdomain(prefix):
        return [f"{key!r} cannot be a label key: {prefix!r} is not a DNS subdomain"]
    return []


def _is_dns_subdomain(text: str) -> bool:
    return len(text) <= MAX_PREFIX_LENGTH and all(
        _DNS_LABEL.fullmatch(part) for part in text.split(".")
    )


def _int64(text: str) -> int | None:
    """The integer as Go's strconv reads it: an optional sign, ASCII digits, 64 bits."""
    parts = _DECIMAL.fullmatch(text)
    # 19 digits hold any int64; checked before int() so that very long text costs nothing.
    if parts is None or len(parts[2]) > 19:
        return None
    number = int(parts[1] + parts[2])
    return number if INT64_MIN <= number <= INT64_MAX else None
