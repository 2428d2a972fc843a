"""What a validation says: a kind of problem, the path of the field, a message; and what it may ask about.

Types are upstream's names (FieldValueInvalid and so on), paths upstream's spelling. Collects into a list that
the caller owns. Never raises for bad values.
"""

from collections.abc import Callable
from typing import Final

import msgspec

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
NOT_FOUND: Final = "FieldValueNotFound"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"


class FieldProblem(msgspec.Struct, frozen=True, gc=False):
    """One reason to refuse an object."""

    type: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


Problems = list[FieldProblem]


class ExpressionFault(msgspec.Struct, frozen=True, gc=False):
    """Why a CEL expression cannot be used: it does not compile, or it could cost too much."""

    message: str
    is_too_costly: bool = False


CheckExpression = Callable[[str], ExpressionFault | None]


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a verdict depends on besides the objects: the expression engine, the namespace, the time."""

    check_selector: CheckExpression
    namespace_has_admin_label: bool = False
    namespace: str = ""  # the namespace written to; namespaced objects that name none get it
    now: str = ""  # RFC 3339, whole seconds; written where Kubernetes fills in the current time


def invalid(problems: Problems, path: str, message: str) -> None:
    """The value is not one the field can have."""
    problems.append(FieldProblem(INVALID, path, message))


def required(problems: Problems, path: str, message: str = "is required") -> None:
    """The value is missing."""
    problems.append(FieldProblem(REQUIRED, path, message))


def forbidden(problems: Problems, path: str, message: str) -> None:
    """The value is not allowed here."""
    problems.append(FieldProblem(FORBIDDEN, path, message))


def duplicate(problems: Problems, path: str, value: object) -> None:
    """The value was given before."""
    problems.append(FieldProblem(DUPLICATE, path, f'"{value}" occurs more than once'))


def not_supported(problems: Problems, path: str, value: str, choices: tuple[str, ...]) -> None:
    """The value is none of the choices."""
    problems.append(
        FieldProblem(NOT_SUPPORTED, path, f'"{value}" is not one of {", ".join(choices)}')
    )


def too_long(problems: Problems, path: str, limit: int) -> None:
    """The value has too many bytes."""
    problems.append(FieldProblem(TOO_LONG, path, f"may not be longer than {limit} bytes"))


def too_many(problems: Problems, path: str, count: int, *, limit: int) -> None:
    """The list or map has too many entries."""
    problems.append(
        FieldProblem(TOO_MANY, path, f"has {count} entries, at most {limit} are allowed")
    )


def byte_length(text: str) -> int:
    """The length upstream counts: UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def map_path(path: str, key: str, *, limit: int) -> str:
    """The path of a map entry; a long key is shortened in the middle as upstream shortens it."""
    if byte_length(key) > limit:
        raw = key.encode("utf-8", "surrogatepass")
        shown_bytes = limit - 3
        raw = raw[: (shown_bytes + 1) // 2] + b"..." + raw[len(raw) - shown_bytes // 2 :]
        key = raw.decode("utf-8", "replace")
    return f"{path}[{key}]"
