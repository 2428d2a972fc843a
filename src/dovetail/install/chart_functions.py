"""The template functions that our chart uses, with Helm's behaviour.

Given values as YAML reads them. Functions that are not listed are refused, so that a template never renders differently
here than in Helm.
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
    """YAML in block style, keys sorted, without a final newline."""
    return yaml.safe_dump(
        value, default_flow_style=False, sort_keys=True, width=10**6, allow_unicode=True
    ).rstrip("\n")


def to_json(value: Any) -> str:
    """JSON as Go writes it: keys sorted, no spaces, whole numbers without a point, <, > and & escaped."""
    text = msgspec.json.encode(_with_whole_numbers(value), order="deterministic").decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def indent(spaces: int, text: str) -> str:
    """Every line indented."""
    return "\n".join(" " * spaces + line for line in text.split("\n"))


def merged_over(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings merged, the second taking precedence; lists are replaced, not joined."""
    result = dict(base)
    for key, value in over.items():
        existing = result.get(key)
        if isinstance(existing, dict) and isinstance(value, dict):
            result[key] = merged_over(existing, value)
        else:
            result[key] = value
    return result


def shown(value: Any) -> str:
    """A value as template output."""
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
            raise errors.InputError("a list or mapping can be written with toYaml or toJson only")


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


def _dict(*words: Any) -> dict[str, Any]:
    """A mapping of names and values in turn."""
    return dict(zip(words[::2], words[1::2], strict=True))


def _with_whole_numbers(value: Any) -> Any:
    """Floats without a fraction as integers, at any depth."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _with_whole_numbers(element) for key, element in value.items()}
        case list():
            return [_with_whole_numbers(element) for element in value]
        case _:
            return value


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "toYaml": to_yaml,
    "fromYaml": yaml.safe_load,
    "toJson": to_json,
    "replace": lambda old, new, text: text.replace(old, new),
    "quote": lambda value: msgspec.json.encode(shown(value)).decode(),
    "indent": indent,
    "nindent": lambda spaces, text: "\n" + indent(spaces, text),
    "default": lambda fallback, value: value or fallback,
    "required": _required,
    "fail": _fail,
    "and": _first_false,
    "or": _first_true,
    "not": lambda value: not value,
    "eq": lambda left_side, right_side: left_side == right_side,
    "has": lambda element, elements: element in (elements or ()),
    "first": lambda values: values[0] if values else None,
    "dict": _dict,
    "deepCopy": copy.deepcopy,
    "mergeOverwrite": merged_over,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
}
