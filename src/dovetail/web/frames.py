"""The cluster at one version, as all answers of that version share it: sorted objects, one replica, memos.

Given captures of a source. Sorts only the kinds that changed, and brings the one replica up to date by what changed.
The current frame is chosen on the event loop; its parts are made on worker threads when first asked for. Never reads a
cluster.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dovetail.ask import cluster_view, replicas, scheduler_policy
from dovetail.kubetypes import registry
from dovetail.live.intents import stored_promises
from dovetail.web import problems
from dovetail.web.source import captures

if TYPE_CHECKING:
    from dovetail.answer.replica.replica import Edit, Replica
    from dovetail.model import policy

T = TypeVar("T")

# Time alone changes answers, too: work that runs longer than it stated, a promise that comes due.
LONGEST_SECONDS: Final = 15.0
NOT_READ_SECONDS: Final = 1.0
_POD: Final = registry.POD.unique_name
_NAMESPACE: Final = registry.NAMESPACE.unique_name


# Unique names of kinds that have objects, each with their namespaces. Of pods: all namespaces that exist.
Places = tuple[tuple[str, frozenset[str]], ...]


class Frame:
    """Implements `asked.Frame`."""

    def __init__(self, keeper: FrameKeeper, capture: captures.Capture, slot: int) -> None:
        self.version = capture.version
        self.as_of = capture.now
        self.slot = slot  # grows while the objects stay and time goes by
        self.answers: dict[Hashable, Any] = {}  # kept by the application, on the event loop
        self._keeper = keeper
        self._capture = capture
        self._view: cluster_view.View | None = None
        self._places: Places | None = None
        self._lock = threading.Lock()
        self._memos: dict[Hashable, _Memo] = {}

    @property
    def places(self) -> Places:
        """Which kinds have objects, and in which namespaces. Asked for on the event loop."""
        if self._places is None:
            self._places = self._keeper.places_of(self._capture)
        return self._places

    @property
    def view(self) -> cluster_view.View:
        """The objects, sorted when first asked for."""
        with self._lock:
            if self._view is None:
                tables = self._keeper.sorted_tables(self._capture)
                self._view = captures.view_of(self._capture, self._keeper.source, tables)
            return self._view

    @property
    def policy(self) -> policy.Policy:
        """The configured policy, or what is known without."""
        return self._keeper.policy or scheduler_policy.default(self.view)

    def replica(self) -> Replica:
        """The one replica, brought to this version. Only one thread may ask."""
        return self._keeper.replica_at(self.view, self.policy)

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time."""
        with self._lock:
            memo = self._memos.setdefault(key, _Memo())
        with memo.lock:
            if not memo.is_made:
                memo.value = make()
                memo.is_made = True
            value: T = memo.value
            return value


class _Memo:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_made = False
        self.value: Any = None


class FrameKeeper:
    """The newest frame of a source."""

    def __init__(self, source: captures.Source, policy_: policy.Policy | None = None) -> None:
        self.source = source
        self.policy = policy_
        self._frame: Frame | None = None
        self._sorted: dict[str, tuple[captures.Table, captures.Table]] = {}
        self._sorting = threading.Lock()
        self._places: dict[str, tuple[captures.Table, frozenset[str]]] = {}
        self._replica: Replica | None = None
        self._replicated: cluster_view.View | None = None

    def current(self) -> Frame:
        """The frame of now. Raises a refusal while the cluster was not read yet."""
        frame = self._frame
        version = self.source.feed.version
        if frame is not None and frame.version == version and not self._is_old(frame):
            return frame
        capture = self.source.capture()
        if capture is None:
            raise problems.unavailable(
                f"the cluster is being read: {self.source.trouble() or 'not complete yet'}",
                retry_after=NOT_READ_SECONDS,
            )
        slot = frame.slot + 1 if frame is not None and frame.version == capture.version else 0
        self._frame = Frame(self, capture, slot)
        return self._frame

    def _is_old(self, frame: Frame) -> bool:
        if self.source.kind == "snapshot":
            return False
        age = datetime.datetime.now(datetime.UTC) - frame.as_of
        return age.total_seconds() >= LONGEST_SECONDS

    def sorted_tables(self, capture: captures.Capture) -> dict[str, captures.Table]:
        """The tables by namespace and name, as an ObjectSet holds them."""
        with self._sorting:
            for kind, table in capture.by_kind.items():
                known = self._sorted.get(kind)
                if known is None or known[0] is not table:
                    self._sorted[kind] = (table, dict(sorted(table.items())))
            return {kind: self._sorted[kind][1] for kind in capture.by_kind}

    def places_of(self, capture: captures.Capture) -> Places:
        """Where the objects of the capture are. Looks only at kinds that changed."""
        places: dict[str, frozenset[str]] = {}
        for kind, table in capture.by_kind.items():
            known = self._places.get(kind)
            if known is None or known[0] is not table:
                namespaces = frozenset(key.namespace for key in table)
                is_same = known is not None and known[1] == namespaces
                # The same set as before: what is kept by it is found at once.
                known = (table, known[1] if known is not None and is_same else namespaces)
                self._places[kind] = known
            for key in table:  # kinds of other projects have longer names in keys
                places[key.kind] = known[1]
                break
        existing = frozenset(key.name for key in capture.by_kind.get(_NAMESPACE, ()))
        places[_POD] = places.get(_POD, frozenset()) | existing
        return tuple(sorted(places.items(), key=lambda each: each[0]))

    def replica_at(self, view: cluster_view.View, policy_: policy.Policy) -> Replica:
        """The replica with the objects and the time of the view."""
        replica, before = self._replica, self._replicated
        self._replica = None  # should this fail half-way, the next question begins again
        if replica is None or before is None:
            replica = replicas.replica_of(view, policy_)
        elif before is not view:
            replica.follow(
                _edits(before, view),
                view.now,
                promises=stored_promises.promises_of(view.objects),
            )
        self._replica, self._replicated = replica, view
        return replica


def _edits(before: cluster_view.View, after: cluster_view.View) -> Iterator[Edit]:
    """What changed between two views. Looks at changed kinds only."""
    from dovetail.answer.replica.replica import Edit

    old_tables, new_tables = before.objects.by_kind, after.objects.by_kind
    for kind in old_tables.keys() | new_tables.keys():
        old, new = old_tables.get(kind, {}), new_tables.get(kind, {})
        if old is new:
            continue
        for key in old:
            if key not in new:
                yield Edit(key, None)
        for key, stored in new.items():
            if old.get(key) is not stored:
                yield Edit(key, stored)
