"""Priority classes as an API server reads them: the priority of a pod is its class's, decided when it is created.

Names without a class are refused, and so is a number in the pod that is not the class's. Two classes are there from the
beginning. Given objects as trees; never stores one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]
Misfit = tuple[str, str]  # a field, and what is wrong with it

KIND: Final = "PriorityClass"
VERSION: Final = "scheduling.k8s.io/v1"
PREEMPTS: Final = "PreemptLowerPriority"
POLICIES: Final = (PREEMPTS, "Never")
HIGHEST: Final = 1_000_000_000  # of a class that users may make
LOWEST: Final = -(2**31)
RESERVED: Final = "system-"  # names that begin so are Kubernetes' own
DECIDED_AT_CREATION: Final = ("priorityClassName", "priority", "preemptionPolicy")


class Standing(NamedTuple):
    """What a class gives its pods."""

    name: str
    value: int
    policy: str = PREEMPTS


BUILT_IN: Final = (
    Standing("system-cluster-critical", 2_000_000_000),
    Standing("system-node-critical", 2_000_001_000),
)
NO_CLASS: Final = Standing("", 0)


class Classes:
    """The classes of one cluster."""

    def __init__(self, trees: Iterable[Tree]) -> None:
        self._known = {one.name: one for one in BUILT_IN}
        self._defaults: list[Standing] = []
        for tree in trees:
            self.put(tree)

    def put(self, tree: Tree) -> None:
        """One more class, or the same with other facts."""
        policy = str(tree.get("preemptionPolicy") or PREEMPTS)
        standing = Standing(tree["metadata"]["name"], tree.get("value") or 0, policy)
        self._known[standing.name] = standing
        self._defaults = [one for one in self._defaults if one.name != standing.name]
        if tree.get("globalDefault"):
            self._defaults.append(standing)

    def misfits(self, tree: Tree, before: Tree | None) -> list[Misfit]:
        """What is wrong with a class that is created, or changed."""
        name, value = str(tree["metadata"]["name"]), tree.get("value") or 0  # none is 0, as an API server reads it
        policy = tree.get("preemptionPolicy") or PREEMPTS
        found: list[Misfit] = []
        if tree.get("apiVersion") != VERSION:
            found.append(("apiVersion", f'expected "{VERSION}", got "{tree.get("apiVersion")}"'))
        if not isinstance(value, int) or isinstance(value, bool):
            found.append(("value", f"expected a whole number, got {value!r}"))
        elif Standing(name, value, policy) in BUILT_IN:
            return found
        elif not LOWEST <= value <= HIGHEST:
            found.append(("value", f"must be between {LOWEST} and {HIGHEST}; higher ones are the system's own"))
        if name.startswith(RESERVED):
            found.append(("metadata.name", f'names that begin with "{RESERVED}" are the system\'s own'))
        if policy not in POLICIES:
            found.append(("preemptionPolicy", f"expected one of {', '.join(POLICIES)}, got {policy!r}"))
        others = [one.name for one in self._defaults if one.name != name]
        if tree.get("globalDefault") and others:
            found.append(("globalDefault", f"PriorityClass {others[0]} is the default already; only one can be"))
        if before is not None:
            found += [
                (field, "may not be changed: make a class of another name")
                for field, default in (("value", None), ("preemptionPolicy", PREEMPTS))
                if (tree.get(field) or default) != (before.get(field) or default)
            ]
        return found

    def admitted(self, spec: Mapping[str, Any]) -> Tree | Misfit:
        """The spec of a new pod with its priority, or what is wrong with it."""
        name = str(spec.get("priorityClassName") or "")
        standing = self._known.get(name) if name else self._default()
        if standing is None:
            return "priorityClassName", f'no PriorityClass is named "{name}"; apply one, or name another'
        stated = spec.get("priority")
        source = f"PriorityClass {standing.name}" if standing.name else "no PriorityClass"
        if stated is not None and stated != standing.value:
            return "priority", (
                f"leave it out: with {source} it is {standing.value}, not {stated}; a PriorityClass sets another"
            )
        policy = spec.get("preemptionPolicy")
        if policy is not None and policy != standing.policy:
            return "preemptionPolicy", f"leave it out: with {source} it is {standing.policy}, not {policy}"
        filled: Tree = {"priority": standing.value, "preemptionPolicy": standing.policy}
        if standing.name:
            filled["priorityClassName"] = standing.name
        return {**spec, **filled}

    def _default(self) -> Standing:
        """The class of pods that name none; of several, which only an older state can hold, the lowest."""
        return min(self._defaults, key=lambda one: (one.value, one.name), default=NO_CLASS)


def changed(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Misfit]:
    """What a change of a pod may not touch: its priority was decided when it was created."""
    return [
        (field, "may not be changed: it was decided when the pod was created")
        for field in DECIDED_AT_CREATION
        if field in old and new.get(field) != old[field]
    ]
