"""Nothing is held without a user: conditions that may last a moment, and not longer than a bound.

Each condition is a clock per claim that starts when it begins to hold; one that runs past the bound is a violation,
whether it stopped later or still runs at the end. At the end, too: every pod is placed, or its condition says why not.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults import checker_scene
from tests.faults.checker_scene import Bounds, Judge, Scene, Step, Violation
from tests.faults.records import Tree


class Leaks:
    """The clocks."""

    def __init__(self, judge: Judge, bounds: Bounds) -> None:
        self._judge = judge
        self._bounds = bounds
        self._ours: set[str] = set()  # claims, by key, whose allocation we wrote
        self._running: dict[
            str, dict[tuple[str, str], tuple[float, int]]
        ] = {}  # claim -> condition -> since

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Starts and stops clocks."""
        if step.revision.kind == "resourceclaims":
            self._sign(step)
            yield from self._timed(step.revision.key, step.after, step=step, scene=scene)
        if step.revision.kind == "pods" and _changes_life(step):
            uid = checker_scene.uid_of(step.object)
            for key, claim in scene.items("resourceclaims"):
                if uid in checker_scene.users_of(claim) or checker_scene.owner_of(claim) == uid:
                    yield from self._timed(key, claim, step=step, scene=scene)

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Clocks that still run, and pods left without an answer."""
        for key, running in self._running.items():
            for condition, (since, number) in running.items():
                if seconds - since > self._bounds.hold:
                    yield _overdue(key, condition, number=number, seconds=seconds - since)
        for pod in scene.all("pods"):
            if self._judge.is_ours(pod) and _is_unexplained(pod):
                text = f"pods {checker_scene.key_of(pod)}: neither bound nor with a reason why not"
                yield Violation("unexplained", 0, text)

    def open(self) -> int:
        """How many clocks run: none in a cluster at rest."""
        return sum(len(running) for running in self._running.values())

    def _sign(self, step: Step) -> None:
        before, after = (checker_scene.allocation_of(item) for item in (step.before, step.after))
        if not after:
            self._ours.discard(step.revision.key)
        elif not before and step.revision.writer in self._judge.ours:
            self._ours.add(step.revision.key)

    def _timed(
        self, key: str, claim: Tree | None, *, step: Step, scene: Scene
    ) -> Iterator[Violation]:
        holds = set(self._conditions(key, claim, scene)) if claim is not None else set()
        running = self._running.setdefault(key, {})
        for condition in [item for item in running if item not in holds]:
            since, _ = running.pop(condition)
            if step.revision.seconds - since > self._bounds.hold:
                lasted = step.revision.seconds - since
                yield _overdue(key, condition, number=step.revision.number, seconds=lasted)
        for condition in holds:
            running.setdefault(condition, (step.revision.seconds, step.revision.number))

    def _conditions(self, key: str, claim: Tree, scene: Scene) -> Iterator[tuple[str, str]]:
        """The rule that would be broken, and how."""
        users, owner = checker_scene.users_of(claim), checker_scene.owner_of(claim)
        if checker_scene.allocation_of(claim) and not users and key in self._ours:
            yield "unreserved", "allocated, and reserved for no pod"
        for uid, name in users.items():
            pod = scene.pod(uid)
            if pod is None:
                yield "leaked", f"reserved for pod {name}, which is gone"
            elif (
                self._judge.is_ours(pod)
                and not checker_scene.node_of(pod)
                and not checker_scene.is_over(pod)
            ):
                yield "hoarded", f"reserved for pod {name}, which is not bound"
        if checker_scene.has_finalizer(claim):
            if owner and scene.pod(owner) is None:
                yield "leaked", "kept by its finalizer after its pod went"
            if claim["metadata"].get("deletionTimestamp") and not users:
                yield "leaked", "deleted, used by no pod, and kept by its finalizer"


def _changes_life(step: Step) -> bool:
    """Whether the pod came, went, ended or got its node."""
    if step.before is None or step.after is None:
        return True
    before, after = (
        (checker_scene.uid_of(item), checker_scene.node_of(item), checker_scene.is_over(item))
        for item in (step.before, step.after)
    )
    return before != after


def _overdue(key: str, condition: tuple[str, str], *, number: int, seconds: float) -> Violation:
    rule, text = condition
    return Violation(rule, number, f"resourceclaims {key}: {text} for {seconds:.0f} s")


def _is_unexplained(pod: Tree) -> bool:
    if (
        checker_scene.node_of(pod)
        or checker_scene.is_over(pod)
        or pod["spec"].get("schedulingGates")
    ):
        return False
    if pod["metadata"].get("deletionTimestamp"):
        return False
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled":
            return not (condition["status"] == "False" and condition.get("reason"))
    return True
