"""The only memory of the pure core: bounded memos, all of them on one list.

The core answers from its arguments alone. Results it may need again are kept in a `Memo` (by key), in a `WeakMemo` (by
key, for as long as an owner such as a World lives) or behind `remembered` (a function of small values). There is one
eviction rule: least recently used first, down to a total weight. Forgetting entries costs time and never changes an
answer, except that a bounded decision which cannot continue where the last one stopped starts over.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - an owner
P = ParamSpec("P")
T = TypeVar("T")


MOST_POLICIES: Final = 4  # policies and budgets that one World is decided under at a time


class Memo(Generic[K, V]):
    """Values by key, up to a total weight and optionally a number of entries; the newest entry always stays.

    Values may grow while they are kept: give `weigh`, and the total is taken again whenever one is added.
    """

    def __init__(
        self,
        most_weight: int,
        *,
        most_entries: int | None = None,
        weigh: Callable[[V], int] | None = None,
    ) -> None:
        self._most_weight = most_weight
        self._most_entries = most_entries
        self._weigh = weigh
        self._entries: OrderedDict[K, tuple[V, int, object]] = OrderedDict()
        self._weight = 0
        _MEMOS.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def weight(self) -> int:
        """What all entries weigh. Linear in entries where values may grow."""
        if self._weigh is None:
            return self._weight
        return sum(map(self._weight_of, self._entries.values()))

    def get(self, key: K) -> V | None:
        """The value, which is now the most recently used; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        try:  # noqa: SIM105 - a context manager would cost every look-up
            self._entries.move_to_end(key)
        except KeyError:  # a caller in another thread has just evicted it; the value is as good
            pass
        return entry[0]

    def put(self, key: K, value: V, *, weight: int = 1, alive: object = None) -> None:
        """Keeps a value. Where the key holds an `id`, `alive` keeps the object, so that the id stays its own."""
        if _SWITCH.is_off:
            return
        self.drop(key)
        self._entries[key] = (value, weight, alive)
        self._weight += weight
        self._evict()

    def drop(self, key: K) -> None:
        """Forgets one entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]

    def items(self) -> list[tuple[K, V]]:
        """Keys and values, the least recently used first."""
        return [(key, entry[0]) for key, entry in self._entries.items()]

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self._weight = 0

    def _evict(self) -> None:
        excess = self.weight - self._most_weight
        while len(self._entries) > 1 and (excess > 0 or self._has_too_many()):
            _, entry = self._entries.popitem(last=False)
            excess -= self._weight_of(entry)
            self._weight -= entry[1]

    def _has_too_many(self) -> bool:
        return self._most_entries is not None and len(self._entries) > self._most_entries

    def _weight_of(self, entry: tuple[V, int, object]) -> int:
        return entry[1] if self._weigh is None else self._weigh(entry[0])


class WeakMemo(Generic[O, K, V]):
    """One `Memo` for each owner, forgotten with it. Values must not hold their owner."""

    def __init__(
        self,
        most_weight: int,
        *,
        most_entries: int | None = None,
        weigh: Callable[[V], int] | None = None,
    ) -> None:
        self._make_memo: Callable[[], Memo[K, V]] = functools.partial(
            Memo, most_weight, most_entries=most_entries, weigh=weigh
        )
        self._by_owner: WeakKeyDictionary[O, tuple[int, Memo[K, V]]] = WeakKeyDictionary()
        _MEMOS.add(self)

    def of(self, owner: O, key: K, make: Callable[[], V], *, version: int = 0) -> V:
        """The owner's value for a key, made if there is none. Another version forgets all values of the owner."""
        memo = self.memo(owner, version)
        value = memo.get(key)
        if value is None:
            value = make()
            memo.put(key, value)
        return value

    def memo(self, owner: O, version: int = 0) -> Memo[K, V]:
        """What is kept for an owner."""
        entry = self._by_owner.get(owner)
        if entry is None or entry[0] != version:
            entry = self._by_owner[owner] = (version, self._make_memo())
        return entry[1]

    def clear(self) -> None:
        """Forgets everything about every owner."""
        self._by_owner.clear()


def remembered(maxsize: int | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Remembers a pure function of small values; unbounded only where its arguments are few, such as none or types."""

    def with_memory(function: Callable[P, T]) -> Callable[P, T]:
        wrapper = functools.lru_cache(maxsize=maxsize)(function)
        _FUNCTIONS.append(wrapper)
        return cast("Callable[P, T]", wrapper)

    return with_memory


def clear() -> None:
    """Forgets everything that the core remembers."""
    for memo in [*_MEMOS]:
        memo.clear()
    for function in _FUNCTIONS:
        function.cache_clear()


@contextmanager
def off() -> Iterator[None]:
    """Nothing is remembered inside, so that tests see what the core answers from its arguments alone.

    Functions that are remembered without a bound are constants made on first use: those stay.
    """
    clear()
    replaced = [*_references()]
    _SWITCH.is_off = True
    for module, name, function in replaced:
        setattr(module, name, function.__wrapped__)
    try:
        yield
    finally:
        _SWITCH.is_off = False
        for module, name, function in replaced:
            setattr(module, name, function)


def _references() -> Iterator[tuple[Any, str, Any]]:
    """Every name in a module of ours under which a function with bounded memory is called."""
    bounded = {id(one): one for one in _FUNCTIONS if one.cache_parameters()["maxsize"] is not None}
    ours = [module for name, module in sys.modules.items() if name.startswith("dovetail.")]
    for module in ours:
        for name, value in vars(module).items():
            if id(value) in bounded:
                yield module, name, value


class _Switch:
    is_off = False


_SWITCH: Final = _Switch()
_MEMOS: Final[WeakSet[Memo[Any, Any] | WeakMemo[Any, Any, Any]]] = WeakSet()
_FUNCTIONS: Final[list[Any]] = []  # what functools.lru_cache made
