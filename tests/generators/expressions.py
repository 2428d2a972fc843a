"""Random device selectors. Directed by types, so that most compile; a share is bent until it does not.

Given a `random.Random`; returns a tree of pieces whose text is the expression. Sizes are bounded, and nothing that
would make the oracle eat the machine is ever asked: no long ranges, no large exponents.
"""

from __future__ import annotations

import random
import re
from typing import Final

from tests.generators import devices, functions, literals, oddities
from tests.generators.functions import Template
from tests.generators.tree import Piece, Type

BOOL: Final[Type] = ("bool",)
STRING: Final[Type] = ("string",)
DYN: Final[Type] = ("dyn",)
_KINDS: Final = {"string": "string", "int": "int", "bool": "bool", "version": "semver"}
_RANDOM_TYPES: Final = (
    *(("int",),) * 4, *(("string",),) * 4, ("uint",), ("uint",), ("double",), ("double",), ("bytes",), BOOL,
    ("duration",),
    ("timestamp",), ("quantity",), ("quantity",), ("semver",), ("semver",), ("ip",), ("cidr",), ("url",),
    ("null",), ("type",), DYN,
    ("list", ("int",)), ("list", STRING), ("list", DYN), ("map", STRING, ("int",)), ("map", ("int",), STRING),
    ("optional", ("int",)), ("optional", STRING), ("format",),
)  # fmt: skip
_SIMPLEST: Final = {
    "bool": ["true", "false"], "int": ["0", "1"], "uint": ["0u", "1u"], "double": ["0.0", "1.0"],
    "string": ['""', '"a"'],
    "bytes": ["b''"], "dyn": ["0", "1", '""', "true"], "null": ["null"], "list": ["[]", "[0]"], "map": ["{}"],
    "type": ["int"],
    "optional": ["optional.none()", "optional.of(0)"], "duration": ['duration("1s")'], "timestamp": ["timestamp(0)"],
    "quantity": ['quantity("1")'], "semver": ['semver("1.0.0")'],
    "word": [""],
}  # fmt: skip


def expression(rng: random.Random) -> Piece:
    """One selector; about one in eight is bent."""
    maker = _Maker(
        rng, bend=rng.choice((0.0,) * 7 + (0.06,)), loosen=rng.choice((0.0,) * 4 + (0.12,))
    )
    if rng.random() < 0.2:
        made = maker.conditions()
    else:
        made = maker.make(
            BOOL if rng.random() < 0.97 else rng.choice(_RANDOM_TYPES),
            rng.choice((1, 2, 2, 3, 3, 4, 5)),
        )
    return _garbled(made, rng) if rng.random() < 0.05 else made


def simplest(kind: Type) -> list[str]:
    """The plainest texts of a type, to shrink towards."""
    return _SIMPLEST.get(str(kind[0]), [])


class _Maker:
    def __init__(self, rng: random.Random, *, bend: float, loosen: float) -> None:
        self.rng = rng
        self.bend = bend  # how often a type is simply wrong
        self.loosen = loosen  # how often a type is wrong at run time only
        self.scope: list[tuple[str, Type]] = []
        self.left = rng.choice((30, 60, 60, 120))  # pieces
        self.loops = 0
        self.is_strict = False  # inside a literal whose elements must have one static type

    def make(self, goal: Type, depth: int) -> Piece:
        self.left -= 1
        if self.bend and self.rng.random() < self.bend:
            goal = self.rng.choice(_RANDOM_TYPES)
        if self.loosen and depth >= 0 and self.rng.random() < self.loosen:
            return Piece(
                goal, "dyn(", self.make(self.rng.choice((goal, *_RANDOM_TYPES)), depth - 1), ")"
            )
        if self.bend and self.rng.random() < 0.05:
            return Piece(goal, self.rng.choice(oddities.ODDITIES))
        if depth <= 0 or self.left <= 0:
            return self.leaf(goal)
        roll = self.rng.random()
        if roll < 0.12:
            return self.leaf(goal)
        if roll < 0.30 and (piece := self.macro(goal, depth)) is not None:
            return piece
        if roll < 0.42 and (piece := self.device(goal, depth)) is not None:
            return piece
        return self.call(goal, depth)

    def conditions(self) -> Piece:
        """What people write: a few short conditions joined."""
        parts: list[str | Piece] = [self.make(BOOL, 2)]
        for _ in range(self.rng.choice((1, 2, 2, 3))):
            parts += [
                self.rng.choice((" && ", " && ", " || ")),
                self.make(BOOL, self.rng.choice((1, 2, 2))),
            ]
        return Piece(BOOL, *parts)

    def leaf(self, goal: Type) -> Piece:
        known = [name for name, kind in self.scope if goal == DYN or kind in (goal, DYN)]
        if known and self.rng.random() < 0.6:
            return Piece(goal, self.rng.choice(known))
        if self.rng.random() < 0.3 and (read := self.device(goal, 0)) is not None:
            return read
        match goal:
            case ("list", inner):
                return self.listed(goal, inner, 0)  # type: ignore[arg-type]
            case ("map", key, inner):
                return self.mapped(goal, key, inner, depth=0)  # type: ignore[arg-type]
            case ("optional", inner):
                return Piece(goal, "optional.of(", self.leaf(inner), ")")  # type: ignore[arg-type]
        return Piece(goal, literals.literal(str(goal[0]), self.rng))

    def call(self, goal: Type, depth: int) -> Piece:
        if goal[0] in ("list", "map") and self.rng.random() < 0.4:
            if goal[0] == "list":
                return self.listed(goal, goal[1], depth)  # type: ignore[arg-type]
            return self.mapped(goal, goal[1], goal[2], depth=depth)  # type: ignore[arg-type]
        for _ in range(40):
            template = self.rng.choice(functions.TEMPLATES)
            bound: dict[str, Type] = {}
            if functions.bind(template.result, goal, bound) and (
                len(bound) == 0 or self.rng.random() < 0.25
            ):
                return self.applied(template, goal, bound, depth=depth)
        fitting = [
            template
            for template in functions.TEMPLATES
            if functions.bind(template.result, goal, {})
        ]
        if not fitting:
            return self.leaf(goal)
        template, bound = self.rng.choice(fitting), {}
        functions.bind(template.result, goal, bound)
        return self.applied(template, goal, bound, depth=depth)

    def applied(
        self, template: Template, goal: Type, bound: dict[str, Type], *, depth: int
    ) -> Piece:
        parts: list[str | Piece] = [template.text[0]]
        for hole, text in zip(template.holes, template.text[1:], strict=True):
            parts.append(self.argument(hole, bound, depth - 1))
            parts.append(text)
        if template.is_operator and self.rng.random() < 0.85:
            parts = ["(", *parts, ")"]
        return Piece(goal, *parts)

    def argument(self, hole: str, bound: dict[str, Type], depth: int) -> Piece | str:
        if hole.startswith("#"):
            return literals.pooled(hole[1:], self.rng)
        pattern = functions.parse(hole)
        for letter, choices in (
            ("A", _RANDOM_TYPES),
            ("B", _RANDOM_TYPES),
            ("O", _ORDERED),
            ("N", _NUMBERS),
        ):
            if letter in hole:
                bound.setdefault(letter, self.rng.choice(choices))
        return self.make(functions.filled(pattern, bound), depth)

    def listed(self, goal: Type, inner: Type, depth: int) -> Piece:
        parts: list[str | Piece] = ["["]
        was_strict, self.is_strict = self.is_strict, self.rng.random() < 0.85
        for index in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4))):
            if index:
                parts.append(", ")
            if self.rng.random() < 0.06:
                parts += ["?", self.make(("optional", inner), depth - 1)]
            else:
                parts.append(self.element(inner, depth - 1))
        self.is_strict = was_strict
        return Piece(
            goal, *parts, self.rng.choice(("]", "]", "]", "]" if len(parts) == 1 else ",]"))
        )

    def mapped(self, goal: Type, key: Type, inner: Type, *, depth: int) -> Piece:
        parts: list[str | Piece] = ["{"]
        was_strict, self.is_strict = self.is_strict, self.rng.random() < 0.85
        for index in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            if index:
                parts.append(", ")
            if self.rng.random() < 0.06:
                parts += ["?", self.make(key, 0), ": ", self.make(("optional", inner), depth - 1)]
            else:
                parts += [self.key(key), ": ", self.element(inner, depth - 1)]
        self.is_strict = was_strict
        return Piece(goal, *parts, "}")

    def element(self, kind: Type, depth: int) -> Piece:
        if kind == DYN and self.is_strict:
            return Piece(kind, "dyn(", self.make(kind, depth), ")")
        return self.make(kind, depth)

    def key(self, kind: Type) -> Piece:
        if kind == STRING and self.rng.random() < 0.6:
            return Piece(kind, self.rng.choice(('"a"', '"b"', '"model"', "'c'")))
        return self.make(kind, 0)

    def macro(self, goal: Type, depth: int) -> Piece | None:
        if self.loops >= 3:
            return None
        self.loops += 1
        try:
            return (
                _MACROS[goal[0]](self, goal, depth)
                if goal[0] in _MACROS and self.rng.random() < 0.8
                else _bind(self, goal, depth)
            )
        finally:
            self.loops -= 1

    def body(self, kind: Type, depth: int, *variables: tuple[str, Type]) -> Piece:
        """An expression that may use further variables."""
        self.scope += variables
        made = self.make(kind, depth)
        del self.scope[len(self.scope) - len(variables) :]
        return made

    def variable(self) -> str:
        return (
            self.rng.choice(("x", "y", "k", "v", "i", "e"))
            if self.rng.random() < 0.9
            else self.rng.choice(("device", "size", "_a1"))
        )

    def iterable(self, depth: int) -> tuple[Piece, Type, Type]:
        """A list or map with its key and element types."""
        inner = self.rng.choice(_RANDOM_TYPES)
        if self.rng.random() < 0.25:
            key = self.rng.choice((STRING, STRING, ("int",), BOOL, ("uint",)))
            return self.make(("map", key, inner), depth - 1), key, inner
        if self.rng.random() < 0.12:
            domain = self.domain()
            return Piece(("map", STRING, DYN), "device.attributes[", domain, "]"), STRING, DYN
        if self.rng.random() < 0.05:
            return (
                Piece(("map", STRING, ("map", STRING, DYN)), "device.attributes"),
                STRING,
                ("map", STRING, DYN),
            )
        return self.make(("list", inner), depth - 1), ("int",), inner

    def domain(self) -> Piece:
        roll = self.rng.random()
        if roll < 0.6:
            return Piece(STRING, '"gpu.example.com"')
        if roll < 0.72:
            return Piece(STRING, "device.driver")
        if roll < 0.78:
            return Piece(STRING, '"gpu." + "example.com"')
        if roll < 0.95:
            return Piece(STRING, f'"{self.rng.choice(devices.DOMAINS)}"')
        return self.make(STRING, 1)

    def name(self, goal: Type) -> str:
        expected = [name for name, kind in devices.ATTRIBUTES.items() if _read_as(kind) == goal]
        if not expected or self.rng.random() < 0.08:
            expected = [*devices.ATTRIBUTES, "missing", "mem"]
        return self.rng.choice(expected)

    def device(self, goal: Type, depth: int) -> Piece | None:
        made = _READS.get(str(goal[0]))
        readable = goal == DYN or (
            goal in _READABLE and not (self.is_strict and goal != ("quantity",))
        )
        if made and (not readable or self.rng.random() < 0.4):
            return made(self, goal, depth)
        return self.attribute(goal, depth) if readable else None

    def attribute(self, goal: Type, depth: int) -> Piece:
        field = "capacity" if goal == ("quantity",) else "attributes"
        name = (
            self.rng.choice((*devices.CAPACITIES, "missing"))
            if field == "capacity"
            else self.name(goal)
        )
        head: list[str | Piece] = [f"device.{field}[", self.domain(), "]"]
        roll = self.rng.random()
        if roll < 0.6:
            return Piece(goal, *head, f".{name}")
        if roll < 0.8:
            return Piece(goal, *head, f'["{name}"]')
        if roll < 0.84:
            return Piece(goal, *head, "[", self.make(STRING, min(depth, 1)), "]")
        if roll < 0.92:
            return Piece(goal, *head, f".?{name}.orValue(", self.make(goal, min(depth, 1)), ")")
        if roll < 0.96:
            return Piece(goal, *head, f'[?"{name}"].orValue(', self.make(goal, min(depth, 1)), ")")
        return Piece(
            goal,
            f"device.{field}[?",
            self.domain(),
            f"].{name}.orValue(",
            self.make(goal, min(depth, 1)),
            ")",
        )


def _read_as(kind: str) -> Type:
    return ("list", (_KINDS[kind[:-1]],)) if kind.endswith("s") else (_KINDS[kind],)


def _bool_read(maker: _Maker, goal: Type, depth: int) -> Piece:
    name = maker.rng.choice((*devices.ATTRIBUTES, "missing"))
    field = maker.rng.choice(("attributes", "attributes", "capacity"))
    domain = maker.domain()
    choice = maker.rng.randrange(9)
    match choice:
        case 0 | 1:
            return Piece(goal, f"has(device.{field}[", domain, f"].{name})")
        case 2 | 3:
            return Piece(goal, f'"{name}" in device.{field}[', domain, "]")
        case 4:
            return Piece(goal, domain, f" in device.{field}")
        case 5:
            return Piece(goal, "device.allowMultipleAllocations")
        case 6:
            return Piece(goal, f"device.{field}[", domain, f"].?{name}.hasValue()")
        case 7:
            return Piece(
                goal,
                "has(device.",
                maker.rng.choice(
                    ("driver", "attributes", "capacity", "allowMultipleAllocations", "nothing")
                ),
                ")",
            )
        case _:
            return Piece(goal, "device.driver == ", domain)


def _string_read(maker: _Maker, goal: Type, depth: int) -> Piece:
    return Piece(goal, "device.driver")


def _map_read(maker: _Maker, goal: Type, depth: int) -> Piece | None:
    if goal[1] != STRING:
        return None
    if goal[2] == ("quantity",):
        return Piece(goal, "device.capacity[", maker.domain(), "]")
    return Piece(goal, "device.attributes[", maker.domain(), "]")


def _optional_read(maker: _Maker, goal: Type, depth: int) -> Piece | None:
    inner: Type = goal[1]  # type: ignore[assignment]
    if inner not in _READABLE:
        return None
    field = "capacity" if inner == ("quantity",) else "attributes"
    name = (
        maker.rng.choice((*devices.CAPACITIES, "missing"))
        if field == "capacity"
        else maker.name(inner)
    )
    form = maker.rng.randrange(4)
    head: list[str | Piece] = [f"device.{field}[", maker.domain(), "]"]
    match form:
        case 0:
            return Piece(goal, *head, f".?{name}")
        case 1:
            return Piece(goal, *head, f'[?"{name}"]')
        case 2:
            return Piece(goal, f"device.{field}[?", maker.domain(), f"].?{name}")
        case _:
            return Piece(goal, f"device.?{field}[", maker.domain(), f"].{name}")


def _quantifier(maker: _Maker, goal: Type, depth: int) -> Piece:
    made, key, inner = maker.iterable(depth)
    is_map = made.kind[0] == "map"
    name, other = maker.variable(), maker.variable()
    if maker.rng.random() < 0.6:
        element = key if is_map else inner
        word = maker.rng.choice(("all", "exists", "exists_one"))
        return Piece(
            goal, made, f".{word}({name}, ", maker.body(BOOL, depth - 1, (name, element)), ")"
        )
    word = maker.rng.choice(("all", "exists", "existsOne", "exists_one"))
    return Piece(
        goal,
        made,
        f".{word}({name}, {other}, ",
        maker.body(BOOL, depth - 1, (name, key), (other, inner)),
        ")",
    )


def _list_macro(maker: _Maker, goal: Type, depth: int) -> Piece:
    target: Type = goal[1]  # type: ignore[assignment]
    name, other = maker.variable(), maker.variable()
    choice = maker.rng.randrange(6)
    if choice == 0:
        made = maker.make(goal, depth - 1)
        return Piece(
            goal, made, f".filter({name}, ", maker.body(BOOL, depth - 1, (name, target)), ")"
        )
    if choice == 1:
        made = maker.make(goal, depth - 1)
        kind = maker.rng.choice(_ORDERED)
        return Piece(
            goal, made, f".sortBy({name}, ", maker.body(kind, depth - 1, (name, target)), ")"
        )
    made, key, inner = maker.iterable(depth)
    element = key if made.kind[0] == "map" else inner
    if choice in (2, 3):
        parts: list[str | Piece] = [made, f".map({name}, "]
        if choice == 3:
            parts += [maker.body(BOOL, depth - 1, (name, element)), ", "]
        return Piece(goal, *parts, maker.body(target, depth - 1, (name, element)), ")")
    parts = [made, f".transformList({name}, {other}, "]
    if choice == 5:
        parts += [maker.body(BOOL, depth - 1, (name, key), (other, inner)), ", "]
    return Piece(goal, *parts, maker.body(target, depth - 1, (name, key), (other, inner)), ")")


def _map_macro(maker: _Maker, goal: Type, depth: int) -> Piece:
    made, key, inner = maker.iterable(depth)
    name, other = maker.variable(), maker.variable()
    given = ((name, key), (other, inner))
    is_entry = maker.rng.random() < 0.4
    parts: list[str | Piece] = [
        made,
        f".transformMap{'Entry' if is_entry else ''}({name}, {other}, ",
    ]
    if maker.rng.random() < 0.4:
        parts += [maker.body(BOOL, depth - 1, *given), ", "]
    kind: Type = goal if is_entry else goal[2]  # type: ignore[assignment]
    return Piece(goal, *parts, maker.body(kind, depth - 1, *given), ")")


def _optional_macro(maker: _Maker, goal: Type, depth: int) -> Piece:
    source = maker.rng.choice(_RANDOM_TYPES)
    name = maker.variable()
    is_flat = maker.rng.random() < 0.5
    kind: Type = goal if is_flat else goal[1]  # type: ignore[assignment]
    word = "optFlatMap" if is_flat else "optMap"
    made = maker.make(("optional", source), depth - 1)
    return Piece(goal, made, f".{word}({name}, ", maker.body(kind, depth - 1, (name, source)), ")")


def _bind(maker: _Maker, goal: Type, depth: int) -> Piece:
    kind = maker.rng.choice(_RANDOM_TYPES)
    name = maker.variable()
    made = maker.make(kind, depth - 1)
    return Piece(
        goal, f"cel.bind({name}, ", made, ", ", maker.body(goal, depth - 1, (name, kind)), ")"
    )


def _garbled(piece: Piece, rng: random.Random) -> Piece:
    """The text with letters or words lost, doubled, swapped or added; every word can be cut out again."""
    words = list(str(piece)) if rng.random() < 0.4 else _WORDS.findall(str(piece))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, other = rng.randrange(len(words) + 1), rng.randrange(len(words) + 1)
        match rng.randrange(5):
            case 0:
                del words[at : at + rng.choice((1, 1, 2, 5))]
            case 1:
                words[at:at] = words[other : other + rng.choice((1, 3))]
            case 2 if words:
                at, other = at % len(words), other % len(words)
                words[at], words[other] = words[other], words[at]
            case _:
                words.insert(at, rng.choice(_STRAY))
    return Piece(piece.kind, *(Piece(("word",), word) for word in words))


_WORDS: Final = re.compile(r"""\s+|[\w.]+|'[^']*'|"[^"]*"|&&|\|\||[=!<>]=|.""")
_STRAY: Final = (
    "(", ")", '"', "'", ".", "[", "]", "{", "}", "?", ":", ",", "&&", "||", "!", "-", " in ", "\\", "`",
    "//x\n", "1", "é",
    "true", "null", "0x", "1u", "1.5", "e1", "r", "b", "'''", "\t", "\r\n", "\f", "\u00a0", "?.", "[?", " as ",
    "==", "<",
)  # fmt: skip
_ORDERED: Final = tuple((name,) for name in functions.ORDERED)
_NUMBERS: Final = tuple((name,) for name in functions.NUMERIC)
_READABLE: Final = frozenset(
    {("quantity",), *(_read_as(kind) for kind in devices.ATTRIBUTES.values())}
)
_READS: Final = {
    "bool": _bool_read,
    "string": _string_read,
    "map": _map_read,
    "optional": _optional_read,
}
_MACROS: Final = {
    "bool": _quantifier,
    "list": _list_macro,
    "map": _map_macro,
    "optional": _optional_macro,
}
