"""What an answer may look at: the cluster at one version, and what the asking user may see of it.

The engine needs all objects, so the view is never reduced: an answer leaves out what `may` does not allow. Never
waits for anything, never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from dovetail.kubetypes import registry
from dovetail.web import problems

if TYPE_CHECKING:
    from dovetail.answer.cost.cost_ledger import Question
    from dovetail.answer.cost.price_list import PriceList
    from dovetail.answer.replica.replica import Replica
    from dovetail.ask.cluster_view import View
    from dovetail.ask.recorded_history import Account
    from dovetail.model import policy
    from dovetail.model.accounting.records import Millis

T = TypeVar("T")

POD: Final = registry.POD.unique_name


class Visibility(msgspec.Struct, frozen=True):
    """What one user may list, by the unique names of kinds: what is not in here stays hidden."""

    sees_everything: bool = False
    everywhere: frozenset[str] = frozenset()  # kinds without namespaces, or in all of them
    in_namespaces: frozenset[tuple[str, str]] = frozenset()  # kind and namespace

    @property
    def sees_all(self) -> bool:
        """Whether the user may list the pods of every namespace."""
        return self.lists(POD)

    def lists(self, kind: str, namespace: str = "") -> bool:
        """Whether the user may list a kind: in the namespace, or in all of them where none is given."""
        if self.sees_everything or kind in self.everywhere:
            return True
        return (kind, namespace) in self.in_namespaces

    def see_namespace(self, namespace: str) -> bool:
        """Whether the user may list the pods of the namespace: without, nothing of it is shown."""
        return self.lists(POD, namespace)

    def sees(self, kind: str, namespace: str = "") -> bool:
        """Whether objects of the kind are shown: the user may list them, and the pods of their namespace."""
        is_open = not namespace or self.see_namespace(namespace)
        return is_open and self.lists(kind, namespace)

    def must_see(self, namespace: str, what: str) -> None:
        """Raises as if the object did not exist: its absence and a missing right must look alike."""
        if not self.see_namespace(namespace):
            raise problems.not_found(f"there is no {what} that you may see")


EVERYTHING: Final = Visibility(sees_everything=True)


class Frame(Protocol):
    """The cluster at one version, shared by all users."""

    @property
    def view(self) -> View: ...

    @property
    def version(self) -> int: ...

    @property
    def policy(self) -> policy.Policy: ...

    def replica(self) -> Replica: ...

    def memo(self, key: Hashable, make: Callable[[], T]) -> T: ...


class Accounting(Protocol):
    """The records of GPU accounting, and prices. Reads them, on a worker thread."""

    def prices(self) -> PriceList: ...

    def until(self, now: Millis) -> Millis: ...

    def account(self, question: Question, now: Millis) -> Account: ...


class Asked:
    """One question's access to the cluster, and to what was recorded about it."""

    def __init__(
        self,
        frame: Frame,
        may: Visibility,
        *,
        has_replica: bool = True,
        accounting: Accounting | None = None,
    ) -> None:
        self.may = may
        self.accounting = accounting  # None: the dashboard was started without
        self._frame = frame
        self._has_replica = has_replica

    @property
    def view(self) -> View:
        """The objects, the time they show, and how the cluster is called."""
        return self._frame.view

    @property
    def version(self) -> int:
        """A number that grows with every change of the objects."""
        return self._frame.version

    @property
    def policy(self) -> policy.Policy:
        """The scheduler's policy, as far as it is known."""
        return self._frame.policy

    def replica(self) -> Replica:
        """The copy of the cluster that the engine is asked about. It belongs to this question until it is answered."""
        if not self._has_replica:
            raise RuntimeError("an endpoint marked is_quick has no replica")
        return self._frame.replica()

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time at this version, for all users: it must not depend on `may`."""
        return self._frame.memo(key, make)
