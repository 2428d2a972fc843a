"""One call costs what Kubernetes 1.37 charges for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dovetail.cel.cost import call_cost
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Cidr, Format, Ip, Optional, UInt, Url
from dovetail.quantity import quantity, semver
from tests.support import oracle as upstream

ERROR = CelError("division by zero")
V4 = Ip(bytes((10, 0, 0, 1)))
V6 = Ip(bytes(15) + b"\x01")
NET8 = Cidr(bytes((10, 0, 0, 0)), 8)
NET17 = Cidr(bytes((10, 0, 0, 0)), 17)
EVERYTHING = Cidr(bytes(4), 0)
LABEL = Format("dns1123Label", None, 30)
LONG = "abcdefghij" * 4
GB = quantity.parse("1Gi")
V1 = semver.parse("1.0.0")


def url(text: str) -> Url:
    return Url(
        text=text, scheme="https", host="a.b", hostname="a.b", port="", escaped_path="", query={}
    )


class Case(NamedTuple):
    """A call as text and as the pricing sees it; `inner` is what evaluating its arguments costs."""

    text: str
    function: str
    overload: str
    args: tuple[Any, ...]
    result: Any
    expected: int
    inner: int = 0


STRINGS = [
    Case(f'"{LONG}".lowerAscii()', "lowerAscii", "string_lower_ascii", (LONG,), LONG, 4),
    Case('"".upperAscii()', "upperAscii", "string_upper_ascii", ("",), "", 0),
    Case('"abc".trim()', "trim", "string_trim", ("abc",), "abc", 1),
    Case(f'"{LONG}x".substring(3)', "substring", "string_substring_int", (LONG + "x", 3), "", 5),
    Case('"abc".charAt(1)', "charAt", "string_char_at_int", ("abc", 1), "b", 1),
    Case(f'"{LONG}".charAt(1)', "charAt", "string_char_at_int", (LONG, 1), "b", 1),
    Case('"abcdefghi".indexOf("b")', "indexOf", "string_index_of_string", ("abcdefghi", "b"), 1, 0),
    Case(f'"{LONG}".indexOf("b")', "indexOf", "string_index_of_string", (LONG, "b"), 1, 4),
    Case('"日本語日本語日".lastIndexOf("語")', "lastIndexOf", "", ("日本語日本語日", "語"), 5, 2),
    Case(
        '"abcabc".replace("a","xyz")', "replace", "string_replace_string_string", ("abcabc",), "", 2
    ),
    Case(f'"{LONG}".split("c")', "split", "string_split_string", (LONG, "c"), [], 8),
    Case(
        '["abc","defgh"].join("--")',
        "join",
        "list_join_string",
        (["abc", "defgh"],),
        "abc--defgh",
        2,
    ),
    Case('"abc123".find("[0-9]+")', "find", "string_find_string", ("abc123", "[0-9]+"), "123", 2),
    Case('"".findAll("[0-9]+")', "findAll", "string_find_all_string", ("", "[0-9]+"), [], 2),
    Case('"abc123".matches("[0-9]+")', "matches", "matches_string", ("abc123", "[0-9]+"), True, 2),
    Case('matches("","a")', "matches", "matches", ("", "a"), False, 1),
    Case(f'"{LONG}".contains("cde")', "contains", "contains_string", (LONG, "cde"), True, 4),
    Case('"abc".contains("")', "contains", "contains_string", ("abc", ""), True, 0),
    Case(
        f'"abc".startsWith("{LONG}")', "startsWith", "starts_with_string", ("abc", LONG), False, 4
    ),
    Case('"abc".endsWith("")', "endsWith", "ends_with_string", ("abc", ""), True, 0),
    Case(f'strings.quote("{LONG}")', "strings.quote", "strings_quote", (LONG,), "", 4),
    Case(f'"{LONG}%s".format([1])', "format", "string_format", (LONG + "%s", [1]), "", 5),
    Case(f'bytes("{LONG}".trim())', "bytes", "string_to_bytes", (LONG,), b"", 4, 4),
    Case(
        f'string(bytes("{LONG}".trim()))', "string", "bytes_to_string", (LONG.encode(),), "", 4, 8
    ),
    Case('int("1".trim())', "int", "string_to_int64", ("1",), 1, 1, 1),
    Case('size("abc")', "size", "size_string", ("abc",), 3, 1),
]
OPERATORS = [
    Case(f'"{LONG}" + "x"', "_+_", "add_string", (LONG, "x"), "", 5),
    Case('b"" + b""', "_+_", "add_bytes", (b"", b""), b"", 0),
    Case("[1] + [2]", "_+_", "add_list", ([1], [2]), [1, 2], 1),
    Case("1 + 2", "_+_", "add_int64", (1, 2), 3, 1),
    Case("1/0", "_/_", "divide_int64", (1, 0), ERROR, 1),
    Case(f'"{LONG}" < "abc"', "_<_", "less_string", (LONG, "abc"), False, 1),
    Case(f'"{LONG}" >= "{LONG}"', "_>=_", "greater_equals_string", (LONG, LONG), True, 4),
    Case("1u > 2u", "_>_", "greater_uint64", (UInt(1), UInt(2)), False, 1),
    Case(f'"{LONG}" == "{LONG}"', "_==_", "equals", (LONG, LONG), True, 4),
    Case('"" != "abc"', "_!=_", "not_equals", ("", "abc"), True, 0),
    Case("(1/0) == 1", "_==_", "equals", (ERROR, 1), ERROR, 1, 1),
    Case("1 in [1,2,3].reverse()", "@in", "in_list", (1, [3, 2, 1]), True, 3, 14),
    Case("1 in {1: 2}", "@in", "in_map", (1, {1: 2}), True, 1),
    Case("!true", "!_", "logical_not", (True,), False, 1),
    Case("-(1.5)", "-_", "negate_double", (1.5,), -1.5, 1),
]
LISTS = [
    Case("[1,2,3].isSorted()", "isSorted", "list_int_is_sorted_bool", ([1, 2, 3],), True, 3),
    Case(
        '["ab","abcdefghijkl"].max()',
        "max",
        "list_string_max_string",
        (["ab", "abcdefghijkl"],),
        "",
        1,
    ),
    Case("[[1,2],[3]].indexOf([3])", "indexOf", "list_a_index_of_int", ([[1, 2], [3]], [3]), 1, 3),
    Case(
        '[{"abcdefghij": 1}].lastIndexOf({})', "lastIndexOf", "", ([{"abcdefghij": 1}], {}), -1, 2
    ),
    Case(
        "dyn([1,2].reverse()).includes(1)",
        "includes",
        "list_includes_dyn_dyn",
        ([2, 1], 1),
        True,
        2,
        14,
    ),
    Case("[1,2,3].slice(0,2)", "slice", "list_slice", ([1, 2, 3], 0, 2), [1, 2], 13),
    Case("[1,2,3].slice(2,1)", "slice", "list_slice", ([1, 2, 3], 2, 1), ERROR, 12),
    Case("lists.range(4)", "lists.range", "lists_range", (4,), [0, 1, 2, 3], 15),
    Case("lists.range(-1)", "lists.range", "lists_range", (-1,), ERROR, 12),
    Case("[1,2].reverse()", "reverse", "list_reverse", ([1, 2],), [2, 1], 13),
    Case("[[1,2],[3]].flatten()", "flatten", "list_flatten", ([[1, 2], [3]],), [1, 2, 3], 13),
    Case(
        "[[1,2],[3]].flatten(4)", "flatten", "list_flatten_int", ([[1, 2], [3]], 4), [1, 2, 3], 19
    ),
    Case("[[1,2],[3]].flatten(-4)", "flatten", "list_flatten_int", ([[1, 2], [3]], -4), ERROR, 13),
    Case("[1,1,2].distinct()", "distinct", "list_distinct", ([1, 1, 2],), [1, 2], 29),
    Case(
        '["a","b","a"].distinct()', "distinct", "list_distinct", (["a", "b", "a"],), ["a", "b"], 29
    ),
    Case("[].distinct()", "distinct", "list_distinct", ([],), [], 11),
    Case('["b","a"].sort()', "sort", "list_string_sort", (["b", "a"],), ["a", "b"], 19),
    Case("[2,1].sort()", "sort", "list_int_sort", ([2, 1],), [1, 2], 19),
    Case("dyn([2,1]).sort()", "sort", "", ([2, 1],), [1, 2], 1),
    Case(
        "sets.contains([1,2],[1])",
        "sets.contains",
        "list_sets_contains_list",
        ([1, 2], [1]),
        True,
        3,
    ),
    Case(
        "sets.equivalent([1],[1,1])",
        "sets.equivalent",
        "list_sets_equivalent_list",
        ([1], [1, 1]),
        True,
        5,
    ),
    Case("[1].first()", "first", "list_first", ([1],), Optional(1), 1),
]
OBJECTS = [
    Case('quantity("1Gi")', "quantity", "string_to_quantity", ("1Gi",), GB, 1),
    Case('isQuantity("12345678901")', "isQuantity", "is_quantity_string", ("12345678901",), True, 2),
    Case('quantity("1Gi").add(1)', "add", "quantity_add_int", (GB, 1), GB, 1, 1),
    Case('quantity("1Gi") == quantity("1Gi")', "_==_", "equals", (GB, GB), True, 1, 2),
    Case('semver("1.0.0") != semver("1.0.0")', "_!=_", "not_equals", (V1, V1), False, 1, 2),
    Case('ip("10.0.0.1")', "ip", "string_to_ip", ("10.0.0.1",), V4, 1),
    Case('cidr("10.0.0.0/17").ip()', "ip", "cidr_ip", (NET17,), V4, 1, 2),
    Case('ip.isCanonical("10.0.0.1")', "ip.isCanonical", "ip_is_canonical", ("10.0.0.1",), True, 2),
    Case('ip("::1") == ip("::1")', "_==_", "equals", (V6, V6), True, 1, 2),
    Case('ip("::1") != ip("::1")', "_!=_", "not_equals", (V6, V6), False, 2, 2),
    Case('cidr("0.0.0.0/0") != cidr("10.0.0.0/8")', "_!=_", "not_equals", (EVERYTHING, NET8), True, 0, 2),
    Case('cidr("10.0.0.0/8").masked()', "masked", "cidr_masked", (NET8,), NET8, 1, 1),
    Case(
        'cidr("10.0.0.0/17").containsIP("10.0.0.100")',
        "containsIP", "cidr_contains_ip_string", (NET17, "10.0.0.100"), True, 2, 2,
    ),
    Case(
        'cidr("10.0.0.0/8").containsIP(ip("10.0.0.1"))',
        "containsIP", "cidr_contains_ip_ip", (NET8, V4), True, 1, 2,
    ),
    Case(
        'cidr("10.0.0.0/17").containsCIDR("10.0.0.0/17")',
        "containsCIDR", "cidr_contains_cidr_string", (NET17, "10.0.0.0/17"), True, 5, 2,
    ),
    Case(
        'cidr("0.0.0.0/0").containsCIDR(cidr("10.0.0.0/8"))',
        "containsCIDR", "cidr_contains_cidr", (EVERYTHING, NET8), True, 1, 2,
    ),
    Case(
        'format.dns1123Label().validate("abc")',
        "validate", "format-validate", (LABEL, "abc"), values.NONE, 8, 1,
    ),
    Case('format.named("uuid")', "format.named", "format-named", ("uuid",), Optional(LABEL), 1),
    Case('isURL("https://a.b")', "isURL", "is_url_string", ("https://a.b",), True, 1),
    Case('url("https://a.b")', "url", "string_to_url", ("https://a.b",), url("https://a.b"), 2),
    Case('url("https://a.b").getHost()', "getHost", "url_get_host", (url("https://a.b"),), "a.b", 1, 2),
    Case(
        f'optional.of("{LONG}") == optional.of("{LONG}")',
        "_==_", "equals", (Optional(LONG), Optional(LONG)), True, 4, 2,
    ),
    Case("optional.of(1).value()", "value", "optional_value", (Optional(1),), 1, 1, 1),
]  # fmt: skip
CASES = [*STRINGS, *OPERATORS, *LISTS, *OBJECTS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_a_call_costs_what_is_charged_for_it(case: Case) -> None:
    assert (
        call_cost.call_cost(case.function, case.overload, case.args, case.result) == case.expected
    )


@pytest.fixture(scope="module")
def oracle() -> Iterator[upstream.Oracle]:
    with upstream.start() as running:
        yield running


@pytest.mark.slow
def test_upstream_charges_the_same(oracle: upstream.Oracle) -> None:
    comparison = 2  # type() and ==
    answers = oracle.ask_many(
        {"op": "cel", "expression": f"type({case.text}) == int", "device": {"driver": "d"}}
        for case in CASES
    )
    charged = [
        (c.text, answer["actualCost"] - comparison - c.inner)
        for c, answer in zip(CASES, answers, strict=True)
    ]
    assert charged == [(case.text, case.expected) for case in CASES]


def test_thirty_characters_cost_three_and_rounding_is_that_of_doubles() -> None:
    costs = [
        call_cost.call_cost("trim", "string_trim", ("x" * size,), "")
        for size in (29, 30, 31, 70, 170)
    ]
    assert costs == [3, 3, 4, 7, 17]


def test_a_library_function_sees_an_optional_as_one_thing_but_equality_looks_inside() -> None:
    wrapped = Optional(LONG)
    assert call_cost.call_cost("lowerAscii", "", (wrapped,), ERROR) == 1
    assert call_cost.call_cost("_!=_", "not_equals", (wrapped, wrapped), False) == 4
    assert call_cost.call_cost("_!=_", "not_equals", (values.NONE, wrapped), True) == 1


def test_authorization_functions_are_priced_though_no_selector_can_call_them() -> None:
    assert call_cost.call_cost("check", "resourcecheck_check", (None, "get"), None) == 350_000
    assert (
        call_cost.call_cost("labelSelector", "authorizer_labelselector", (None, "a=b,c"), None)
        == 10 + 1 + 150
    )
    assert (
        call_cost.call_cost("serviceAccount", "authorizer_serviceaccount", (None, "a", "b"), None)
        == 1
    )


def test_a_depth_that_leaves_64_bits_costs_half_of_everything() -> None:
    deepest = (2**63) - 1
    item, two = ([[1]], deepest), ([[1], [2]], deepest)
    assert call_cost.call_cost("flatten", "list_flatten_int", item, [1]) == 2**63 + 11
    assert call_cost.call_cost("flatten", "list_flatten_int", two, [1, 2]) == 2**63 + 11


@pytest.mark.parametrize(
    ("overload", "args", "reason"),
    [
        ("list_distinct", (ERROR,), "*types.Err is not traits.Lister: missing method Add"),
        ("list_distinct", (7,), "types.Int is not traits.Lister: missing method Contains"),
        ("list_int_sort", ({},), "*types.baseMap is not traits.Lister: missing method Add"),
        (
            "list_int_sortByAssociatedKeys",
            ([1], ERROR),
            "*types.Err is not traits.Lister: missing method Add",
        ),
        ("list_flatten_int", ([1], ERROR), "ref.Val is *types.Err, not types.Int"),
        ("list_flatten_int", ([1], "a"), "ref.Val is types.String, not types.Int"),
    ],
)
def test_bookkeeping_breaks_down_where_upstream_does(
    overload: str, args: tuple[Any, ...], reason: str
) -> None:
    assert overload in call_cost.FRAGILE
    with pytest.raises(call_cost.TrackerFailure) as failure:
        call_cost.call_cost("f", overload, args, ERROR)
    assert str(failure.value) == f"internal error: interface conversion: {reason}"


@pytest.mark.slow
def test_upstream_breaks_down_with_the_same_words(oracle: upstream.Oracle) -> None:
    texts = {
        "[1/0].distinct()": ("list_distinct", (ERROR,)),
        "dyn(7).distinct()": ("list_distinct", (7,)),
        "dyn(device.driver).distinct()": ("list_distinct", ("d",)),
        'dyn(quantity("1")).distinct()': ("list_distinct", (GB,)),
        "dyn(device.attributes).distinct()": ("list_distinct", (values.DomainMap(),)),
        "[[1]].flatten(1/0)": ("list_flatten_int", ([[1]], ERROR)),
        "[3,1].sortBy(x, 1/(x-1))": ("list_int_sortByAssociatedKeys", ([3, 1], ERROR)),
    }
    for text, (overload, args) in texts.items():
        answer = oracle.ask(
            {"op": "cel", "expression": f"{text} == [] || true", "device": {"driver": "d"}}
        )
        with pytest.raises(call_cost.TrackerFailure) as failure:
            call_cost.call_cost("f", overload, args, ERROR)
        assert answer["matchError"] == str(failure.value)


def test_fixed_prices_are_known_ahead_of_evaluation() -> None:
    assert call_cost.price("isGreaterThan", "quantity_is_greater_than") == 1
    assert call_cost.price("_+_", "add_int64") == 1
    assert call_cost.price("", "") == 1
    assert not isinstance(call_cost.price("_+_", "add_string"), int)
