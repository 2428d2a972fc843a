"""The prices that history recorded, as one price list: each document counts for the time in which it was in force.

Given records and the prices of the question. Prices of the question count alone; without any, the recorded ones do, so
that a later change of prices does not change what the past cost. Never prices a time before the first record of prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dovetail import errors, timestamps
from dovetail.answer.cost import price_file, price_list
from dovetail.answer.cost.cost_window import Window, moment_of
from dovetail.model.accounting import records

SOURCE: Final = "the recorded prices"


def in_force(
    prices: price_list.PriceList, recorded: Iterable[records.PriceList], window: Window
) -> price_list.PriceList:
    """The prices of the question, else those that were recorded for its window."""
    if prices != price_list.PriceList():
        return prices
    own = [each for each in recorded if _touches(each, window)]
    return joined(sorted(own, key=lambda each: each.start)) if own else prices


def joined(recorded: Sequence[records.PriceList]) -> price_list.PriceList:
    """Recorded documents as one list, with the budgets of the last. Raises InputError where currencies differ."""
    read = [(each, price_file.read(each.document, each.name)) for each in recorded]
    _refuse_two_currencies(read)
    _, last = read[-1]
    return price_list.PriceList(
        source=SOURCE,
        currency=last.currency,
        prices=tuple(
            msgspec.structs.replace(price, match=_during(price.match, span))
            for span, listed in read
            for price in listed.prices
        ),
        carbon=tuple(
            msgspec.structs.replace(carbon, match=_during(carbon.match, span))
            for span, listed in read
            for carbon in listed.carbon
        ),
        budgets=last.budgets,
    )


def _touches(recorded: records.PriceList, window: Window) -> bool:
    return recorded.start < window.end and (recorded.end is None or recorded.end > window.start)


def _refuse_two_currencies(
    read: Sequence[tuple[records.PriceList, price_list.PriceList]],
) -> None:
    first = read[0][1].currency
    for span, listed in read:
        if listed.currency != first:
            since = timestamps.to_text(moment_of(span.start))
            raise errors.InputError(
                f"prices were recorded in {first or 'no currency'}, and in {listed.currency or 'none'} "
                f"since {since}; ask for a window on one side of that time, or give --prices FILE"
            )


def _during(match: price_list.Match, span: records.PriceList) -> price_list.Match:
    """The entry within the time of its document. What ends before it begins never counts."""
    start = span.start if match.start is None else max(match.start, span.start)
    ends = [end for end in (match.end, span.end) if end is not None]
    return msgspec.structs.replace(match, start=start, end=min(ends, default=None))
