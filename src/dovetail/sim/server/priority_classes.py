"""An API server's rules for priority classes: a pod gets the priority of its class when it is created.

Refuses unknown class names, and priorities in pods that differ from the class's. Two classes are built in. Given
objects as trees; never stores one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]
Misfit = tuple[str, str]  # a field, and what is wrong with it

KIND: Final = "PriorityClass"
VERSION: Final = "scheduling.k8s.io/v1"
PREEMPTS: Final = "PreemptLowerPriority"
POLICIES: Final = (PREEMPTS, "Never")
HIGHEST: Final = 1_000_000_000  # of a class that users may create
LOWEST: Final = -(2**31)
RESERVED: Final = "system-"  # prefix of Kubernetes' own classes
CREATE_ANOTHER: Final = "may not be changed: create a class with another name"


class Priority(NamedTuple):
    """The priority and preemption policy that a class gives its pods."""

    name: str
    value: int
    policy: str = PREEMPTS


BUILT_IN: Final = (
    Priority("system-cluster-critical", 2_000_000_000),
    Priority("system-node-critical", 2_000_001_000),
)
_DESCRIPTIONS: Final = (
    "For pods without which the cluster does not work, on whichever node they run.",
    "For pods without which their node does not work.",
)
NO_CLASS: Final = Priority("", 0)


def system_trees() -> Iterator[Tree]:
    """The built-in classes as objects, which an API server creates when it starts."""
    for priority_class, description in zip(BUILT_IN, _DESCRIPTIONS, strict=True):
        yield {
            "apiVersion": VERSION,
            "kind": KIND,
            "metadata": {"name": priority_class.name},
            "value": priority_class.value,
            "preemptionPolicy": priority_class.policy,
            "description": description,
        }


def is_system(name: str) -> bool:
    """Whether a class is built in."""
    return any(priority_class.name == name for priority_class in BUILT_IN)


def refusal(spec: Mapping[str, Any], standing: Priority) -> str:
    """Why a new pod is forbidden that states another priority or policy than its class; empty if it does not.

    In the words of kube-apiserver's Priority plugin.
    """
    for field, what, computed in (
        ("priority", "integer value of priority", standing.value),
        ("preemptionPolicy", "string value of PreemptionPolicy", standing.policy),
    ):
        if spec.get(field) not in (None, computed):
            return (
                f"the {what} ({spec[field]}) must not be provided in pod spec; priority "
                f"admission controller computed {computed} from the given PriorityClass name"
            )
    return ""


class Classes:
    """The classes of one cluster."""

    def __init__(self, trees: Iterable[Tree]) -> None:
        self._known = {priority_class.name: priority_class for priority_class in BUILT_IN}
        self._defaults: list[Priority] = []
        for tree in trees:
            self.put(tree)

    def put(self, tree: Tree) -> None:
        """Adds a class, or replaces it."""
        policy = str(tree.get("preemptionPolicy") or PREEMPTS)
        standing = Priority(tree["metadata"]["name"], tree.get("value") or 0, policy)
        self._known[standing.name] = standing
        self._defaults = [default for default in self._defaults if default.name != standing.name]
        if tree.get("globalDefault"):
            self._defaults.append(standing)

    def find(self, name: str) -> Priority | None:
        """The class of a name."""
        return self._known.get(name)

    def misfits(self, tree: Tree, before: Tree | None) -> list[Misfit]:
        """The problems of a class that is created or changed."""
        misfits: list[Misfit] = []
        if tree.get("apiVersion") != VERSION:
            misfits.append(("apiVersion", f'expected "{VERSION}", got "{tree.get("apiVersion")}"'))

        name, value, policy = _facts(tree)
        if type(value) is int and (name, value, policy) in BUILT_IN:
            return misfits
        misfits += _field_misfits(name, value, policy)

        other_defaults = [default.name for default in self._defaults if default.name != name]
        if tree.get("globalDefault") and other_defaults:
            problem = f"PriorityClass {other_defaults[0]} is the default already; only one can be"
            misfits.append(("globalDefault", problem))
        if before is not None:
            misfits += _change_misfits(tree, before)
        return misfits

    def default(self) -> Priority:
        """The class of pods that name none; of several, which only an old state can hold, the lowest."""
        return min(
            self._defaults, key=lambda default: (default.value, default.name), default=NO_CLASS
        )


def _facts(tree: Tree) -> tuple[str, Any, Any]:
    """Name, value and policy, with an API server's defaults."""
    name = str(tree["metadata"]["name"])
    return name, tree.get("value") or 0, tree.get("preemptionPolicy") or PREEMPTS


def _field_misfits(name: str, value: Any, policy: Any) -> Iterator[Misfit]:
    if type(value) is not int:
        yield "value", f"expected a whole number, got {value!r}"
    elif not LOWEST <= value <= HIGHEST:
        yield "value", f"must be between {LOWEST} and {HIGHEST}; higher ones are the system's own"
    if name.startswith(RESERVED):
        yield "metadata.name", f'names that begin with "{RESERVED}" are the system\'s own'
    if policy not in POLICIES:
        yield "preemptionPolicy", f"expected one of {', '.join(POLICIES)}, got {policy!r}"


def _change_misfits(tree: Tree, before: Tree) -> Iterator[Misfit]:
    _, value, policy = _facts(tree)
    _, old_value, old_policy = _facts(before)
    if value != old_value:
        yield "value", CREATE_ANOTHER
    if policy != old_policy:
        yield "preemptionPolicy", CREATE_ANOTHER
