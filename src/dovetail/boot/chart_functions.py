"""The functions chart templates may call, as Helm has them: the few that ours use.

Given values as YAML knows them. Whatever is not listed here is refused, so that a template cannot come to mean one
thing to Helm and another to us.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import yaml

from dovetail import errors


def to_yaml(value: Any) -> str:
    """YAML in blocks, keys sorted, without the last line's end."""
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=True, width=10**6, allow_unicode=True).rstrip("\n")


def to_json(value: Any) -> str:
    """JSON as Go writes it: keys sorted, no spaces, whole numbers without a point, <, > and & escaped."""
    text = msgspec.json.encode(_whole(value), order="deterministic").decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def indent(spaces: int, text: str) -> str:
    """Every line moved to the right."""
    return "\n".join(" " * spaces + line for line in text.split("\n"))


def merged_over(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings as one, the second deciding where both speak; lists are not joined."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged_over(known, value) if both and isinstance(known, dict) else value
    return result


def shown(value: Any) -> str:
    """A value as it stands in the text of a template."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case str() | int() | float():
            return str(value)
        case None:
            return ""
        case _:
            raise errors.InputError("a list or mapping is written by toYaml or toJson only")


def _required(message: str, value: Any) -> Any:
    if value is None or value == "":
        raise errors.InputError(message)
    return value


def _fail(message: str) -> str:
    raise errors.InputError(message)


def _first_false(*values: Any) -> Any:
    return next((value for value in values if not value), values[-1])


def _first_true(*values: Any) -> Any:
    return next((value for value in values if value), values[-1])


def _whole(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
        case _:
            return value


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "toYaml": to_yaml,
    "fromYaml": yaml.safe_load,
    "toJson": to_json,
    "quote": lambda value: msgspec.json.encode(shown(value)).decode(),
    "indent": indent,
    "nindent": lambda spaces, text: "\n" + indent(spaces, text),
    "default": lambda fallback, value: value or fallback,
    "required": _required,
    "fail": _fail,
    "and": _first_false,
    "or": _first_true,
    "not": lambda value: not value,
    "eq": lambda one, other: one == other,
    "first": lambda values: values[0] if values else None,
    "deepCopy": copy.deepcopy,
    "mergeOverwrite": merged_over,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
}
