"""Expressions written to hurt: each ends with a refusal or a verdict, within bounded time and memory.

The whole set runs once in a process with hard limits; a few are looked at more closely here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from dovetail.cel import selectors
from dovetail.cel.evaluate import program
from dovetail.errors import ExpressionError
from tests.fuzz.cel import view

KIB: Final = 1024
LIMIT: Final = 10 * KIB  # what the API allows an expression to have
MEMORY_BYTES: Final = 1 << 30
CPU_SECONDS: Final = 60
DEVICE: Final = view(
    {
        "driver": "d",
        "attributes": {
            "long": {"string": "a" * 64},
            "n": {"int": 2**63 - 1},
            "many": {"ints": list(range(48))},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }
)


def repeated(text: str) -> str:
    """The text as often as an expression may hold it."""
    return text * (LIMIT // len(text))


def nested_macros(depth: int, range_text: str) -> str:
    """Loops inside loops, each over the same list."""
    names = [f"x{at}" for at in range(depth)]
    opened = "".join(f"{range_text}.all({name}, " for name in names)
    return f"{opened}{' + '.join(names)} >= 0{')' * depth}"


def doubling(steps: int) -> str:
    """A string that doubles with every binding."""
    opened = "cel.bind(s0, 'aaaaaaaaaaaaaaaa', " + "".join(
        f"cel.bind(s{at + 1}, s{at} + s{at}, " for at in range(steps)
    )
    return f"{opened}s{steps}.size() > 0{')' * (steps + 1)}"


HOSTILE: Final[dict[str, str]] = {
    "deep parentheses": "(" * 5000 + "true" + ")" * 5000,
    "open parentheses": repeated("("),
    "closed parentheses": repeated(")"),
    "deep lists": "[" * 5000 + "]" * 5000,
    "open lists": repeated("["),
    "deep maps": "{1:" * 2000 + "1" + "}" * 2000,
    "open maps": repeated("{"),
    "many nots": repeated("!")[:-4] + "true",
    "many minuses": repeated("-")[:-6] + "1 > 0",
    "spaced minuses": repeated("- ")[:-6] + "1 > 0",
    "long ternary": repeated("true ? true : ")[:-4] + "true",
    "nested ternary": "true ? (" * 1000 + "true" + ") : false" * 100,
    "many ors": repeated("true || ")[:-8] + " false",
    "many ands": repeated("true && ")[:-8] + " false",
    "mixed logic": repeated("true || false && ")[:-17] + " true",
    "many comparisons": repeated("1 == ")[:-4] + "1",
    "many sums": "0" + repeated("+1")[:-8] + " > 0",
    "many selections": "device" + repeated(".a")[:-8],
    "many indexes": "device" + repeated("[0]")[:-8],
    "many calls": "'a'" + repeated(".trim()")[:-16] + " == 'a'",
    "many optional reads": "device" + repeated(".?a")[:-30] + ".hasValue()",
    "long list": "1 in [" + repeated("1,")[:-10] + "]",
    "long map": "{" + ",".join(f"{at}:1" for at in range(1200)) + "}.size() > 0",
    "duplicate keys": "{" + "1:1," * 2000 + "}.size() > 0",
    "huge integer": "9" * LIMIT,
    "ten thousand digits": "1" * 10_000 + " > 0",
    "huge hexadecimal": "0x" + "F" * 10_000 + " > 0",
    "huge unsigned": "9" * 10_000 + "u > 0u",
    "huge double": "9" * 10_000 + ".0 > 0.0",
    "long fraction": "0." + "9" * 10_000 + " > 0.0",
    "huge exponent": "1e999999999 > 0.0",
    "tiny exponent": "1e-999999999 == 0.0",
    "huge quantity": "quantity('1e999999999').isInteger()",
    "huge negative quantity": "isQuantity('-1e-2147483648')",
    "long quantity": f"isQuantity('{'9' * 10_000}')",
    "long version": f"isSemver('1.2.{'9' * 10_000}')",
    "long duration": f"duration('{'9' * 10_000}h') > duration('1s')",
    "huge timestamp": "timestamp(9223372036854775807) > timestamp(0)",
    "huge conversion": f"int('{'9' * 9_000}') > 0",
    "nested macros, constants": nested_macros(8, "[1,2,3,4,5,6,7,8,9,10]"),
    "nested macros, attributes": nested_macros(8, "device.attributes['d'].many"),
    "nested macros, range": nested_macros(6, "lists.range(1000)"),
    "nested maps": "[1,2,3]"
    + "".join(f".map(x{at}, [x{at}, x{at}])" for at in range(40))
    + ".size() > 0",
    "growing lists": "cel.bind(a0, [1,2,3,4], "
    + "".join(f"cel.bind(a{at + 1}, a{at} + a{at}, " for at in range(60))
    + "true"
    + ")" * 61,
    "growing lists, used": "cel.bind(a0, [1,2,3,4], "
    + "".join(f"cel.bind(a{at + 1}, a{at} + a{at}, " for at in range(60))
    + "a60.size() > 0"
    + ")" * 61,
    "growing string": doubling(60),
    "growing by replace": "'"
    + "a" * 1000
    + "'"
    + ".replace('a', 'aaaaaaaaaa')" * 20
    + ".size() > 0",
    "growing by join": "lists.range(1000).map(i, string(i)).join('" + "x" * 5000 + "').size() > 0",
    "growing by format": "'%s%s%s%s'.format(['a', 'b', 'c', 'd'])"
    + ".replace('', '0123456789')" * 10
    + ".size() > 0",
    "wide format": "'%.999999999f'.format([1.5]) != ''",
    "huge range": "lists.range(9223372036854775807).size() > 0",
    "big range": "lists.range(100000000).size() > 0",
    "range of an attribute": "lists.range(device.attributes['d'].n).size() > 0",
    "sorted range": "lists.range(900000).reverse().sort().size() > 0",
    "flattened range": "lists.range(1000).map(i, lists.range(1000)).flatten().size() > 0",
    "deep flatten": "[[[[1]]]].flatten(9223372036854775807) == [1]",
    "catastrophic groups": "('" + "a" * 5000 + "!').matches('(a+)+$')",
    "catastrophic stars": "('" + "a" * 5000 + "').matches('(.*)*(.*)*(.*)*b')",
    "catastrophic choice": "('" + "a" * 5000 + "').matches('(a|aa|a?)+$b')",
    "catastrophic attribute": "device.attributes['d'].long.matches('(a*)*(a*)*(a*)*b')",
    "counted pattern": "'a'.matches('((((a{1,100}){1,100}){1,100}){1,100})')",
    "long pattern": "'a'.matches('" + "(a|b)*" * 1500 + "')",
    "deep pattern": "'a'.matches('" + "(" * 4000 + "a" + ")" * 4000 + "')",
    "pattern of classes": "'a'.matches('" + "[^a]" * 2000 + "')",
    "found everywhere": "('" + "ab" * 2500 + "').findAll('a*').size() > 0",
    "long string": "'" + "x" * (LIMIT - 10) + "' == ''",
    "string of escapes": "'" + "\\n" * 5000 + "' == ''",
    "string of emoji": "'" + "\U0001f600" * 2500 + "'.size() > 0",
    "unterminated string": "'" + "x" * 9000,
    "unterminated triple": '"""' + "x" * 9000,
    "unterminated bytes": "b'" + "\\x" * 4000,
    "only quotes": repeated("'"),
    "only backslashes": repeated("\\"),
    "only dots": repeated("."),
    "only question marks": repeated("?"),
    "only commas": repeated(","),
    "only newlines": repeated("\n"),
    "only comments": repeated("//\n") + "",
    "comment without end": "true //" + "x" * 9000,
    "unicode garbage": "".join(chr(0x100 + at * 37 % 0x5000) for at in range(3000)),
    "right-to-left": "\u202e" * 3000 + "true",
    "zero width": "tr\u200bue",
    "lone surrogate": "'\ud800' == ''",
    "lone surrogates": "\udfff" * 3000,
    "escaped surrogate": "'\\ud800' == ''",
    "beyond unicode": "'\\U00110000' == ''",
    "nul": "true\0",
    "nuls": "\0" * LIMIT,
    "nul in a string": "'\0' == ''",
    "byte order mark": "\ufefftrue",
    "empty": "",
    "blank": " " * LIMIT,
    "too long by one": "true" + " " * (LIMIT - 3),
    "far too long": "true || " * 1_000_000 + "true",
    "long name": "a" * LIMIT,
    "many names": repeated("a."),
    "reserved": "for while if else package namespace",
    "backquotes": repeated("`"),
    "message": "a" + ".b" * 3000 + "{c: 1}",
    "message fields": "google.protobuf.Struct{" + "a: 1, " * 1500 + "}",
    "deep bind": "cel.bind(a, 1, " * 600 + "true" + ")" * 600,
    "optional chain": "optional.of(1)" + ".or(optional.none())" * 480 + ".hasValue()",
    "optional maps": "optional.of(1)" + ".optMap(x, x)" * 700 + ".hasValue()",
    "sort by": "lists.range(3000).sortBy(i, -i).size() > 0",
    "transform": "lists.range(3000).transformMap(i, v, lists.range(300)).size() > 0",
    "distinct": "lists.range(30000).distinct().size() > 0",
    "sets": "sets.equivalent(lists.range(20000), lists.range(20000))",
    "url": "url('http://a/" + "%41" * 3000 + "').getEscapedPath() != ''",
    "url query": "url('http://a/?" + "a=b&" * 2400 + "').getQuery().size() > 0",
    "ip": "isIP('" + ":" * 9000 + "')",
    "cidr": "isCIDR('" + "1." * 4000 + "/8')",
    "named format": "format.dns1123Subdomain().validate('" + "a." * 4500 + "').hasValue()",
    "type of types": "type(" * 900 + "1" + ")" * 900 + " == type",
    "casts": "int(" * 900 + "1" + ")" * 900 + " == 1",
    "dyns": "dyn(" * 1500 + "true" + ")" * 1500,
}


def verdict(expression: str) -> str:
    """match, no-match, error, or refused; anything else is a defect."""
    try:
        compiled = program.compile_stored(expression)
    except ExpressionError as error:
        return "refused" if str(error) else "refused without a reason"
    result = compiled.evaluate(DEVICE)
    assert result.outcome == compiled.outcome(DEVICE)
    return str(result.outcome)


@pytest.mark.slow  # the whole set; the fast gate has those that would run away, and those that are refused
def test_every_hostile_expression_ends_in_a_process_with_hard_limits() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from tests.cel import test_hostile; test_hostile.run_limited()"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    ended = child.stdout.splitlines()
    reached = ended[-1] if ended else "nothing"
    assert child.returncode == 0, (
        f"died after {reached!r} with {child.returncode}: {child.stderr[-2000:]}"
    )
    assert len(ended) == len(HOSTILE)


def run_limited() -> None:
    """Runs the set with bounded memory and processor time; a breach ends the process."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for name, expression in HOSTILE.items():
        text = verdict(expression)
        assert text in ("match", "no-match", "error", "refused"), (name, text)
        selectors.problem(expression)
        print(f"{name}: {text}", flush=True)


@pytest.mark.parametrize(
    "name",
    [
        "deep parentheses", "deep lists", "open parentheses", "huge integer", "huge double", "unterminated string",
        "nul", "nuls", "empty", "far too long", "too long by one", "lone surrogates", "unicode garbage", "message",
        "huge exponent", "deep pattern", "escaped surrogate", "optional maps",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_a_short_reason(name: str) -> None:
    with pytest.raises(ExpressionError) as refusal:
        program.compile_stored(HOSTILE[name])
    assert 0 < len(str(refusal.value)) < 4 * LIMIT


@pytest.mark.parametrize(
    "name",
    ["nested macros, range", "nested macros, attributes", "growing string", "growing by replace"],
)
def test_what_would_run_away_ends_as_an_error(name: str) -> None:
    assert verdict(HOSTILE[name]) == "error"


def test_a_catastrophic_pattern_is_just_a_pattern() -> None:
    assert verdict(HOSTILE["catastrophic groups"]) == "no-match"
    assert verdict("('" + "a" * 5000 + "').matches('(a+)+$')") == "match"


def test_long_but_flat_logic_is_evaluated() -> None:
    assert verdict(HOSTILE["many ors"]) == "match"
    assert verdict("true && " * 1000 + "false") == "no-match"


def test_an_expression_of_exactly_the_limit_is_taken() -> None:
    assert verdict("true" + " " * (LIMIT - 4)) == "match"
