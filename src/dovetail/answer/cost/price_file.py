"""Reads the file of prices: text to a price list, or a problem with its path and line.

Given YAML or JSON text and its name. Amounts are read as they are written, to a billionth. Unknown fields, prices below
zero, dates that are none and entries that can never count are refused, not guessed. Never opens files.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from dovetail import errors, timestamps
from dovetail.answer.cost import cost_window, price_list
from dovetail.manifest import yaml_text

MOST_ENTRIES: Final = 10_000  # ours
MOST_MONEY: Final = decimal.Decimal(10) ** 12  # ours; of any amount in the file
_MATCH: Final = ("product", "pool", "spot", "labels", "from", "until")
_PRICE: Final = (*_MATCH, "perHour", "gpus", "discountPercent")
_CARBON: Final = (*_MATCH, "gramsPerKwh")
_BUDGET: Final = ("queue", "perMonth")
_FILE: Final = ("currency", "discountPercent", "prices", "carbon", "budgets")

Path = tuple[str | int, ...]


def read(text: str, name: str) -> price_list.PriceList:
    """The price list. Raises InputError that names the file, the line and the path."""
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{name}: {error}") from None
    if len(documents) != 1:
        raise errors.InputError(f"{name}: {len(documents)} documents; expected one with prices")
    return _Reader(text, name, documents[0].line).file(documents[0].tree)


class _Reader:
    def __init__(self, text: str, name: str, line: int) -> None:
        self._text = text
        self._name = name
        self._line = line

    def file(self, tree: Any) -> price_list.PriceList:
        fields = self._fields(tree, (), _FILE)
        currency = self._text_at(fields, "currency", ())
        if not currency:
            raise self._problem(("currency",), "missing; expected a currency such as USD")
        discount = self._percent(fields.get("discountPercent", 0), ("discountPercent",))
        prices = [
            self._price(entry, ("prices", index), discount)
            for index, entry in enumerate(self._list(fields, "prices"))
        ]
        carbon = [
            self._carbon(entry, ("carbon", index))
            for index, entry in enumerate(self._list(fields, "carbon"))
        ]
        budgets = [
            self._budget(entry, ("budgets", index))
            for index, entry in enumerate(self._list(fields, "budgets"))
        ]
        return price_list.PriceList(
            source=self._name,
            currency=currency,
            prices=tuple(prices),
            carbon=tuple(carbon),
            budgets=tuple(budgets),
        )

    def _price(self, tree: Any, path: Path, discount: decimal.Decimal) -> price_list.Price:
        fields = self._fields(tree, path, _PRICE)
        if "perHour" not in fields:
            raise self._problem(path, "perHour is missing: what one GPU costs in an hour")
        amount = self._amount(fields["perHour"], (*path, "perHour"))
        gpus = fields.get("gpus", 1)
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= 1024:
            raise self._problem((*path, "gpus"), f"{_shown(gpus)}: expected 1 to 1024 GPUs")
        if "discountPercent" in fields:
            discount = self._percent(fields["discountPercent"], (*path, "discountPercent"))
        per_gpu = amount * (100 - discount) / 100 / gpus
        return price_list.Price(match=self._match(fields, path), nano_per_hour=_nano(per_gpu))

    def _carbon(self, tree: Any, path: Path) -> price_list.Carbon:
        fields = self._fields(tree, path, _CARBON)
        if "gramsPerKwh" not in fields:
            raise self._problem(path, "gramsPerKwh is missing: CO2e of a kilowatt-hour")
        grams = self._amount(fields["gramsPerKwh"], (*path, "gramsPerKwh"))
        return price_list.Carbon(
            match=self._match(fields, path), milligrams_per_kwh=round(grams * 1000)
        )

    def _budget(self, tree: Any, path: Path) -> price_list.Budget:
        fields = self._fields(tree, path, _BUDGET)
        queue = self._text_at(fields, "queue", path)
        if not queue:
            raise self._problem(path, "queue is missing: whose budget this is")
        if "perMonth" not in fields:
            raise self._problem(path, "perMonth is missing: what the queue may cost in a month")
        amount = self._amount(fields["perMonth"], (*path, "perMonth"))
        return price_list.Budget(queue=queue, nano_per_month=_nano(amount))

    def _match(self, fields: Mapping[str, Any], path: Path) -> price_list.Match:
        spot = fields.get("spot")
        if spot is not None and not isinstance(spot, bool):
            raise self._problem((*path, "spot"), f"{_shown(spot)}: expected true or false")
        labels = fields.get("labels") or {}
        if not isinstance(labels, dict):
            raise self._problem((*path, "labels"), "expected names of node labels with patterns")
        patterns = []
        for label, pattern in labels.items():
            if not isinstance(pattern, str):
                problem = f"{_shown(pattern)}: expected text; put it in quotes"
                raise self._problem((*path, "labels", label), problem)
            patterns.append((label, pattern))
        start, end = (self._time(fields, word, path) for word in ("from", "until"))
        if start is not None and end is not None and start >= end:
            raise self._problem((*path, "until"), "not after from: the entry can never count")
        return price_list.Match(
            product=self._text_at(fields, "product", path) or "*",
            pool=self._text_at(fields, "pool", path) or "*",
            spot=spot,
            labels=tuple(patterns),
            start=start,
            end=end,
        )

    def _fields(self, tree: Any, path: Path, known: Sequence[str]) -> dict[str, Any]:
        if not isinstance(tree, dict):
            raise self._problem(path, f"{_shown(tree)}: expected fields: {', '.join(known)}")
        for name in tree:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
                raise self._problem((*path, name), f"unknown field; {hint}")
        return tree

    def _list(self, fields: Mapping[str, Any], name: str) -> list[Any]:
        entries = fields.get(name)
        if entries is None:
            return []
        if not isinstance(entries, list):
            raise self._problem((name,), f"{_shown(entries)}: expected a list")
        if len(entries) > MOST_ENTRIES:
            raise self._problem((name,), f"{len(entries)} entries; at most {MOST_ENTRIES} are read")
        return entries

    def _text_at(self, fields: Mapping[str, Any], name: str, path: Path) -> str:
        value = fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._problem((*path, name), f"{_shown(value)}: expected text; put it in quotes")
        return value.strip()

    def _amount(self, value: Any, path: Path) -> decimal.Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._problem(path, f"{_shown(value)}: expected a number such as 2.49")
        try:
            amount = decimal.Decimal(str(value).strip())
        except decimal.InvalidOperation:
            raise self._problem(
                path, f"{_shown(value)}: expected a number such as 2.49, without a currency"
            ) from None
        if not amount.is_finite() or not 0 <= amount <= MOST_MONEY:
            raise self._problem(path, f"{_shown(value)}: expected 0 to {MOST_MONEY:,}")
        return amount

    def _percent(self, value: Any, path: Path) -> decimal.Decimal:
        percent = self._amount(value, path)
        if percent > 100:
            raise self._problem(path, f"{_shown(value)}: expected 0 to 100")
        return percent

    def _time(self, fields: Mapping[str, Any], name: str, path: Path) -> int | None:
        value = fields.get(name)
        if value is None:
            return None
        moment = timestamps.parse_or_none(value) if isinstance(value, str) else None
        if moment is None:
            raise self._problem(
                (*path, name), f"{_shown(value)}: expected a date such as 2026-07-01, or a time"
            )
        first = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        last = datetime.datetime(9999, 12, 30, tzinfo=datetime.UTC)
        if not first <= moment <= last:
            raise self._problem((*path, name), f"{_shown(value)}: expected years 1970 to 9999")
        return cost_window.millis_of(moment)

    def _problem(self, path: Path, message: str) -> errors.InputError:
        line = _line_of(self._text, path) or self._line
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        place = f" {where.removeprefix('.')}:" if where else ""
        return errors.InputError(f"{self._name}: line {line}:{place} {message}")


def _nano(amount: decimal.Decimal) -> int:
    with decimal.localcontext() as context:
        context.prec = 60
        context.rounding = decimal.ROUND_HALF_UP
        return int((amount * price_list.NANO).to_integral_value())


def _line_of(text: str, path: Path) -> int | None:
    """The line on which the value at a path is written; that of the nearest part that is there."""
    try:
        node = yaml.compose(text.removeprefix("\ufeff"), Loader=yaml.CSafeLoader)
    except yaml.YAMLError:  # JSON with tabs: its document's first line has to do
        return None
    line = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == part]
            if not pairs:
                return line
            line, node = pairs[-1][0].start_mark.line + 1, pairs[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def _shown(value: Any) -> str:
    text = str(value)
    return f'"{text[:60]}..."' if len(text) > 60 else f'"{text}"'
