"""Numbers for names: each text and each owner is stored once, and records refer to it by number.

Given a database with an open transaction. Looks up by a digest, so that long texts need no long index. What was looked
up is remembered within a bound, until another writer may have removed something. Never deletes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from dovetail.history.database import Database, Row, int_of, str_of
from dovetail.model.accounting.records import Owner

MAX_REMEMBERED: Final = 200_000
CHUNK: Final = 500  # parameters of one statement; SQLite allows 999 in old versions
MANY: Final = 20_000  # names: from here on reading the whole dictionary is faster
SPARSEST: Final = 8  # rows of a range for each that is wanted
DIGEST_BYTES: Final = 16

_OWNER_COLUMNS: Final = (
    "digest",
    "namespace",
    "pod",
    "pod_uid",
    "controller_kind",
    "controller",
    "queue",
    "labels",
)
_T = TypeVar("_T")


class Dictionary:
    """The dictionary of one store. `forget` drops what is remembered."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._texts: dict[str, int] = {}
        self._owners: dict[bytes, int] = {}
        self._digests: dict[
            int, tuple[Owner, bytes]
        ] = {}  # by the id of an owner that is kept alive
        self._series: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        """Drops what is remembered."""
        self._texts.clear()
        self._owners.clear()
        self._digests.clear()
        self._series.clear()

    # Numbers of names, for writers

    def text_ids(self, texts: Iterable[str]) -> dict[str, int]:
        """The number of each text; new ones get one."""
        wanted = set(texts)
        missing = [text for text in wanted if text not in self._texts]
        if missing:
            self._bound(self._texts)
            missing = [text for text in wanted if text not in self._texts]
            digests = {digest_of(text.encode("utf-8", "surrogatepass")): text for text in missing}
            rows = [(digest, storable(text)) for digest, text in digests.items()]
            self._database.insert(
                "texts", ("digest", "text"), rows, on_conflict="ON CONFLICT (digest) DO NOTHING"
            )
            for digest, id_ in self._ids("texts", list(digests)):
                self._texts[digests[digest]] = id_
        return {text: self._texts[text] for text in wanted}

    def owner_ids(self, owners: Iterable[Owner]) -> dict[bytes, int]:
        """The number of each owner by its digest; new ones get one."""
        by_digest = {self.owner_digest(owner): owner for owner in owners}
        if any(digest not in self._owners for digest in by_digest):
            self._bound(self._owners)
            missing = [digest for digest in by_digest if digest not in self._owners]
            self._insert_owners({digest: by_digest[digest] for digest in missing})
            self._owners.update(self._ids("owners", missing))
        return {digest: self._owners[digest] for digest in by_digest}

    def owner_digest(self, owner: Owner) -> bytes:
        """What identifies an owner with all its labels."""
        known = self._digests.get(id(owner))
        if known is not None:
            return known[1]
        digest = digest_of(msgspec.msgpack.encode(_texts_of_owner(owner)))
        self._bound(self._digests)
        self._digests[id(owner)] = (owner, digest)
        return digest

    def series_ids(self, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """The number of each series, by the numbers of asset and allocation; new ones get one."""
        wanted = set(pairs)
        if not wanted <= self._series.keys():
            self._bound(self._series)
            missing = sorted(wanted - self._series.keys())
            self._database.insert(
                "series",
                ("asset", "allocation"),
                missing,
                on_conflict="ON CONFLICT (asset, allocation) DO NOTHING",
            )
            for part in chunks(missing, CHUNK // 2):
                pairs_sql = " OR ".join(["(asset = ? AND allocation = ?)"] * len(part))
                query = f"SELECT asset, allocation, id FROM series WHERE {pairs_sql}"  # noqa: S608
                flat = [number for pair in part for number in pair]
                for asset, allocation, id_ in self._database.execute(query, flat):
                    self._series[int_of(asset), int_of(allocation)] = int_of(id_)
        return {pair: self._series[pair] for pair in wanted}

    def _insert_owners(self, by_digest: dict[bytes, Owner]) -> None:
        texts = self.text_ids(
            text for owner in by_digest.values() for text in _texts_of_owner(owner)
        )
        rows: list[Row] = [
            (digest, *(texts[text] for text in _texts_of_owner(owner)))
            for digest, owner in by_digest.items()
        ]
        self._database.insert(
            "owners", _OWNER_COLUMNS, rows, on_conflict="ON CONFLICT (digest) DO NOTHING"
        )

    def _ids(self, table: str, digests: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
        for part in chunks(digests, CHUNK):
            places = ", ".join("?" * len(part))
            query = f"SELECT digest, id FROM {table} WHERE digest IN ({places})"  # noqa: S608
            for digest, id_ in self._database.execute(query, part):
                assert isinstance(digest, bytes)
                yield digest, int_of(id_)

    def _bound(
        self, remembered: dict[_T, object] | dict[_T, int] | dict[_T, tuple[Owner, bytes]]
    ) -> None:
        if len(remembered) > MAX_REMEMBERED:
            remembered.clear()

    # Names of numbers, for readers

    def texts(self, ids: Collection[int]) -> dict[int, str]:
        """The texts of these numbers."""
        return {int_of(id_): str_of(text) for id_, text in self._rows("id, text", "texts", ids)}

    def owners(self, ids: Collection[int]) -> dict[int, Owner]:
        """The owners of these numbers."""
        columns = ", ".join(("id", *_OWNER_COLUMNS[1:]))
        rows = [tuple(map(int_of, row)) for row in self._rows(columns, "owners", ids)]
        texts = self.texts({number for row in rows for number in row[1:]})
        labels = {row[7]: labels_of(texts[row[7]]) for row in rows}
        return {
            row[0]: Owner(
                namespace=texts[row[1]],
                pod=texts[row[2]],
                pod_uid=texts[row[3]],
                controller_kind=texts[row[4]],
                controller=texts[row[5]],
                queue=texts[row[6]],
                labels=labels[row[7]],
            )
            for row in rows
        }

    def _rows(self, columns: str, table: str, ids: Collection[int]) -> Iterator[tuple[object, ...]]:
        # One range where most of it is wanted; a few early names must not make all of history be read.
        if len(ids) > MANY and max(ids) - min(ids) < SPARSEST * len(ids):
            query = f"SELECT {columns} FROM {table} WHERE id BETWEEN ? AND ?"  # noqa: S608
            wanted = set(ids)
            for row in self._database.execute(query, (min(wanted), max(wanted))):
                if row[0] in wanted:
                    yield row
            return
        for part in chunks(sorted(ids), CHUNK):
            places = ", ".join("?" * len(part))
            query = f"SELECT {columns} FROM {table} WHERE id IN ({places})"  # noqa: S608
            yield from self._database.execute(query, part)


def labels_text(labels: dict[str, str]) -> str:
    """Labels as they are stored: equal labels are equal texts."""
    return msgspec.json.encode(dict(sorted(labels.items()))).decode() if labels else ""


def labels_of(text: str) -> dict[str, str]:
    """The labels of a stored text."""
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


def storable(text: str) -> str:
    """A text that both databases keep: PostgreSQL has no zero character, neither has lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def digest_of(document: bytes) -> bytes:
    """A short key for a long text."""
    return hashlib.blake2b(document, digest_size=DIGEST_BYTES).digest()


def chunks(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """The items in lists of this size."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def _texts_of_owner(owner: Owner) -> tuple[str, ...]:
    return (
        owner.namespace,
        owner.pod,
        owner.pod_uid,
        owner.controller_kind,
        owner.controller,
        owner.queue,
        labels_text(owner.labels),
    )
