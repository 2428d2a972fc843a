"""Only the instance that leads writes.

The store has one line of history, so there are no clocks to compare: at the revision of each write of ours, the lease
as it stood there must have been taken by the user who wrote. Writes before the first lease are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.faults.checker_scene import Judge, Scene, Step, Violation
from tests.faults.records import Tree

WRITES: Final = ("resourceclaims", "pods")


class Leaders:
    """Follows the lease."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._has_lease = False
        self._leader = ""

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges our writes by who leads."""
        if step.revision.writer not in self._judge.ours:
            return
        if step.revision.kind == "leases":
            self._has_lease = True
            if _holder(step.before) != _holder(step.after):
                self._leader = step.revision.writer if _holder(step.after) else ""
        elif (
            step.revision.kind in WRITES
            and self._has_lease
            and step.revision.writer != self._leader
        ):
            who = f"{self._leader} leads" if self._leader else "no instance leads"
            yield step.violates("two leaders", f"written by {step.revision.writer} while {who}")

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing."""
        return iter(())


def _holder(lease: Tree | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
