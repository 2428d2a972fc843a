"""What each ResourceQuota has used, kept current with every change of the store, and what it therefore refuses.

Given the object store, which reports changes; counts a namespace once when it gets a quota, and afterwards only what
changes. A namespace without a quota costs one lookup per write. `write_statuses` publishes the sums as the quota
controller of kube-controller-manager does. Never stores the object that it is asked about.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.quantity import quantity
from dovetail.sim.server import builtin_kinds, watchers
from dovetail.sim.server.object_store import Change, ObjectStore, Record
from dovetail.sim.server.quotas import quota_charges, quota_scopes
from dovetail.sim.server.quotas.quota_charges import Charges
from dovetail.sim.server.served_kinds import TableKey, table_key
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]
Place = tuple[TableKey, ObjectKey]
_QUOTA_TABLE: Final = table_key(builtin_kinds.RESOURCE_QUOTA)


class Booking(NamedTuple):
    """What charging an object did to the sums of a quota."""

    is_change: bool = False
    is_less: bool = False


class Account:
    """One quota and what is used of it."""

    def __init__(self, quota: resource_quotas.ResourceQuota) -> None:
        self.quota = quota
        self.used = dict.fromkeys(quota.spec.hard, quantity.ZERO)
        self._booked: dict[Place, Charges] = {}  # so that exactly what was added is taken off

    def counts(self, table: TableKey, record: Record) -> bool:
        """Whether the quota is about an object at all."""
        return quota_scopes.counts(self.quota.spec, table, record)

    def book(self, place: Place, charges: Charges) -> Booking:
        """Charges an object with this instead of what it was charged before."""
        booked = {key: amount for key, amount in charges.items() if key in self.used}
        before = self._booked.get(place, {})
        if booked == before:
            return Booking()
        if booked:
            self._booked[place] = booked
        else:
            self._booked.pop(place, None)

        is_less = False
        for key in before.keys() | booked.keys():
            old, new = before.get(key, quantity.ZERO), booked.get(key, quantity.ZERO)
            self.used[key] = self.used[key].add(new).sub(old)
            is_less |= new < old
        return Booking(is_change=True, is_less=is_less)


class QuotaLedger:
    """The quotas of one store."""

    def __init__(self, shelf: ObjectStore) -> None:
        self._shelf = shelf
        self._accounts: dict[str, dict[str, Account]] = {}  # by namespace and name
        self._unpublished: set[ObjectKey] = set()  # quotas whose status is behind
        self._eased: set[str] = set()  # namespaces in which less is used, or more is allowed
        shelf.listen(self._note)
        for record in shelf.all(builtin_kinds.RESOURCE_QUOTA):
            self._open(record)

    def has_quotas(self, namespace: str) -> bool:
        """Whether anything is limited in a namespace."""
        return namespace in self._accounts

    def refusal(self, table: TableKey, record: Record, old: Record | None = None) -> str:
        """Why a quota forbids an object, in upstream's words; empty if none does.

        `old` is the object that is replaced: only what is added to it is charged.
        """
        if old is not None and table == quota_charges.POD_TABLE:
            return ""  # nothing that a plain update of a pod may change is counted
        accounts = self._accounts.get(record.metadata.namespace, {})
        added = quota_charges.charges_of(table, record, self._shelf)
        if old is not None:
            added = _increase(added, quota_charges.charges_of(table, old, self._shelf))
        for _, account in sorted(accounts.items()):
            if not account.counts(table, record):
                continue
            refusal = _unstated(account, table, record) or _excess(account, added)
            if refusal:
                return refusal
        return ""

    def eased_namespaces(self) -> set[str]:
        """The namespaces in which a refused request may succeed now. Each is named once."""
        eased = self._eased
        self._eased = set()
        return eased

    def write_statuses(self) -> None:
        """Publishes limits and sums in the status of every quota that has changed."""
        keys = sorted(self._unpublished)
        self._unpublished.clear()
        for namespace, name in keys:
            account = self._accounts.get(namespace, {}).get(name)
            record = self._shelf.find(builtin_kinds.RESOURCE_QUOTA, (namespace, name))
            if account is None or record is None:
                continue
            tree, status = record.tree, _status(account)
            if tree.get("status") != status:
                self._shelf.put(builtin_kinds.RESOURCE_QUOTA, tree | {"status": status})

    def _note(self, change: Change) -> None:
        namespace = change.record.metadata.namespace
        table = table_key(change.kind)
        if namespace in self._accounts:
            self._book(namespace, table, change)
        # After the other quotas have counted this one, which counts itself when it is opened.
        if table == _QUOTA_TABLE:
            self._note_quota(change)

    def _book(self, namespace: str, table: TableKey, change: Change) -> None:
        record = change.record
        charges: Charges = {}
        if change.event != watchers.DELETED:
            charges = quota_charges.charges_of(table, record, self._shelf)
        for name, account in self._accounts[namespace].items():
            counted = charges if account.counts(table, record) else {}
            booking = account.book((table, record.key), counted)
            if booking.is_change:
                self._unpublished.add((namespace, name))
            if booking.is_less:
                self._eased.add(namespace)

    def _note_quota(self, change: Change) -> None:
        namespace, name = change.record.key
        account = self._accounts.get(namespace, {}).get(name)
        if change.event == watchers.DELETED:
            self._close(namespace, name)
        elif account is None or account.quota.spec != change.record.struct.spec:
            self._open(change.record)

    def _open(self, record: Record) -> None:
        """Counts what is there already. Linear in the objects of the namespace."""
        namespace, name = record.key
        account = Account(record.struct)
        for table, stored in self._shelf.tables():
            for each in stored.all(namespace):
                if account.counts(table, each):
                    charges = quota_charges.charges_of(table, each, self._shelf)
                    account.book((table, each.key), charges)
        self._accounts.setdefault(namespace, {})[name] = account
        self._unpublished.add(record.key)
        self._eased.add(namespace)

    def _close(self, namespace: str, name: str) -> None:
        accounts = self._accounts.get(namespace, {})
        accounts.pop(name, None)
        if not accounts:
            self._accounts.pop(namespace, None)
        self._eased.add(namespace)


def _increase(new: Charges, old: Charges) -> Charges:
    """What the new charges exceed the old ones by."""
    differences = {key: amount.sub(old.get(key, quantity.ZERO)) for key, amount in new.items()}
    return {key: amount for key, amount in differences.items() if amount.nanos > 0}


def _unstated(account: Account, table: TableKey, record: Record) -> str:
    """The refusal of a pod whose containers leave out an amount that the quota counts."""
    if table != quota_charges.POD_TABLE:
        return ""
    pod: pods.Pod = record.struct
    missing = quota_charges.missing_statements(pod, frozenset(account.used))
    parts = [f"{key} for: {','.join(sorted(missing[key]))}" for key in sorted(missing)]
    if not parts:
        return ""
    return f"failed quota: {account.quota.metadata.name}: must specify {'; '.join(parts)}"


def _excess(account: Account, added: Charges) -> str:
    """The refusal of what would make a sum larger than its limit."""
    hard, used = account.quota.spec.hard, account.used
    charged = [key for key in sorted(added.keys() & hard.keys()) if added[key].nanos]
    exceeded = [key for key in charged if used[key].add(added[key]) > hard[key]]
    if not exceeded:
        return ""
    return (
        f"exceeded quota: {account.quota.metadata.name}, requested: {_listed(added, exceeded)}, "
        f"used: {_listed(used, exceeded)}, limited: {_listed(hard, exceeded)}"
    )


def _listed(amounts: Charges, keys: list[str]) -> str:
    return ",".join(f"{key}={amounts[key]}" for key in keys)


def _status(account: Account) -> Tree:
    hard = account.quota.spec.hard
    return {
        "hard": {key: str(amount) for key, amount in hard.items()},
        "used": {key: str(account.used[key]) for key in hard},
    }
