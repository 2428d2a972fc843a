"""What expressions can be made of: one template per way to get a value of a type.

`{int}` asks for an expression of that type, `{A}` for one of a type chosen once per use, `{#regex}` for a literal
out of a pool. Kept by hand, apart from the engine's own declarations: what those forget must still be asked.
"""

from __future__ import annotations

import re
from typing import Final

from tests.generators.tree import Type

SCALARS: Final = ("int", "uint", "double", "string", "bytes", "bool", "duration", "timestamp")
ORDERED: Final = SCALARS
OPAQUE: Final = ("quantity", "semver", "ip", "cidr", "url", "format", "type", "null")

TABLE: Final = """
bool: {bool} && {bool}
bool: {bool} && {bool}
bool: {bool} || {bool}
bool: {bool} || {bool}
bool: !{bool}
bool: {A} == {A}
bool: {A} == {A}
bool: {A} == {A}
bool: {A} == {A}
bool: {A} == {A}
bool: {A} != {A}
bool: {dyn} == {A}
bool: {A} != {dyn}
bool: {A} in {list(A)}
bool: {A} in {map(A,B)}
bool: {A} in dyn({list(B)})
bool: {dyn} in {list(A)}
bool: {dyn} in [{#string}, {#string}]
bool: {dyn} in [{#int}]
bool: {dyn} in {{#string}: {A}}
bool: {dyn} == {#string}
bool: {dyn} != {#int}
bool: {dyn}.matches({#regex})
bool: {dyn}.contains({#string})
bool: {dyn} > {#int}
bool: {dyn} >= {#string}
A: {bool} ? {A} : {A}
A: {list(A)}[{#index}]
A: {map(string,A)}[{string}]
A: {map(A,B)}.map(k, k)[0]
A: {optional(A)}.orValue({A})
A: {optional(A)}.value()
A: dyn({A})
dyn: dyn({A})
dyn: {A}
dyn: {map(string,dyn)}.a
bool: {optional(A)}.hasValue()
optional(A): optional.of({A})
optional(A): optional.none()
optional(A): optional.ofNonZeroValue({A})
optional(A): {optional(A)}.or({optional(A)})
optional(A): {list(A)}[?{#index}]
optional(A): {map(string,A)}[?{string}]
optional(A): {optional(list(A))}[?{#index}]
optional(A): {optional(map(string,A))}[?{string}]
optional(A): {optional(list(A))}[{#index}]
optional(A): {optional(map(string,A))}[{string}]
optional(A): {map(string,A)}.?a
optional(A): {optional(map(string,A))}.?a
optional(A): {optional(map(string,A))}.a
optional(A): {list(A)}.first()
optional(A): {list(A)}.last()
list(A): optional.unwrap({list(optional(A))})
list(A): {list(optional(A))}.unwrapOpt()
list(A): {list(A)} + {list(A)}
list(A): {list(A)}.distinct()
list(A): {list(list(A))}.flatten()
list(dyn): dyn({list(A)}).flatten({#small})
list(A): {list(A)}.reverse()
list(A): {list(A)}.slice({#small}, {#small})
list(O): {list(O)}.sort()
bool: {list(O)}.isSorted()
O: {list(O)}.min()
O: {list(O)}.max()
N: {list(N)}.sum()
duration: {list(duration)}.sum()
int: {list(A)}.indexOf({A})
int: {list(A)}.lastIndexOf({A})
bool: {list(A)}.includes({A})
bool: {dyn}.includes({dyn})
list(int): lists.range({#small})
string: {list(string)}.join()
string: {list(string)}.join({string})
bool: sets.contains({list(A)}, {list(A)})
bool: sets.equivalent({list(A)}, {list(A)})
bool: sets.intersects({list(A)}, {list(A)})
int: size({list(A)})
int: {list(A)}.size()
int: {map(A,B)}.size()
int: size({map(A,B)})
int: size({string})
int: {string}.size()
int: {bytes}.size()
int: size({bytes})
int: {int} + {int}
int: {int} - {int}
int: {int} * {int}
int: {int} / {int}
int: {int} % {int}
int: -{int}
uint: {uint} + {uint}
uint: {uint} - {uint}
uint: {uint} * {uint}
uint: {uint} / {uint}
uint: {uint} % {uint}
double: {double} + {double}
double: {double} - {double}
double: {double} * {double}
double: {double} / {double}
double: -{double}
string: {string} + {string}
bytes: {bytes} + {bytes}
duration: {duration} + {duration}
duration: {duration} - {duration}
timestamp: {timestamp} + {duration}
timestamp: {duration} + {timestamp}
timestamp: {timestamp} - {duration}
duration: {timestamp} - {timestamp}
int: int({N})
int: int({string})
int: int({timestamp})
int: int({duration})
uint: uint({N})
uint: uint({string})
double: double({N})
double: double({string})
bool: bool({string})
bool: bool({bool})
string: string({O})
string: string({string})
string: string({ip})
string: string({cidr})
bytes: bytes({string})
bytes: bytes({bytes})
duration: duration({#duration})
duration: duration({duration})
timestamp: timestamp({#timestamp})
timestamp: timestamp({int})
timestamp: timestamp({timestamp})
type: type({A})
type: {#type}
bool: type({A}) == {#type}
bool: {string}.contains({string})
bool: {string}.startsWith({string})
bool: {string}.endsWith({string})
bool: {string}.matches({#regex})
bool: matches({string}, {#regex})
bool: {string}.matches({string})
string: {string}.find({#regex})
list(string): {string}.findAll({#regex})
list(string): {string}.findAll({#regex}, {#small})
string: {string}.charAt({#small})
int: {string}.indexOf({string})
int: {string}.indexOf({string}, {#small})
int: {string}.lastIndexOf({string})
int: {string}.lastIndexOf({string}, {#small})
string: {string}.lowerAscii()
string: {string}.upperAscii()
string: {string}.replace({string}, {string})
string: {string}.replace({string}, {string}, {#small})
list(string): {string}.split({string})
list(string): {string}.split({string}, {#small})
string: {string}.substring({#small})
string: {string}.substring({#small}, {#small})
string: {string}.trim()
string: strings.quote({string})
string: {#formatting}.format({list(A)})
string: {#formatting}.format([{A}, {B}])
quantity: quantity({#quantity})
quantity: {quantity}.add({quantity})
quantity: {quantity}.sub({quantity})
quantity: {quantity}.add({int})
quantity: {quantity}.sub({int})
int: {quantity}.compareTo({quantity})
bool: {quantity}.isLessThan({quantity})
bool: {quantity}.isGreaterThan({quantity})
bool: {quantity}.isInteger()
int: {quantity}.asInteger()
double: {quantity}.asApproximateFloat()
int: sign({quantity})
bool: isQuantity({#quantity})
bool: isQuantity({string})
semver: semver({#version})
semver: semver({#version}, {bool})
bool: isSemver({#version})
bool: isSemver({#version}, {bool})
bool: isSemver({string})
int: {semver}.compareTo({semver})
bool: {semver}.isLessThan({semver})
bool: {semver}.isGreaterThan({semver})
int: {semver}.major()
int: {semver}.minor()
int: {semver}.patch()
ip: ip({#ip})
ip: {cidr}.ip()
bool: isIP({#ip})
bool: isIP({string})
bool: ip.isCanonical({#ip})
int: {ip}.family()
bool: {ip}.isGlobalUnicast()
bool: {ip}.isLinkLocalMulticast()
bool: {ip}.isLinkLocalUnicast()
bool: {ip}.isLoopback()
bool: {ip}.isUnspecified()
cidr: cidr({#cidr})
cidr: {cidr}.masked()
bool: isCIDR({#cidr})
bool: {cidr}.containsIP({ip})
bool: {cidr}.containsIP({#ip})
bool: {cidr}.containsCIDR({cidr})
bool: {cidr}.containsCIDR({#cidr})
int: {cidr}.prefixLength()
url: url({#url})
bool: isURL({#url})
bool: isURL({string})
string: {url}.getEscapedPath()
string: {url}.getHost()
string: {url}.getHostname()
string: {url}.getPort()
string: {url}.getScheme()
map(string,list(string)): {url}.getQuery()
format: format.{#format}()
optional(format): format.named({#formatname})
optional(list(string)): {format}.validate({string})
optional(list(string)): {format}.validate({#ip})
int: {timestamp}.{#date}()
int: {timestamp}.{#date}({#zone})
int: {duration}.{#clock}()
bool: {dyn}.allowed()
bool: {dyn}.{#authz}({string}).{#decision}()
dyn: {dyn}.serviceAccount({string}, {string})
dyn: {optional(dyn)}.value()
bool: has({map(string,A)}.a)
bool: has({map(string,A)}.missing)
bool: {optional(map(string,A))}.hasValue()
list(O): [{O}, {O}].sort()
list(dyn): [{A}, {B}]
map(string,dyn): {url}.getQuery()
map(A,B): {bool} ? {map(A,B)} : {map(A,B)}
"""
COMPARISONS: Final = ("<", "<=", ">", ">=")
NUMERIC: Final = ("int", "uint", "double")


class Template:
    """A way to write a value of `result`: text and placeholders in turn."""

    __slots__ = ("holes", "is_operator", "result", "text")

    def __init__(self, result: str, text: str) -> None:
        self.result = parse(result)
        self.text = re.split(r"\{[#\w(),]*\}", text)
        self.holes = re.findall(r"\{([#\w(),]*)\}", text)
        self.is_operator = bool(re.search(r" (\S+) ", text)) and not re.search(r"\w\(", text)


def parse(text: str) -> Type:
    """A type from its text: `map(string,list(A))`."""
    name, _, inside = text.partition("(")
    if not inside:
        return (name,)
    parts, depth, current = [], 0, ""
    for letter in inside[:-1]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return (name, *(parse(part) for part in (*parts, current)))


def bind(pattern: Type, goal: Type, bound: dict[str, Type]) -> bool:
    """Whether the pattern can be the goal; fills in the letters."""
    name = str(pattern[0])
    if len(name) == 1:
        if (name == "O" and goal not in _ORDERED_TYPES) or (
            name == "N" and goal not in _NUMERIC_TYPES
        ):
            return False
        return bound.setdefault(name, goal) == goal
    if name != goal[0] or len(pattern) != len(goal):
        return False
    return all(
        bind(inner, given, bound) for inner, given in zip(pattern[1:], goal[1:], strict=True)
    )  # type: ignore[arg-type]


def filled(pattern: Type, bound: dict[str, Type]) -> Type:
    """The pattern with its letters replaced."""
    name = str(pattern[0])
    if len(name) == 1:
        return bound[name]
    return (name, *(filled(inner, bound) for inner in pattern[1:]))  # type: ignore[arg-type]


def _comparisons() -> list[str]:
    made = [f"bool: {{O}} {sign} {{O}}" for sign in COMPARISONS * 2]
    made += [
        f"bool: {{{a}}} {sign} {{{b}}}"
        for sign in COMPARISONS
        for a in NUMERIC
        for b in NUMERIC
        if a != b
    ]
    made += [f"bool: {{{a}}} == dyn({{{b}}})" for a in NUMERIC for b in NUMERIC if a != b]
    return [*made, *(f"bool: {{dyn}} {sign} {{O}}" for sign in COMPARISONS)]


_ORDERED_TYPES: Final = frozenset((name,) for name in ORDERED)
_NUMERIC_TYPES: Final = frozenset((name,) for name in NUMERIC)
TEMPLATES: Final = [
    Template(*line.split(": ", 1)) for line in (*TABLE.strip().splitlines(), *_comparisons())
]
