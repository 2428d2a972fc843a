"""Lists of results: a sequence of structs that notebooks show as a table and programs turn into data.

Given the structs and how a row of them is shown. Immutable, so threads may share one: what reduces or sorts it returns
another. It shows the cluster as it was read; ask the cluster again after `refresh()`. Never asks a cluster itself.
"""

from __future__ import annotations

import csv
import difflib
import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, overload

import msgspec

from dovetail import errors
from dovetail.sdk import html_text
from dovetail.tables import text

T = TypeVar("T", bound=msgspec.Struct)
Tree = dict[str, Any]

SHOWN_ROWS: Final = 100  # by repr and in notebooks; str(), to_html() and data have all


def plain_tree(item: msgspec.Struct) -> Tree:
    """A struct as JSON has it."""
    tree: Tree = msgspec.json.decode(msgspec.json.encode(item))
    return tree


class Columns(NamedTuple, Generic[T]):
    """How items are shown: headers, the cells of one item, and what they are called together."""

    headers: Sequence[str]
    cells: Callable[[T], Sequence[str]]
    noun: str
    tree: Callable[[T], Tree] = plain_tree


class Table(Sequence[T], Generic[T]):
    """Results in order. Index and slice it, iterate, `filter` and `sorted_by`, or take it along as data."""

    __slots__ = ("_columns", "_items")

    def __init__(self, items: Sequence[T], columns: Columns[T]) -> None:
        self._items = tuple(items)
        self._columns = columns

    # As a sequence

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Table[T]: ...
    def __getitem__(self, index: int | slice) -> T | Table[T]:
        if isinstance(index, slice):
            return self._with(self._items[index])
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._items == other._items

    __hash__ = None  # type: ignore[assignment]  # items may hold dicts

    # Other tables

    def filter(self, test: Callable[[T], object] | None = None, /, **fields: Any) -> Table[T]:
        """The items that pass a test, and whose fields have these values.

        A list, tuple or set names several values; a field that is itself a list has to contain the value.

            pods.filter(status="Pending")
            pods.filter(namespace=["train", "research"])
            pods.filter(lambda pod: "H100" in pod.why_not)
        """
        for name in fields:
            self._check(name)
        kept = [
            item
            for item in self._items
            if (test is None or test(item))
            and all(_matches(getattr(item, name), value) for name, value in fields.items())
        ]
        return self._with(kept)

    def sorted_by(self, key: str | Callable[[T], Any], *, reverse: bool = False) -> Table[T]:
        """The same items by a field or a function of them; equal ones stay in order, None comes last."""
        value_of = key if callable(key) else self._field(key)
        ordered = sorted(
            (item for item in self._items if value_of(item) is not None),
            key=value_of,
            reverse=reverse,
        )
        return self._with([*ordered, *(item for item in self._items if value_of(item) is None)])

    # As data

    def to_dicts(self) -> list[Tree]:
        """Each item as plain data, with the names that `-o json` uses."""
        return [self._columns.tree(item) for item in self._items]

    def to_csv(self, path: Any = None) -> str:
        """All fields as CSV with a line of names; written to a file as well if a path is given.

        A field that is a struct becomes several columns (`subject.name`); lists and maps are JSON in one cell.
        """
        rows = [_flat(item, self._columns.tree(item)) for item in self._items]
        names = list(dict.fromkeys(name for row in rows for name in row))
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value) for name, value in row.items()})
        written = buffer.getvalue()
        if path is not None:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(written)
        return written

    def to_pandas(self) -> Any:
        """A DataFrame with the columns of `to_csv`. Needs pandas, which Dovetail does not bring."""
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_pandas() needs pandas: pip install pandas. to_dicts() and to_csv() work without it"
            ) from error
        return pandas.DataFrame([_flat(item, self._columns.tree(item)) for item in self._items])

    # For people

    def to_html(self, *, max_rows: int | None = None) -> str:
        """The table as HTML, all rows of it unless `max_rows` is given."""
        shown = self._items if max_rows is None else self._items[:max_rows]
        left = len(self._items) - len(shown)
        parts = []
        if self._items:
            rows = map(self._columns.cells, shown)
            parts.append(html_text.table(self._columns.headers, rows))
        if left or not self._items:
            parts.append(html_text.paragraph(_more(left) if left else self._nothing))
        return html_text.document(parts)

    def _repr_html_(self) -> str:
        return self.to_html(max_rows=SHOWN_ROWS)

    def __str__(self) -> str:
        return self._text(self._items)

    def __repr__(self) -> str:
        left = len(self._items) - SHOWN_ROWS
        shown = self._text(self._items[:SHOWN_ROWS])
        return f"{shown}\n{_more(left)}" if left > 0 else shown

    # Inside

    @property
    def _nothing(self) -> str:
        return f"no {self._columns.noun}"

    def _text(self, items: Sequence[T]) -> str:
        if not items:
            return self._nothing
        return "\n".join(text.table(self._columns.headers, [*map(self._columns.cells, items)]))

    def _with(self, items: Sequence[T]) -> Table[T]:
        return Table(items, self._columns)

    def _field(self, name: str) -> Callable[[T], Any]:
        self._check(name)
        return lambda item: getattr(item, name)

    def _check(self, name: str) -> None:
        """Raises InputError for a field that items do not have."""
        if not self._items or hasattr(self._items[0], name):
            return
        names = self._items[0].__struct_fields__
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise errors.InputError(f'{self._columns.noun} have no field "{name}"; {hint}')


class ObjectTable(Table[T]):
    """A table whose rows were read from Kubernetes objects."""

    __slots__ = ("_documents",)

    def __init__(
        self,
        items: Sequence[T],
        columns: Columns[T],
        documents: Callable[[Sequence[T]], list[Tree]],
    ) -> None:
        super().__init__(items, columns)
        self._documents = documents

    def objects(self) -> list[Tree]:
        """The Kubernetes objects behind the rows, as `dovetail get -o json` prints them."""
        return self._documents(self._items)

    def filter(self, test: Callable[[T], object] | None = None, /, **fields: Any) -> ObjectTable[T]:
        """As `Table.filter`."""
        return cast(ObjectTable[T], super().filter(test, **fields))

    def _with(self, items: Sequence[T]) -> ObjectTable[T]:
        return ObjectTable(items, self._columns, self._documents)


def _more(left: int) -> str:
    return f"... and {left} more"


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(value, tuple | list) and not isinstance(wanted, tuple | list):
        return wanted in value
    if isinstance(wanted, tuple | list | set | frozenset) and not isinstance(value, tuple | list):
        return value in wanted
    return bool(value == wanted)


def _flat(item: msgspec.Struct, tree: Tree, prefix: str = "") -> Tree:
    """The fields of a struct and of the structs in it, with dots in their names."""
    structs = {
        encoded: value
        for encoded, value in zip(
            item.__struct_encode_fields__,
            (getattr(item, name) for name in item.__struct_fields__),
            strict=True,
        )
        if isinstance(value, msgspec.Struct)
    }
    flat: Tree = {}
    for name, value in tree.items():
        if name in structs and isinstance(value, dict):
            flat |= _flat(structs[name], value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list | tuple) else value
