"""A copy of a cluster for questions: its objects, the World made of them, and edits that are undone afterwards.

Given the objects that were read, the policy and the time they show. A question asks `decide` about the copy as it is,
or inside `edited`, where some objects differ: the engine is asked again about the same World, so that an answer costs
what its edits touch, not a new World. Belongs to one question at a time. Never writes to a cluster.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.answer.replica import budget_refusals, patches
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.model import plan, policy
from dovetail.schedule import decide
from dovetail.world.events import Changed, Deleted, Object
from dovetail.world.owners import facts_of_objects, gang_builder
from dovetail.world.world import World

_WORLD_STRUCTS: Final = tuple(kind.struct for kind in registry.WORLD)
_BUDGET: Final = registry.BUDGET.unique_name
_POD: Final = registry.POD.unique_name

# What a question about a whole cluster reads. Events and the kinds of other schedulers come on top where they help.
KINDS: Final = (*facts_of_objects.KINDS, registry.BUDGET)


class Edit(NamedTuple):
    """An object as it should be; without one it is gone."""

    key: object_set.Key
    stored: codec.Stored | None


class Replica:
    """The copy. Read `world` and the objects; change them only inside `edited`."""

    def __init__(
        self,
        objects: object_set.ObjectSet,
        policy_: policy.Policy,
        now: datetime.datetime,
        *,
        promises: Iterable[plan.Promise] = (),
    ) -> None:
        self.policy = policy_
        self.now = now
        self.world = World()
        self._objects: dict[str, dict[object_set.Key, codec.Stored]] = {}
        self._may_quote: Callable[[object_set.Key], bool] = _any
        self._gangs = gang_builder.GangBuilder(_WorldReceiver(self.world))
        self._gangs.finish_list(registry.COMPOSITE.name, ())  # what was read holds all there are
        for stored in objects.all():
            self._put(Edit(object_set.key_of(stored.struct), stored))
        self._count_budgets()
        self.world.set_promises(promises)

    # Questions

    def get(self, key: object_set.Key) -> codec.Stored | None:
        """One object that may be quoted."""
        return self._known(key) if self._may_quote(key) else None

    def listed(self, kind: str, *, namespace: str | None = None) -> Iterator[codec.Stored]:
        """The objects of a kind that may be quoted, by its unique name, of one namespace or all."""
        for key, stored in self._objects.get(kind, {}).items():
            if namespace in (None, key.namespace) and self._may_quote(key):
                yield stored

    def pod(self, namespace: str, name: str) -> pods.Pod | None:
        """A pod by name."""
        stored = self._known(object_set.Key(_POD, namespace, name))
        return stored.struct if stored is not None and isinstance(stored.struct, pods.Pod) else None

    @contextlib.contextmanager
    def quoting(self, may_quote: Callable[[object_set.Key], bool]) -> Iterator[None]:
        """Until the block ends, `get` and `listed` pass over objects that an answer may not quote.

        The World stays whole: what the engine decides does not depend on who asks.
        """
        before = self._may_quote
        self._may_quote = may_quote
        try:
            yield
        finally:
            self._may_quote = before

    def _known(self, key: object_set.Key) -> codec.Stored | None:
        return self._objects.get(key.kind, {}).get(key)

    def facts(self) -> list[Object]:
        """Everything the World is made of, for simulations that keep a World of their own."""
        structs = [stored.struct for table in self._objects.values() for stored in table.values()]
        facts: list[Object] = [struct for struct in structs if isinstance(struct, _WORLD_STRUCTS)]
        return [*facts, *self._gangs.all_gangs()]

    def budgets(self) -> list[disruption_budgets.PodDisruptionBudget]:
        """The disruption budgets."""
        return [_budget(stored) for stored in self._objects.get(_BUDGET, {}).values()]

    def decide(
        self,
        among: Collection[str] | None = None,
        *,
        budget: policy.Budget = policy.UNLIMITED,
        policy_: policy.Policy | None = None,
    ) -> plan.Plan:
        """What the engine would do now, about every pending pod or those with the ids in `among`.

        Pods whose budgets refuse their eviction are spared and the engine is asked again, as the live scheduler does.
        """
        spared: frozenset[str] = frozenset()
        while True:
            decided = decide.decide(
                self.world,
                policy_ or self.policy,
                self.now,
                budget,
                among=among,
                spared=spared,
            )
            budgets = self.budgets() if decided.evictions else []
            more = budget_refusals.refused(decided, budgets, self.world.pods) - spared
            if not more:
                return decided
            spared |= more

    # Edits

    @contextlib.contextmanager
    def edited(self, edits: Iterable[Edit]) -> Iterator[None]:
        """The copy with these objects changed, until the block ends. Edits may nest."""
        before: list[Edit] = []
        has_budgets = False
        try:
            for edit in edits:
                before.append(Edit(edit.key, self._known(edit.key)))
                has_budgets |= edit.key.kind == _BUDGET
                self._put(edit)
            if has_budgets:
                self._count_budgets()
            yield
        finally:
            for edit in reversed(before):
                self._put(edit)
            if has_budgets:
                self._count_budgets()

    def follow(
        self,
        edits: Iterable[Edit],
        now: datetime.datetime,
        *,
        promises: Iterable[plan.Promise] = (),
    ) -> None:
        """Goes on with the cluster: these objects changed for good, and it is later."""
        has_budgets = False
        for edit in edits:
            has_budgets |= edit.key.kind == _BUDGET
            self._put(edit)
        if has_budgets:
            self._count_budgets()
        self.now = now
        self.world.set_promises(promises)

    def edits_of(self, changes: Iterable[patches.Patch]) -> list[Edit]:
        """What patches amount to, object by object. Raises InputError where one cannot be applied."""
        trees: dict[object_set.Key, dict[str, Any] | None] = {}
        for patch in changes:
            key = patch.object.key
            if key in trees:
                tree = trees[key]
            else:
                stored = self._known(key)
                tree = None if stored is None else stored.tree
            trees[key] = _after(tree, patch)
        return [
            Edit(key, None if tree is None else codec.decode(tree)) for key, tree in trees.items()
        ]

    def _put(self, edit: Edit) -> None:
        table = self._objects.setdefault(edit.key.kind, {})
        old = table.pop(edit.key, None)
        if edit.stored is not None:
            table[edit.key] = edit.stored
        self._put_fact(old, edit.stored)
        self._put_owner(old, edit.stored)

    def _put_fact(self, old: codec.Stored | None, new: codec.Stored | None) -> None:
        """Objects with the same key may differ in identity: a pod that was created again has another uid."""
        if old is not None and isinstance(old.struct, _WORLD_STRUCTS):
            is_replaced = new is None or new.struct.metadata.uid != old.struct.metadata.uid
            if is_replaced:
                self.world.apply(Deleted(old.struct))
        if new is not None and isinstance(new.struct, _WORLD_STRUCTS):
            self.world.apply(Changed(new.struct))

    def _put_owner(self, old: codec.Stored | None, new: codec.Stored | None) -> None:
        owner = facts_of_objects.owner_of(new) if new is not None else None
        if owner is not None:
            self._gangs.changed(*owner)
            return
        gone = facts_of_objects.owner_of(old) if old is not None else None
        if gone is not None:
            self._gangs.deleted(*gone)

    def _count_budgets(self) -> None:
        self.world.budget_protection.put(self.budgets())


def _any(key: object_set.Key) -> bool:
    return True


def _budget(stored: codec.Stored) -> disruption_budgets.PodDisruptionBudget:
    """The kind is outside the World: a set of objects may hold it with its identity alone."""
    struct: object = stored.struct
    if isinstance(struct, disruption_budgets.PodDisruptionBudget):
        return struct
    return codec.decode_struct(disruption_budgets.PodDisruptionBudget, stored.document)


def _after(tree: dict[str, Any] | None, patch: patches.Patch) -> dict[str, Any] | None:
    if patch.create is not None:
        if tree is not None:
            raise errors.InputError(f"{patch.object}: exists already; delete it first")
        return patch.create
    if tree is None:
        raise errors.InputError(f"{patch.object}: does not exist")
    if patch.delete:
        return None
    result: dict[str, Any] = patches.merged(tree, patch.merge or {})
    return result


class _WorldReceiver:
    """Puts gangs into the World as the builder passes them on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """A gang appeared or changed."""
        self._world.apply(Changed(object_))

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """A gang is gone."""
        self._world.apply(Deleted(object_))
