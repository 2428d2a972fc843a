"""The static estimate is that of Kubernetes 1.37: on what was recorded, and on whatever else we ask upstream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from dovetail.cel import environment
from dovetail.cel.check import types
from dovetail.cel.check.checker import Checked
from dovetail.cel.cost.cost_range import MAX, UNKNOWN, Range, exactly, selector_cost, to_unsigned
from dovetail.cel.cost.estimate import CostRange, estimate
from dovetail.cel.cost.estimate_sizes import NOWHERE, Path, device_sizes
from dovetail.cel.environment import ATTRIBUTE_MAX, Environment
from dovetail.cel.language import ast
from tests.support import oracle as upstream
from tests.support import shared


def cost_in(env: Environment, expression: str) -> CostRange:
    return estimate(env.check(expression), attribute_max=ATTRIBUTE_MAX)


def cost_of(expression: str) -> CostRange:
    return cost_in(environment.stored(), expression)


def differing(env: Environment, expected: dict[str, int]) -> list[str]:
    return [
        f"{expression}: expected {most}, got {result}"
        for expression, most in expected.items()
        if (result := cost_in(env, expression).max) != most
    ]


# Recorded


def test_every_recorded_expression_costs_what_was_recorded() -> None:
    cases = shared.document("conformance/dra/cel_extra.json.gz")["cases"]
    stored = {c["expression"]: c["evaluation"].get("estimatedCost") for c in cases}
    new = {c["expression"]: c.get("validationEstimatedCost") for c in cases}
    stored, new = (
        {e: cost for e, cost in table.items() if cost is not None} for table in (stored, new)
    )
    assert len(stored) > 300
    assert len(new) > 300
    assert differing(environment.stored(), stored) == []
    assert differing(environment.new(), new) == []


def test_every_selector_of_upstreams_own_table_costs_what_was_recorded() -> None:
    selectors = shared.document("conformance/dra/cel_table.json.gz")["selectors"]
    runs = [
        (s["expression"], run) for s in selectors for run in s["runs"] if "estimatedCost" in run
    ]
    default_new = "NewExpressions listTypeAttributes=false consumableCapacity=true"
    stored = {
        e: r["estimatedCost"]
        for e, r in runs
        if any(name.startswith("Stored") for name in r["env"])
    }
    new = {e: r["estimatedCost"] for e, r in runs if default_new in r["env"]}
    assert len(stored) > 40
    assert len(new) > 25
    assert differing(environment.stored(), stored) == []
    assert differing(environment.new(), new) == []


# Asked of upstream

GPU = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"]'
LONG = "abcdefghijklmnopqrstuvwxyz" * 5  # longer than any part of a device

TEXTS = (
    '"abcdefghijklmnop"',
    "device.driver",
    f"{GPU}.model",
    'optional.of("abc").value()',
    '("a" + device.driver)',
    '(device.allowMultipleAllocations ? "a" : device.driver)',
    'strings.quote("ab")',
    '"a,b".split(",")[0]',
    '{"a": "bcdefghijklmnop"}["a"]',
    'device.driver.replace("", "xy")',
    'device.driver.replace("ab", "xyzw")',
    'optional.of("q").value().replace("q", "xyzw")',
    f"cel.bind(v, {GPU}, v.model)",
    '"%s".format([device.driver])',
    "device.driver.substring(2, 4)",
)
TEXT_USES = (
    '@.lowerAscii() == "a"',
    '@.charAt(0) == "a"',
    '@.indexOf("b") == 1',
    '@.lastIndexOf("b", 1) == 1',
    '@.replace("a", "bb") == "a"',
    '@.replace("", "b") == "a"',
    '@.replace(@, "b") == @',
    '@.split("b", -1).join("+") == "x"',
    '@.split("b", 2).join("+") == "x"',
    '@.findAll("[a-c]+").join() == ""',
    '@.matches("[a-c]+[0-9]")',
    "matches(@, @)",
    '@.contains("bc")',
    '@.startsWith("abcdefghijkl")',
    '@ < "abcdefghijklm"',
    '@ != "abcdefghijklm"',
    '@ + @ == "ab"',
    'string(bytes(@)) == "ab"',
    'strings.quote(@) + "x" == "ab"',
    "@.size() > 3",
    '@ in ["a", "b"]',
    "url(@) == url('https://a.b/cdefghijklmnop')",
    "url('https://a.b/cdefghijklmnop') == url(@)",
    "url(@).getHost() == @",
    'quantity(@).isGreaterThan(quantity("1"))',
    "semver(@).major() == 1",
    "ip(@).family() == 4 && isIP(@) && ip.isCanonical(@)",
    'cidr("10.0.0.0/8").containsIP(@)',
    'cidr("10.0.0.0/8").containsCIDR(@)',
    "format.uuid().validate(@).hasValue()",
    'timestamp(@) == timestamp("2026-01-01T00:00:00Z")',
    'dyn(@) == "abcdefghijkl"',
    'dyn(@).indexOf("ab") == 0',
    'dyn(@) + "abcdefghijkl" == "a"',
    "[@, @].isSorted()",
    '[@].indexOf("abc") == 0',
    '@.includes("a")',
    '[@, "b"].sortBy(x, size(x))[0] == "abcdefghijklmnop"',
    '[@].sort() == ["a"]',
    '[@].distinct() == ["a"]',
    '[@].reverse()[0] == "abcdefghijklmnop"',
    '[[@]].flatten()[0] == "abcdefghijklmnop"',
    'sets.equivalent([@], ["a", "b"])',
    '{@: 1}.all(k, v, k == "abcdefghijklmnopqrst" && v == 1)',
    '{1: @}.transformMap(k, v, v + "x")[1] == "abcdefghijklmnopqrst"',
    '{1: @}.transformList(k, v, v + "x")[0] == "abcdefghijklmnopqrst"',
    '[@].transformMapEntry(i, v, {v: i}) == {"a": 1}',
    '["a", @].filter(x, x != "abcdefghijklmnop")[0] == "abcdefghijklmnop"',
    '["a", @].exists_one(x, x != "abcdefghijklmnop")',
    '(true ? [@] : ["a"])[0] == "abcdefghijklmnopqrstu"',
    'cel.bind(v, [@] + ["a"], v[0] == "abcdefghijklmnopqrstu" && v.exists(x, x == "abcdefghijklmnopqrstu"))',
    'optional.of(@).orValue("a") == "abcdefghijklmnopqrstu"',
    'optional.of(@).optMap(x, x + "abcdefghijklmnop").value() == "a"',
    '[?optional.of(@)][0] == "abcdefghijkl"',
    '{"a": @}.?a.orValue("b") == "abcdefghijkl"',
    'has({"a": @}.a) && {"a": @}.a == "abcdefghijklmno"',
    'dyn([@]).exists(i, x, x == "abcdefghijklmnopqrs")',
)
LISTS = (
    "[1, 2, 3]",
    "lists.range(5)",
    "lists.range(size('abc'))",
    "dyn([1, 2])",
    "[1].filter(x, x > 0)",
    "(device.allowMultipleAllocations ? [1] : [2, 3])",
    "[[[1]], [2]].flatten(2)",
    "[1, 2, 3].slice(1, 2)",
    "[1, 2, 3].slice(2, 1)",
    "[2, 1].sortBy(x, -x)",
    "[optional.of(1)].unwrapOpt()",
    "optional.of([1, 2, 3]).value()",
    "cel.bind(z, [1, 2], z + z)",
)
LIST_USES = (
    "@.isSorted()",
    "@.sum() == 1",
    "@.indexOf(1) == 1",
    "@.includes(1)",
    "@.sort() == [1]",
    "@.sortBy(x, string(x))[0] == 1",
    "@.distinct().size() == 1",
    "@.slice(0, 1) == [1]",
    "@.slice(size('a'), 1) == [1]",
    "sets.contains(@, @)",
    "1 in @",
    "@ == @",
    "@.exists(x, x > 0)",
    "@.map(x, x > 1, x + 1) == [1]",
    "@.existsOne(i, x, i > 0 && x > 0)",
    "@.transformMap(i, x, x > 1, i + x).size() == 1",
    "(@ + [4])[0] == 1",
    "@[?0] == optional.of(1)",
    "[@, @].flatten(3).size() == 1",
    "[@].flatten(size('ab')).size() == 1",
    "@.last().orValue(2) == 1",
    "@.map(x, @.map(y, x + y)).size() == 1",
    "cel.bind(l, @, l.exists(x, x in l))",
    '@.exists(x, string(x) == "abcdefghijklmnopq")',
)
SINGLE = (
    "device == device",
    "device.attributes == device.attributes",
    f"{GPU} == {GPU}",
    f"{MEMORY}.hbm == {MEMORY}['hbm']",
    f"{MEMORY}.all(k, v, v.isGreaterThan(quantity('1')) && k != '{LONG}')",
    f"device.attributes.exists(k, k == '{LONG}')",
    f"device.attributes.exists(k, v, k == '{LONG}')",
    f"{GPU}.exists(k, k == '{LONG}')",
    f"{GPU}.exists(k, v, k == '{LONG}')",
    f"{GPU}.exists(k, v, v == {GPU}.model && k == {GPU}.index)",
    f"device.attributes.all(d, m, m.all(k, v, k != '{LONG}' && v != 'a'))",
    f"cel.bind(d, {GPU}, d.model == d.index && d['model'] == d['index'] && d.exists(k, d[k] == '{LONG}'))",
    f"{GPU}.links.exists(x, x == '{LONG}')",
    f"cel.bind(d, {GPU}, d.links.exists(x, d.exists(k, k == 'a')))",
    f"cel.bind(d, {GPU}, cel.bind(y, d.model, d.exists(k, k == y) || y == '{LONG}') || d.model == '{LONG}')",
    f"'abcdefghijklmnop'.replace('abcd'.replace('a', 'bc'), '{LONG}') == '{LONG * 4}'",
    f"{GPU}.links.exists(i, x, x == '{LONG}' || i == '{LONG}')",
    f"{GPU}.links[0] == {GPU}.links[1]",
    f"{GPU}.model in {GPU}.links",
    f"{GPU}.?model.orValue('a') == '{LONG}'",
    f"{GPU}[?'model'].orValue('a') == '{LONG}'",
    f"has({GPU}.model) && {GPU}.model.startsWith({GPU}.model)",
    f"device.attributes.a.b == '{LONG}' && device.attributes['a']['b'].c == '{LONG}'",
    f"device.?driver.orValue('a') == '{LONG}'",
    f"dyn(device).attributes['x'].y == '{LONG}' && dyn(device).driver == '{LONG}'",
    f"cel.bind(device, 'a', .device.driver == '{LONG}' && device == 'b')",
    f"device.attributes.map(d, d)[0] == '{LONG}'",
    f"{GPU}.transformMap(a, b, a)['x'] == '{LONG}'",
    f"['a', 'b'].map(x, [x, device.driver]).exists(l, l.exists(y, y == '{LONG}'))",
    "device.capacity['x'].y.add(3).sub(quantity('1')).asApproximateFloat() > 3.0",
    "ip('127.0.0.1') == ip('::1') && ip('127.0.0.1') != ip('::1')",
    "cidr('10.0.0.0/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').ip() == ip('10.0.0.0')",
    "cidr('10.0.0.0/8').containsIP(ip('10.0.0.1')) || cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))",
    "dyn(cidr('10.0.0.0/8')).containsIP(dyn('10.0.0.1')) || dyn(cidr('10.0.0.0/8')).ip() == ip('10.0.0.0')",
    "format.dns1123Label() == format.uuid() || format.dns1123Label() != format.uuid()",
    "semver('1.0.0') == semver('v1', true)",
    "url('https://a.b/c?d=e').getQuery()['d'][0] == 'abcdefghijklmnop'",
    "[duration('1s')].sum() == duration('1s') || [timestamp('2020-01-01T00:00:00Z')].sort().size() == 1",
    "[b'abc'].sort() == [b'a'] || [b'abc'].max() == b'a'",
    "google.protobuf.Int64Value{value: 3} == 3 && google.protobuf.Duration{seconds: 1} == duration('1s')",
    f"(true ? {{'a': 'b'}} : {{'c': device.driver}}).exists(k, v, v == '{LONG}')",
    "[].exists(x, x == 1) || {}.exists(x, x == 1)",
    f"cel.bind(x, 1, cel.bind(x, 'abcdefghijklmnop', x == '{LONG}'))",
    f"[1, 2].exists(x, ['a'].exists(x, x == '{LONG}') && x == 1)",
    "[[1], [2]].flatten(9223372036854775807) == [1] || [[1]].flatten(-1) == [1]",
    "lists.range(9223372036854775807).size() == 1 || lists.range(-3).size() == 1",
    "strings.quote(strings.quote(optional.of('a').value())) == 'a'",
    "bytes(string(bytes(optional.of('a').value()))) + b'x' == b'a'",
    "optional.of({'a': {'b': 'c'}}).a.b.orValue('') == 'abcdefgh'",
    "optional.of([['a']])[0][0].orValue('abc') == 'b'",
    "dyn({'a': {'b': 'c'}}).a.b == 'abcdefghijklmn'",
)
MADE_UP = (
    *(use.replace("@", text) for use, text in product(TEXT_USES, TEXTS)),
    *(use.replace("@", text) for use, text in product(LIST_USES, LISTS)),
    *SINGLE,
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[upstream.Oracle]:
    with upstream.start() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stored", "new"])
def test_upstream_estimates_made_up_expressions_the_same(
    name: str, oracle: upstream.Oracle
) -> None:
    env = {"stored": environment.stored, "new": environment.new}[name]()
    answers = oracle.ask_many(
        {"op": "cel", "expression": text, "env": name, "device": {"driver": "d"}}
        for text in MADE_UP
    )
    expected = {
        text: int(answer["estimatedCost"])
        for text, answer in zip(MADE_UP, answers, strict=True)
        if "compileError" not in answer
    }
    assert len(expected) > 0.9 * len(MADE_UP)
    assert differing(env, expected) == []


# By hand


def test_a_key_is_taken_to_be_as_long_as_a_value_once_both_have_a_name() -> None:
    alone = cost_of(f"{GPU}.exists(k, k == '{LONG}')")
    beside_value = cost_of(f"{GPU}.exists(k, v, k == '{LONG}')")
    assert beside_value.max - alone.max == 32 * (
        7 - 4
    )  # 64 instead of 32 characters, for each of 32 entries


def test_both_ends_of_the_range_are_kept_apart() -> None:
    assert cost_of("device.driver == 'abc'") == Range(3, 3)
    assert cost_of("device.allowMultipleAllocations && device.driver.startsWith('abc')") == Range(
        2, 5
    )
    assert cost_of("true ? device.driver == 'a' : true") == Range(0, 3)


def test_asking_whether_a_field_is_there_is_free() -> None:
    assert cost_of(f"has({GPU}.model)") == exactly(3)  # device, attributes, the domain
    assert cost_of(f"{GPU}.model") == exactly(4)


def test_a_tree_deeper_than_the_interpreters_stack_is_estimated() -> None:
    depth = 20_000
    node: ast.Node = ast.Ident(0, 0, "device")
    for id in range(1, depth):
        node = ast.Select(id, 0, node, "attributes")
    checked = Checked(node, dict.fromkeys(range(depth), types.DEVICE), {})
    assert estimate(checked, attribute_max=64) == exactly(depth)


def test_ranges_saturate_and_never_wrap() -> None:
    assert UNKNOWN.plus(exactly(1)) == Range(1, MAX)
    assert UNKNOWN.times(exactly(3)) == Range(0, MAX)
    assert UNKNOWN.scaled(2.0) == Range(0, MAX)
    assert UNKNOWN.scaled(1.0) == Range(0, MAX)
    assert UNKNOWN.scaled(0.1).max == 1844674407370955264  # a double's idea of a tenth
    assert Range(3, 5).union(Range(4, 9)) == Range(3, 9)
    assert exactly(30).scaled(0.1) == exactly(3)


def test_doubles_too_large_become_the_half() -> None:
    assert to_unsigned(2.0**64) == 2**63
    assert to_unsigned(3e19) == 2**63
    assert to_unsigned(2.0**63) == 2**63
    assert to_unsigned(12.9) == 12


def test_a_selector_pays_for_a_requirement_every_two_characters() -> None:
    assert selector_cost(Range(0, 5)) == Range(10, 10 + 1 + 150)


def test_a_path_extended_twice_forgets_the_first_extension_while_there_is_room() -> None:
    three = Path.of("device").plus("attributes").plus("@values")
    first = three.plus("a")
    second = three.plus("b")
    assert first.names() == second.names() == ["device", "attributes", "@values", "b"]
    full = second.plus("c")
    assert second.plus("d").names()[-1] == "d"
    assert full.names()[-1] == "c"
    assert not NOWHERE


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("device", 0),
        ("device.driver", 63),
        ("device.allowMultipleAllocations", 1),
        ("device.attributes", 32),
        ("device.attributes.@keys", 63),
        ("device.attributes.@values", 32),
        ("device.attributes.@values.@keys", 32),
        ("device.attributes.@values.@values", 64),
        ("device.attributes.@values.anything", 64),
        ("device.capacity.@values.@values", 0),
        ("device.capacity.@values.anything", None),
        ("device.attributes.anything", None),
        ("device.attributes.@values.anything.more", None),
        ("device.driver.@items", None),
        ("device.driver.@keys", None),
        ("other", None),
    ],
)
def test_declared_sizes_are_found_by_path(path: str, most: int | None) -> None:
    root, *steps = path.split(".")
    result = Path.of(root)
    for step in steps:
        result = result.plus(step)
    assert device_sizes(64).of(result) == (None if most is None else Range(0, most))


def test_a_longer_limit_for_attribute_values_raises_the_estimate() -> None:
    checked = environment.stored().check(f"{GPU}.model == '{LONG}'")
    assert estimate(checked, attribute_max=64).max + 3 == estimate(checked, attribute_max=94).max
