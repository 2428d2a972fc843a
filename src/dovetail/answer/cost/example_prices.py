"""Placeholder prices, to try `dovetail cost` without a price file. Never used unless they are asked for by name.

One GPU-hour in US dollars. The figures are taken from no price list: they are chosen so that a newer board costs more
than an older one, and nothing else about them is meant. Every answer that uses them says so: a bill needs prices of
one's own.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.cost import price_list

# The order matters: the first pattern that matches counts.
_CENTS: Final = (
    ("*GB200*", 1050),
    ("*B200*", 800),
    ("*H200*", 600),
    ("*H100*", 500),
    ("*A100*80GB*", 370),
    ("*A100*", 290),
    ("*L40S*", 190),
    ("*L4*", 80),
    ("*A10*", 110),
    ("*A30*", 90),
    ("*V100*", 250),
    ("*T4*", 40),
    ("*MI300X*", 450),
)


def _price(product: str, cents: int) -> price_list.Price:
    nano = cents * price_list.NANO // 100
    return price_list.Price(match=price_list.Match(product=product), nano_per_hour=nano)


PRICES: Final = price_list.PriceList(
    source="the examples",
    currency="USD",
    prices=tuple(_price(product, cents) for product, cents in _CENTS),
    is_example=True,
)
