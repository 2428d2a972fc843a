"""How each kind of record becomes a row of numbers, and a row becomes the record again.

Given records and the numbers of their names. One description per kind; the store does the same with all of them. Never
touches a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.history import dictionary
from dovetail.history.database import Row
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Owner

FORMS: Final = tuple(records.Form)  # stored by place: new forms go to the end
SOURCES: Final = tuple(records.GapSource)
_NODE_SEPARATOR: Final = ","  # no name of a node has one


class Names(NamedTuple):
    """Numbers of names, for a writer."""

    texts: Mapping[str, int]
    owners: Mapping[bytes, int]
    digest: Callable[[Owner], bytes]

    def owner(self, owner: Owner) -> int:
        """The number of an owner."""
        return self.owners[self.digest(owner)]


class Texts(NamedTuple):
    """Names of numbers, for a reader."""

    texts: Mapping[int, str]
    owners: Mapping[int, Owner]


class Kind(NamedTuple):
    """One kind of record and its table."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    text_columns: tuple[str, ...]
    texts: Callable[[Any], tuple[str, ...]]  # that a record needs numbers for
    row: Callable[[Any, Names], Row]
    record: Callable[[Mapping[str, Any], Texts], Any]

    @property
    def has_owner(self) -> bool:
        """Whether its records name the work."""
        return "owner" in self.columns

    @property
    def has_end(self) -> bool:
        """Whether its records are intervals."""
        return "until" in self.columns


def _asset_row(asset: records.Asset, names: Names) -> Row:
    texts = names.texts
    return (
        texts[asset.asset],
        asset.start,
        asset.end,
        texts[asset.node],
        texts[asset.product],
        asset.count,
        asset.memory_bytes,
        texts[asset.pool],
        int(asset.is_spot),
        texts[dictionary.labels_text(asset.labels)],
    )


def _asset(row: Mapping[str, Any], names: Texts) -> records.Asset:
    texts = names.texts
    return records.Asset(
        asset=texts[row["asset"]],
        node=texts[row["node"]],
        product=texts[row["product"]],
        start=row["start"],
        end=row["until"],
        count=row["count"],
        memory_bytes=row["memory_bytes"],
        pool=texts[row["pool"]],
        is_spot=bool(row["is_spot"]),
        labels=dictionary.labels_of(texts[row["labels"]]),
    )


def _allocation_row(allocation: records.Allocation, names: Names) -> Row:
    texts = names.texts
    return (
        texts[allocation.allocation],
        allocation.start,
        allocation.end,
        texts[allocation.asset],
        texts[allocation.node],
        allocation.micro_gpu,
        FORMS.index(allocation.form),
        names.owner(allocation.owner),
        texts[allocation.profile],
        texts[allocation.claim],
        allocation.memory_bytes,
    )


def _allocation(row: Mapping[str, Any], names: Texts) -> records.Allocation:
    texts = names.texts
    return records.Allocation(
        allocation=texts[row["allocation"]],
        asset=texts[row["asset"]],
        node=texts[row["node"]],
        micro_gpu=row["micro_gpu"],
        form=FORMS[row["form"]],
        owner=names.owners[row["owner"]],
        start=row["start"],
        end=row["until"],
        profile=texts[row["profile"]],
        claim=texts[row["claim"]],
        memory_bytes=row["memory_bytes"],
    )


def _waiting_row(waiting: records.Waiting, names: Names) -> Row:
    return (
        names.texts[waiting.owner.pod_uid],
        waiting.start,
        waiting.end,
        names.owner(waiting.owner),
        waiting.micro_gpu,
        names.texts[waiting.reason],
    )


def _waiting(row: Mapping[str, Any], names: Texts) -> records.Waiting:
    return records.Waiting(
        owner=names.owners[row["owner"]],
        micro_gpu=row["micro_gpu"],
        start=row["start"],
        end=row["until"],
        reason=names.texts[row["reason"]],
    )


def _unusable_row(unusable: records.Unusable, names: Names) -> Row:
    texts = names.texts
    return (
        texts[unusable.asset],
        texts[unusable.why],
        unusable.start,
        unusable.end,
        texts[unusable.node],
        unusable.micro_gpu,
    )


def _unusable(row: Mapping[str, Any], names: Texts) -> records.Unusable:
    return records.Unusable(
        asset=names.texts[row["asset"]],
        node=names.texts[row["node"]],
        micro_gpu=row["micro_gpu"],
        start=row["start"],
        end=row["until"],
        why=names.texts[row["why"]],
    )


def _promise_row(promise: records.Promise, names: Names) -> Row:
    texts = names.texts
    return (
        texts[promise.gang],
        promise.start,
        promise.end,
        names.owner(promise.owner),
        promise.promised_start,
        promise.moved_from,
        texts[promise.cause],
        texts[_NODE_SEPARATOR.join(promise.nodes)],
    )


def _promise(row: Mapping[str, Any], names: Texts) -> records.Promise:
    nodes = names.texts[row["nodes"]]
    return records.Promise(
        gang=names.texts[row["gang"]],
        owner=names.owners[row["owner"]],
        start=row["start"],
        end=row["until"],
        promised_start=row["promised_start"],
        moved_from=row["moved_from"],
        cause=names.texts[row["cause"]],
        nodes=tuple(nodes.split(_NODE_SEPARATOR)) if nodes else (),
    )


def _decision_row(decision: records.Decision, names: Names) -> Row:
    texts = names.texts
    return (
        decision.at,
        dictionary.digest_of(msgspec.msgpack.encode(_decision_key(decision))),
        texts[decision.kind],
        names.owner(decision.owner),
        texts[decision.node],
        texts[decision.rule],
        texts[decision.in_favour_of],
        texts[decision.detail],
    )


def _decision_key(decision: records.Decision) -> tuple[str, ...]:
    """What makes two decisions of the same millisecond different."""
    return (decision.kind, decision.owner.pod_uid, *_decision_texts(decision))


def _decision_texts(decision: records.Decision) -> tuple[str, ...]:
    return (decision.kind, decision.node, decision.rule, decision.in_favour_of, decision.detail)


def _decision(row: Mapping[str, Any], names: Texts) -> records.Decision:
    texts = names.texts
    return records.Decision(
        at=row["start"],
        kind=texts[row["kind"]],
        owner=names.owners[row["owner"]],
        node=texts[row["node"]],
        rule=texts[row["rule"]],
        in_favour_of=texts[row["in_favour_of"]],
        detail=texts[row["detail"]],
    )


def _gap_row(gap: records.Gap, names: Names) -> Row:
    texts = names.texts
    return (
        SOURCES.index(gap.source),
        texts[gap.subject],
        gap.start,
        gap.end,
        texts[gap.why],
    )


def _gap(row: Mapping[str, Any], names: Texts) -> records.Gap:
    return records.Gap(
        source=SOURCES[row["source"]],
        start=row["start"],
        end=row["until"],
        why=names.texts[row["why"]],
        subject=names.texts[row["subject"]],
    )


def _price_row(price: records.PriceList, names: Names) -> Row:
    return (names.texts[price.name], price.start, price.end, names.texts[price.document])


def _price(row: Mapping[str, Any], names: Texts) -> records.PriceList:
    return records.PriceList(
        name=names.texts[row["list"]],
        document=names.texts[row["document"]],
        start=row["start"],
        end=row["until"],
    )


ASSETS: Final = Kind(
    "assets",
    (
        "asset",
        "start",
        "until",
        "node",
        "product",
        "count",
        "memory_bytes",
        "pool",
        "is_spot",
        "labels",
    ),
    ("asset", "start"),
    ("asset", "node", "product", "pool", "labels"),
    lambda each: (
        each.asset,
        each.node,
        each.product,
        each.pool,
        dictionary.labels_text(each.labels),
    ),
    _asset_row,
    _asset,
)
ALLOCATIONS: Final = Kind(
    "allocations",
    (
        "allocation",
        "start",
        "until",
        "asset",
        "node",
        "micro_gpu",
        "form",
        "owner",
        "profile",
        "claim",
        "memory_bytes",
    ),
    ("allocation", "start"),
    ("allocation", "asset", "node", "profile", "claim"),
    lambda each: (each.allocation, each.asset, each.node, each.profile, each.claim),
    _allocation_row,
    _allocation,
)
WAITING: Final = Kind(
    "waiting",
    ("pod_uid", "start", "until", "owner", "micro_gpu", "reason"),
    ("pod_uid", "start"),
    ("reason",),
    lambda each: (each.owner.pod_uid, each.reason),
    _waiting_row,
    _waiting,
)
UNUSABLE: Final = Kind(
    "unusable",
    ("asset", "why", "start", "until", "node", "micro_gpu"),
    ("asset", "why", "start"),
    ("asset", "why", "node"),
    lambda each: (each.asset, each.why, each.node),
    _unusable_row,
    _unusable,
)
PROMISES: Final = Kind(
    "promises",
    ("gang", "start", "until", "owner", "promised_start", "moved_from", "cause", "nodes"),
    ("gang", "start"),
    ("gang", "cause", "nodes"),
    lambda each: (each.gang, each.cause, _NODE_SEPARATOR.join(each.nodes)),
    _promise_row,
    _promise,
)
DECISIONS: Final = Kind(
    "decisions",
    ("start", "digest", "kind", "owner", "node", "rule", "in_favour_of", "detail"),
    ("start", "digest"),
    ("kind", "node", "rule", "in_favour_of", "detail"),
    _decision_texts,
    _decision_row,
    _decision,
)
GAPS: Final = Kind(
    "gaps",
    ("source", "subject", "start", "until", "why"),
    ("source", "subject", "start"),
    ("subject", "why"),
    lambda each: (each.subject, each.why),
    _gap_row,
    _gap,
)
PRICES: Final = Kind(
    "prices",
    ("list", "start", "until", "document"),
    ("list", "start"),
    ("list", "document"),
    lambda each: (each.name, each.document),
    _price_row,
    _price,
)
# By the name of the field of `Records`.
KINDS: Final[dict[str, Kind]] = {
    "assets": ASSETS,
    "allocations": ALLOCATIONS,
    "waiting": WAITING,
    "unusable": UNUSABLE,
    "promises": PROMISES,
    "decisions": DECISIONS,
    "gaps": GAPS,
    "prices": PRICES,
}
