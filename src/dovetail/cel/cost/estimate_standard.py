"""Estimates for the language's own operations, by overload. Whatever is missing here costs 1.

`&&`, `||` and `?:` are not here: they depend on the costs of their operands, which only `estimate` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dovetail.cel.cost.cost_range import ONE, REGEX, TRAVERSAL, Range, wrapped
from dovetail.cel.cost.cost_standard import TEXT_COMPARISONS
from dovetail.cel.cost.estimate_call import Estimate, Operand, Site


def _format(site: Site) -> Estimate | None:
    if site.target is None:
        return None
    return Estimate(site.target.size_from_text.scaled(TRAVERSAL))


def _to_bytes(site: Site) -> Estimate:
    size = site.args[0].size_from_text
    return Estimate(size.scaled(TRAVERSAL), Range(size.min, wrapped(size.max * 4)))


def _from_bytes(site: Site) -> Estimate:
    size = site.args[0].size_from_text
    return Estimate(size.scaled(TRAVERSAL), Range(size.min // 4, size.max))


def _quote(site: Site) -> Estimate:
    size = site.args[0].size_from_text
    return Estimate(size.scaled(TRAVERSAL), Range(wrapped(size.min + 2), wrapped(size.max * 2 + 2)))


def _affix(site: Site) -> Estimate:
    return Estimate(site.args[0].size_from_text.scaled(TRAVERSAL))


def _in_list(site: Site) -> Estimate:
    return Estimate(site.args[1].size_from_text.scaled(1.0))


def _matches(site: Site) -> Estimate:
    text, pattern = _text_and_argument(site)
    # One character more than the text has, so that an empty text still pays for its pattern.
    walk = text.size_from_text.plus(ONE).scaled(TRAVERSAL)
    return Estimate(walk.times(pattern.size_from_text.scaled(REGEX)))


def _contains(site: Site) -> Estimate:
    text, part = _text_and_argument(site)
    return Estimate(
        text.size_from_text.scaled(TRAVERSAL).times(part.size_from_text.scaled(TRAVERSAL))
    )


def _concatenate(site: Site) -> Estimate:
    size = site.args[0].size_from_text.plus(site.args[1].size_from_text)
    return Estimate(size.scaled(TRAVERSAL), size)


def _append(site: Site) -> Estimate:
    return Estimate(ONE, site.args[0].size_from_text.plus(site.args[1].size_from_text))


def _shorter(site: Site) -> Estimate:
    most = min(site.args[0].size_from_text.max, site.args[1].size_from_text.max)
    return Estimate(Range(min(1, most), most).scaled(TRAVERSAL))


def _text_and_argument(site: Site) -> tuple[Operand, Operand]:
    first = site.args[0] if site.target is None else site.target
    return first, site.args[-1]


ESTIMATORS: Final[Mapping[str, Callable[[Site], Estimate | None]]] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _concatenate,
    "add_bytes": _concatenate,
    "add_list": _append,
    **dict.fromkeys((*TEXT_COMPARISONS, "equals", "not_equals"), _shorter),
}
