"""What an image requires of its host by NVIDIA_REQUIRE_*, and whether a host meets it: the container toolkit's grammar.

Given environment variables and a host's properties. A requirement is alternatives separated by spaces, each a list of
conditions separated by commas; several variables must all be met. Only cuda, driver, arch and brand count, conditions
on anything else are skipped. A property that is not known makes the answer unknown where it matters, never a pass.
Never reads an image.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail import cache
from dovetail.quantity import module_versions

CUDA, DRIVER, ARCH, BRAND = "cuda", "driver", "arch", "brand"
VERSION_PROPERTIES: Final = (CUDA, DRIVER, ARCH)
PROPERTIES: Final = (*VERSION_PROPERTIES, BRAND)

PREFIX: Final = "NVIDIA_REQUIRE_"
REQUIRE_CUDA: Final = f"{PREFIX}CUDA"
JETPACK_PREFIX: Final = f"{PREFIX}JETPACK"  # of Tegra boards; the toolkit passes over it
DISABLE: Final = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION: Final = "CUDA_VERSION"

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))  # Go's strconv.ParseBool
# What Go's strings.TrimSpace takes away.
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_FIRST_OF_OPERATOR: Final = re.compile("[<>=!]")
_OPERATORS: Final = ("!=", "<=", ">=", "=", "<", ">")  # in the order in which they are tried
_LARGEST_NUMBER: Final = (1 << 32) - 1  # of CUDA_VERSION in the toolkit
_MEMO: Final = 1024


class State(enum.Enum):
    """Whether a requirement is met."""

    MET = "met"
    UNMET = "unmet"
    UNKNOWN = "unknown"  # it depends on a property that is not known
    INVALID = "invalid"  # the toolkit refuses to start such a container


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One comparison, such as driver<536. An operator that the toolkit does not know is empty: never met."""

    property: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.property}{self.operator}{self.value}"


Alternative = tuple[Condition, ...]  # all of them must hold


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """The value of one variable: one of the alternatives must hold; without any it is met."""

    alternatives: tuple[Alternative, ...]


class InvalidRequirement(msgspec.Struct, frozen=True, gc=False):
    """A value that the toolkit cannot read."""

    problem: str


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The answer for one host: the alternatives that met the requirements, or what kept them from being met."""

    state: State
    met_by: tuple[Alternative, ...] = ()  # one per requirement that has conditions
    problem: str = ""


def requirements_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The texts that the toolkit evaluates for a container with these variables, in the order of their names."""
    if environment.get(DISABLE, "") in _TRUE:
        return ()
    texts = [
        environment[name]
        for name in sorted(environment)
        if name.startswith(PREFIX) and not name.startswith(JETPACK_PREFIX)
    ]
    # Images of CUDA 9 and older state only the version.
    version = environment.get(CUDA_VERSION, "")
    if version and not environment.get(REQUIRE_CUDA, ""):
        texts.append(f"{CUDA}>={_major_minor(version)}")
    return tuple(texts)


def evaluate(texts: Sequence[str], properties: Mapping[str, str | None]) -> Outcome:
    """Whether a host meets all requirements. A property that is absent or None is not known."""
    requirements = [parse(text) for text in texts]
    for requirement in requirements:
        if isinstance(requirement, InvalidRequirement):
            return Outcome(State.INVALID, problem=requirement.problem)

    met_by: list[Alternative] = []
    is_unknown = False
    for requirement in requirements:
        assert isinstance(requirement, Requirement)
        outcome = _requirement(requirement, properties)
        if outcome.state is State.UNMET:
            return outcome
        is_unknown |= outcome.state is State.UNKNOWN
        met_by += outcome.met_by
    if is_unknown:
        missing = [name for name in PROPERTIES if properties.get(name) is None]
        return Outcome(State.UNKNOWN, problem=f"not known: {', '.join(missing)}")
    return Outcome(State.MET, tuple(met_by))


@cache.remembered(_MEMO)
def parse(text: str) -> Requirement | InvalidRequirement:
    """The requirement a text spells, or what is wrong with it; remembers recent texts."""
    if not text.strip(_SPACE):
        return Requirement(())
    alternatives: list[Alternative] = []
    for term in text.split(" "):
        conditions: list[Condition] = []
        for factor in term.split(","):
            condition = _condition(factor)
            if isinstance(condition, InvalidRequirement):
                return condition
            if condition is not None:
                conditions.append(condition)
        if conditions:
            alternatives.append(tuple(conditions))
    return Requirement(tuple(alternatives))


def _condition(factor: str) -> Condition | InvalidRequirement | None:
    """One condition; None for an empty one and for a property that does not count."""
    if not factor.strip(_SPACE):
        return None
    start = _FIRST_OF_OPERATOR.search(factor)
    if start is None:
        return InvalidRequirement(f"invalid constraint: {factor}")
    name, comparison = factor[: start.start()], factor[start.start() :]
    if name not in PROPERTIES:
        return None
    operator = next((sign for sign in _OPERATORS if comparison.startswith(sign)), "")
    value = comparison.removeprefix(operator)
    if name in VERSION_PROPERTIES and not module_versions.is_valid(value):
        return InvalidRequirement(f"{factor}: {value!r} is not a version such as 12.9")
    return Condition(name, operator, value)


def _requirement(requirement: Requirement, properties: Mapping[str, str | None]) -> Outcome:
    if not requirement.alternatives:
        return Outcome(State.MET)
    is_unknown = False
    for alternative in requirement.alternatives:
        states = {_holds(condition, properties) for condition in alternative}
        if State.UNMET in states:
            continue
        if State.UNKNOWN in states:
            is_unknown = True
            continue
        return Outcome(State.MET, (alternative,))
    if is_unknown:
        return Outcome(State.UNKNOWN)
    return Outcome(State.UNMET, problem=_unmet(requirement, properties))


def _holds(condition: Condition, properties: Mapping[str, str | None]) -> State:
    value = properties.get(condition.property)
    if value is None:
        return State.UNKNOWN
    order = _order(condition, value)
    is_met = {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
        "": False,
    }[condition.operator]
    return State.MET if is_met else State.UNMET


def _order(condition: Condition, value: str) -> int:
    if condition.property in VERSION_PROPERTIES:
        return module_versions.compare(value, condition.value)
    ours, theirs = value.encode(), condition.value.encode()  # Go compares bytes
    return (ours > theirs) - (ours < theirs)


def _unmet(requirement: Requirement, properties: Mapping[str, str | None]) -> str:
    first = ",".join(map(str, requirement.alternatives[0]))
    others = len(requirement.alternatives) - 1
    has = ", ".join(f"{name} {value}" for name in PROPERTIES if (value := properties.get(name)))
    either = f" or one of {others} other alternatives" if others else ""
    return f"needs {first}{either}; the host has {has or 'none of it'}"


def _major_minor(version: str) -> str:
    """The first two numbers of CUDA_VERSION; what the toolkit cannot read stays, and is invalid."""
    text = module_versions.major_minor(version)
    is_small = all(
        len(number) <= len(str(_LARGEST_NUMBER)) and int(number) <= _LARGEST_NUMBER
        for number in text.split(".")
        if number
    )
    return text if text and is_small else f"?{version}"
