"""Reads the parameters of a request into the struct of its endpoint, strictly.

Given path parameters, the query, or a JSON body. An unknown name, a value of the wrong type and a name given twice are
refused, and the refusal names the field. Never guesses what was meant.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from dovetail.web import endpoints, problems

S = TypeVar("S", bound=msgspec.Struct)

_PLACE: Final = re.compile(r" - at `(?P<place>[^`]*)`$")
_MANY: Final = (
    msgspec.inspect.ListType,
    msgspec.inspect.VarTupleType,
    msgspec.inspect.SetType,
    msgspec.inspect.FrozenSetType,
)


class PageParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every list takes besides its own filters."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=endpoints.MOST_ITEMS)] = endpoints.DEFAULT_LIMIT
    cursor: str = ""
    sort: str = ""
    format: Literal["json", "csv"] = "json"


Pairs = Iterable[tuple[str, str]]


def of_query(
    endpoint: endpoints.Endpoint, path: Mapping[str, str], query: Pairs
) -> tuple[Any, PageParams]:
    """The parameters of a GET, and the part that cuts the list."""
    pairs = list(query)
    paging = PageParams()
    if endpoint.is_list:
        own = [pair for pair in pairs if pair[0] in PageParams.__struct_encode_fields__]
        pairs = [pair for pair in pairs if pair not in own]
        paging = _converted(PageParams, own, {})
    return _converted(endpoint.params, pairs, path), paging


def of_body(params: type[S], body: bytes) -> S:
    """The parameters of a POST."""
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise problems.bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise problems.bad_request("the body must be a JSON object")
    _refuse_unknown(params, tree)
    converted: S = convert(params, tree)
    return converted


def convert(kind: Any, tree: Any, *, is_text: bool = False) -> Any:
    """The tree as that type. `is_text` reads numbers and truth values out of text."""
    try:
        return msgspec.convert(tree, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise _misfit(error) from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise problems.bad_request(str(error)) from None


def _converted(params: type[S], pairs: Pairs, path: Mapping[str, str]) -> S:
    many = _fields_of_many(params)
    tree: dict[str, Any] = dict(path)
    for name, value in pairs:
        if name in many:
            tree.setdefault(name, []).append(value)
        elif name in tree:
            raise problems.bad_request(f'"{name}" is given twice', field=name)
        else:
            tree[name] = value
    _refuse_unknown(params, tree)
    converted: S = convert(params, tree, is_text=True)
    return converted


def _refuse_unknown(params: type[msgspec.Struct], tree: Mapping[str, Any]) -> None:
    known = params.__struct_encode_fields__
    for name in tree:
        if name not in known:
            expected = ", ".join(known) or "no parameters"
            raise problems.bad_request(f'unknown parameter "{name}"; known: {expected}', field=name)


@functools.cache
def _fields_of_many(params: type[msgspec.Struct]) -> frozenset[str]:
    """The parameters that may be given more than once."""
    about = msgspec.inspect.type_info(params)
    assert isinstance(about, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in about.fields if isinstance(field.type, _MANY))


def _misfit(error: msgspec.ValidationError) -> problems.Refusal:
    text = str(error)
    place = _PLACE.search(text)
    field = place["place"].removeprefix("$").lstrip(".") if place else ""
    return problems.bad_request(_PLACE.sub("", text).replace("`", ""), field=field)
