"""The static types of expressions and their notation as text. Immutable; compared by structure."""

from __future__ import annotations

from enum import IntEnum

from dovetail import cache


class Kind(IntEnum):
    """The kind of a type; parameters refine lists, maps, opaque types and type values."""

    DYN = 1
    ANY = 2
    BOOL = 3
    BYTES = 4
    DOUBLE = 5
    DURATION = 6
    ERROR = 7
    INT = 8
    LIST = 9
    MAP = 10
    NULL = 11
    OPAQUE = 12
    STRING = 13
    STRUCT = 14
    TIMESTAMP = 15
    TYPE = 16
    PARAM = 17
    UINT = 18


class Type:
    """One type: a kind, its name at run time, and its parameters."""

    __slots__ = ("_hash", "kind", "name", "nullable", "params")

    def __init__(
        self, kind: Kind, name: str, params: tuple[Type, ...] = (), *, nullable: bool = False
    ) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.nullable = nullable  # wrapper types accept null
        self._hash = hash((kind, name, params, nullable))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self._hash == other._hash
            and self.kind == other.kind
            and self.name == other.name
            and self.nullable == other.nullable
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """As messages show it: `list(int)`, `map(string, dyn)`, `wrapper(int)`."""
        shown = {Kind.DURATION: "duration", Kind.TIMESTAMP: "timestamp", Kind.NULL: "null"}.get(
            self.kind, self.name
        )
        if not self.params:
            return f"wrapper({shown})" if self.nullable else shown
        return f"{shown}({', '.join(map(str, self.params))})"


DYN = Type(Kind.DYN, "dyn")
ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
ERROR = Type(Kind.ERROR, "!error!")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
UINT = Type(Kind.UINT, "uint")
TYPE = Type(Kind.TYPE, "type")

QUANTITY = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER = Type(Kind.STRUCT, "kubernetes.Semver")
URL = Type(Kind.STRUCT, "kubernetes.URL")
FORMAT = Type(Kind.STRUCT, "kubernetes.NamedFormat")
IP = Type(Kind.OPAQUE, "net.IP")
CIDR = Type(Kind.OPAQUE, "net.CIDR")
DEVICE = Type(Kind.STRUCT, "kubernetes.DRADevice")


@cache.remembered(4096)
def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type(Kind.LIST, "list", (element,))


@cache.remembered(4096)
def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(Kind.MAP, "map", (key, value))


@cache.remembered(4096)
def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type(Kind.OPAQUE, "optional_type", (value,))


@cache.remembered(4096)
def type_of_type(inner: Type) -> Type:
    """`type(inner)`: the type of a type denotation."""
    return Type(Kind.TYPE, "type", (inner,))


def param(name: str) -> Type:
    """A type parameter of an overload, or a fresh type variable of the checker."""
    return Type(Kind.PARAM, name)


def is_dyn(type_: Type) -> bool:
    """Whether checking is left to run time."""
    return type_.kind in (Kind.DYN, Kind.ANY)


def is_optional(type_: Type) -> bool:
    """Whether it is `optional_type(...)`."""
    return type_.kind == Kind.OPAQUE and type_.name == "optional_type"


NAMED: dict[str, Type] = {
    "dyn": DYN,
    "any": ANY,
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "int": INT,
    "null": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "uint": UINT,
    "type": TYPE,
    "quantity": QUANTITY,
    "semver": SEMVER,
    "url": URL,
    "format": FORMAT,
    "ip": IP,
    "cidr": CIDR,
}


def parse(text: str) -> Type:
    """The type a signature names: `list(<A>)`, `map(string, dyn)`, `optional(<V>)`; `<A>` is a parameter."""
    type_, after = _parse(text.strip())
    if after:
        raise ValueError(f"unexpected {after!r} after type in {text!r}")
    return type_


def parse_list(text: str) -> tuple[Type, ...]:
    """Comma-separated types, possibly none."""
    types: list[Type] = []
    after = text.strip()
    while after:
        type_, after = _parse(after)
        types.append(type_)
        after = after.removeprefix(",").strip()
    return tuple(types)


def _parse(text: str) -> tuple[Type, str]:
    if text.startswith("<"):
        name, _, after = text[1:].partition(">")
        return param(name), after.strip()
    end = next((i for i, c in enumerate(text) if c in "(),"), len(text))
    name, after = text[:end].strip(), text[end:]
    if not after.startswith("("):
        named_type = NAMED.get(name)
        return named_type or Type(Kind.STRUCT, name), after.strip()
    depth = 0
    for i, c in enumerate(after):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if depth == 0:
            params = parse_list(after[1:i])
            return _generic(name, params), after[i + 1 :].strip()
    raise ValueError(f"unbalanced parentheses in type {text!r}")


def _generic(name: str, params: tuple[Type, ...]) -> Type:
    if name == "list":
        return list_of(params[0])
    if name == "map":
        return map_of(params[0], params[1])
    if name == "optional":
        return optional_of(params[0])
    if name == "type":
        return type_of_type(params[0])
    raise ValueError(f"unknown generic type {name!r}")
