"""The cluster at one revision, as the checker keeps it: objects by kind, since when they are so, and small readings.

Written for the checker alone, on plain trees. Never judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.faults.records import Revision, Tree

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
TERMINAL: Final = ("Succeeded", "Failed")

DeviceKey = tuple[str, str, str]  # driver, pool, device


class Violation(NamedTuple):
    """The name of the rule, the revision at which it broke, and how."""

    rule: str
    revision: int
    text: str


class Bounds(NamedTuple):
    """Seconds that a scheduler is given."""

    visible: float = 10.0  # to see and act on what others wrote
    hold: float = 60.0  # to clean up, with the controllers' help
    gang: float = 40.0  # to start all of a gang or none: 30 s for a new leader, and the time it takes to be one

    def stretched(self, factor: float) -> Bounds:
        """For a machine that was this much slower than a free core."""
        return Bounds(self.visible * factor, self.hold * factor, self.gang * factor)


class Judge(NamedTuple):
    """Whom the run is held against."""

    ours: frozenset[str]  # users, one per instance
    schedulers: frozenset[str] = frozenset({"dovetail"})  # scheduler names that pods ask for

    def is_ours(self, pod: Tree) -> bool:
        """Whether the pod asks for us."""
        return pod["spec"].get("schedulerName") in self.schedulers


class Step(NamedTuple):
    """One revision and the object around it."""

    revision: Revision
    before: Tree | None
    after: Tree | None

    @property
    def object(self) -> Tree:
        """The object, wherever it is."""
        return self.revision.object

    def violates(self, rule: str, text: str) -> Violation:
        """A violation at this revision."""
        return Violation(
            rule, self.revision.number, f"{self.revision.kind} {self.revision.key}: {text}"
        )


class Scene:
    """All objects after the revisions so far."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Tree]] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._pods: dict[str, Tree] = {}

    def apply(self, revision: Revision) -> Step:
        """One revision further."""
        kept = self._objects.setdefault(revision.kind, {})
        before = kept.pop(revision.key, None)
        after = None if revision.is_deleted else revision.object
        if after is not None:
            kept[revision.key] = after
        if before is None or after is None or before.get("spec") != after.get("spec"):
            self._since[revision.kind, revision.key] = revision.seconds
        if revision.kind == "pods":
            self._follow(before, after)
        return Step(revision, before, after)

    def _follow(self, before: Tree | None, after: Tree | None) -> None:
        if before is not None:
            self._pods.pop(uid_of(before), None)
        if after is not None:
            self._pods[uid_of(after)] = after

    def all(self, kind: str) -> Iterable[Tree]:
        """Every object of a kind."""
        return self._objects.get(kind, {}).values()

    def items(self, kind: str) -> Iterable[tuple[str, Tree]]:
        """Every object of a kind with its key."""
        return self._objects.get(kind, {}).items()

    def get(self, kind: str, key: str) -> Tree | None:
        """One object, if it is there."""
        return self._objects.get(kind, {}).get(key)

    def since(self, kind: str, key: str) -> float:
        """When the object got its spec, or went away; the beginning of time if it never was."""
        return self._since.get((kind, key), float("-inf"))

    def pod(self, uid: str) -> Tree | None:
        """The pod of that identity, if it is there."""
        return self._pods.get(uid)


def uid_of(tree: Tree) -> str:
    """The object's identity."""
    return str(tree["metadata"]["uid"])


def key_of(tree: Tree) -> str:
    """Namespace and name."""
    meta = tree["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def node_of(pod: Tree | None) -> str:
    """Where the pod is bound, "" where it is not."""
    return str(((pod or {}).get("spec") or {}).get("nodeName") or "")


def is_over(pod: Tree) -> bool:
    """Whether the pod has ended and holds nothing any more."""
    return (pod.get("status") or {}).get("phase") in TERMINAL


def allocation_of(claim: Tree | None) -> Tree | None:
    """What the claim holds."""
    tree: Tree | None = ((claim or {}).get("status") or {}).get("allocation")
    return tree


def results_of(claim: Tree | None) -> list[Tree]:
    """The devices the claim holds, those of administrators included."""
    trees: list[Tree] = ((allocation_of(claim) or {}).get("devices") or {}).get("results") or []
    return trees


def users_of(claim: Tree | None) -> dict[str, str]:
    """The pods the claim is reserved for: name by identity."""
    listed = ((claim or {}).get("status") or {}).get("reservedFor") or ()
    return {item["uid"]: item["name"] for item in listed if item.get("resource") == "pods"}


def has_finalizer(claim: Tree) -> bool:
    """Whether the claim is kept from vanishing while it is allocated."""
    return FINALIZER in (claim["metadata"].get("finalizers") or ())


def owner_of(claim: Tree) -> str:
    """The identity of the pod that the claim was made for, "" for a claim of its own."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Pod" and owner.get("controller"):
            return str(owner["uid"])
    return ""


def device_of(result: Tree) -> DeviceKey:
    """Which device an allocation names."""
    return result["driver"], result["pool"], result["device"]


def claims_of(pod: Tree) -> Iterator[tuple[str, str | None]]:
    """The claims a pod uses: its own name for it, and the claim's; None while no claim has been made."""
    status = pod.get("status") or {}
    made = {
        item["name"]: item.get("resourceClaimName")
        for item in status.get("resourceClaimStatuses") or ()
    }
    for expected in pod["spec"].get("resourceClaims") or ():
        name = expected["name"]
        if expected.get("resourceClaimName"):
            yield name, expected["resourceClaimName"]
        elif name not in made or made[name]:  # made, and yet nothing: the template needs no claim
            yield name, made.get(name)
    extended = status.get("extendedResourceClaimStatus")
    if extended:
        yield "extended resources", extended.get("resourceClaimName")


def tolerates(tolerations: Iterable[Tree], taint: Tree) -> bool:
    """Whether any toleration accepts the taint, on nodes and devices alike."""
    return any(_accepts(toleration, taint) for toleration in tolerations)


def _accepts(toleration: Tree, taint: Tree) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get(
        "value", ""
    )
