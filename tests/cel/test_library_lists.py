"""Lists, sets and optionals: order, equality across types, what is empty. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel.check import types
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Duration, MutableMap
from dovetail.cel.library import lists, sets, size_limits
from tests.cel import (
    ERROR,
    INF,
    NAN,
    NONE,
    Case,
    assert_same,
    call,
    cidr,
    ip,
    moment,
    quantity,
    semver,
    some,
    span,
    u,
    url,
)

CASES: list[Case] = [
    ("isSorted", ([],), True),
    ("isSorted", ([1, 1],), True),
    ("isSorted", ([NAN, 1.0],), True),
    ("isSorted", ([False, True],), True),
    ("isSorted", ([-9223372036854775808, -1],), True),
    ("isSorted", ([1, 2.5],), True),
    ("isSorted", (["a", 1],), True),
    ("isSorted", ([True, 1],), True),
    ("isSorted", ([moment("2020-01-02T00:00:00Z"), moment("2019-01-01T00:00:00Z")],), False),
    ("min", ([],), ERROR),
    ("min", ([1, 1],), 1),
    ("min", ([NAN, 1.0],), NAN),
    ("min", ([False, True],), False),
    ("min", ([-9223372036854775808, -1],), -9223372036854775808),
    ("min", ([1, 2.5],), 1),
    ("min", (["a", 1],), "a"),
    ("min", ([True, 1],), True),
    (
        "min",
        ([moment("2020-01-02T00:00:00Z"), moment("2019-01-01T00:00:00Z")],),
        moment("2019-01-01T00:00:00Z"),
    ),
    ("max", ([],), ERROR),
    ("max", ([1, 1],), 1),
    ("max", ([NAN, 1.0],), NAN),
    ("max", ([False, True],), True),
    ("max", ([-9223372036854775808, -1],), -1),
    ("max", ([1, 2.5],), 2.5),
    ("max", (["a", 1],), "a"),
    ("max", ([True, 1],), True),
    (
        "max",
        ([moment("2020-01-02T00:00:00Z"), moment("2019-01-01T00:00:00Z")],),
        moment("2020-01-02T00:00:00Z"),
    ),
    ("sort", ([],), []),
    ("sort", ([1, 1],), [1, 1]),
    ("sort", ([NAN, 1.0],), [NAN, 1.0]),
    ("sort", ([False, True],), [False, True]),
    ("sort", ([-9223372036854775808, -1],), [-9223372036854775808, -1]),
    ("sort", ([1, 2.5],), ERROR),
    ("sort", (["a", 1],), ERROR),
    ("sort", ([True, 1],), ERROR),
    (
        "sort",
        ([moment("2020-01-02T00:00:00Z"), moment("2019-01-01T00:00:00Z")],),
        [moment("2019-01-01T00:00:00Z"), moment("2020-01-02T00:00:00Z")],
    ),
    ("reverse", ([],), []),
    ("reverse", ([1.5, 0.5],), [0.5, 1.5]),
    ("reverse", ([False, True],), [True, False]),
    (
        "reverse",
        ([span("9223372036854775807ns"), span("1ns")],),
        [span("1ns"), span("9223372036854775807ns")],
    ),
    ("reverse", ([1, "a"],), ["a", 1]),
    ("reverse", ([0.1, 0.1, 0.1],), [0.1, 0.1, 0.1]),
    ("reverse", ([{"a": 1}, {"a": 1.0}],), [{"a": 1.0}, {"a": 1}]),
    (
        "reverse",
        ([types.parse("int"), types.parse("string")],),
        [types.parse("string"), types.parse("int")],
    ),
    ("distinct", ([],), []),
    ("distinct", ([1.5, 0.5],), [1.5, 0.5]),
    ("distinct", ([False, True],), [False, True]),
    (
        "distinct",
        ([span("9223372036854775807ns"), span("1ns")],),
        [span("9223372036854775807ns"), span("1ns")],
    ),
    ("distinct", ([1, "a"],), [1, "a"]),
    ("distinct", ([0.1, 0.1, 0.1],), [0.1]),
    ("distinct", ([{"a": 1}, {"a": 1.0}],), [{"a": 1}]),
    (
        "distinct",
        ([types.parse("int"), types.parse("string")],),
        [types.parse("int"), types.parse("string")],
    ),
    ("first", ([],), NONE),
    ("first", ([1.5, 0.5],), some(1.5)),
    ("first", ([False, True],), some(False)),
    ("first", ([span("9223372036854775807ns"), span("1ns")],), some(span("9223372036854775807ns"))),
    ("first", ([1, "a"],), some(1)),
    ("first", ([0.1, 0.1, 0.1],), some(0.1)),
    ("first", ([{"a": 1}, {"a": 1.0}],), some({"a": 1})),
    ("first", ([types.parse("int"), types.parse("string")],), some(types.parse("int"))),
    ("last", ([],), NONE),
    ("last", ([1.5, 0.5],), some(0.5)),
    ("last", ([False, True],), some(True)),
    ("last", ([span("9223372036854775807ns"), span("1ns")],), some(span("1ns"))),
    ("last", ([1, "a"],), some("a")),
    ("last", ([0.1, 0.1, 0.1],), some(0.1)),
    ("last", ([{"a": 1}, {"a": 1.0}],), some({"a": 1.0})),
    ("last", ([types.parse("int"), types.parse("string")],), some(types.parse("string"))),
    ("flatten", ([],), []),
    ("flatten", ([NAN, 1.0, 0.5, 2.0],), [NAN, 1.0, 0.5, 2.0]),
    ("flatten", ([1e308, 1e308],), [1e308, 1e308]),
    ("flatten", ([1, [2]],), [1, 2]),
    ("flatten", ([], -1), ERROR),
    ("flatten", ([[]], 2), []),
    ("flatten", ([[1], [2, [3, [4]]]], 0), [[1], [2, [3, [4]]]]),
    ("flatten", ([1, [2]], 3), [1, 2]),
    ("flatten", ([{"a": [1]}], 1), [{"a": [1]}]),
    ("sum", ([],), 0),
    ("sum", ([1, 2, 3],), 6),
    ("sum", ([1.5, 0.5],), 2.0),
    ("sum", ([NAN, 1.0, 0.5, 2.0],), NAN),
    ("sum", ([-9223372036854775808, -1],), ERROR),
    ("sum", ([1e308, 1e308],), INF),
    ("sum", ([1, u(2)],), ERROR),
    ("sum", ([3, None],), ERROR),
    ("sum", ([2, 1.5, u(1)],), ERROR),
    ("indexOf", ([], 1), -1),
    ("indexOf", (["a", "b", "a"], 1), -1),
    ("indexOf", ([[1], [2], [1]], 1), -1),
    ("indexOf", ([None, None], 1), -1),
    ("indexOf", ([True, 1, "1"], 1), 1),
    ("indexOf", ([some(1), NONE, some(1.0)], 1), -1),
    ("indexOf", ([semver("1.0.0"), semver("1.0.0+a")], 1), -1),
    ("indexOf", ([b"a", "a", b"a"], 1), -1),
    ("indexOf", ([1, "a", 1, "a"], 1), 0),
    ("lastIndexOf", ([], 1), -1),
    ("lastIndexOf", (["a", "b", "a"], 1), -1),
    ("lastIndexOf", ([[1], [2], [1]], 1), -1),
    ("lastIndexOf", ([None, None], 1), -1),
    ("lastIndexOf", ([True, 1, "1"], 1), 1),
    ("lastIndexOf", ([some(1), NONE, some(1.0)], 1), -1),
    ("lastIndexOf", ([semver("1.0.0"), semver("1.0.0+a")], 1), -1),
    ("lastIndexOf", ([b"a", "a", b"a"], 1), -1),
    ("lastIndexOf", ([1, "a", 1, "a"], 1), 2),
    ("includes", ([], 1), False),
    ("includes", (["a", "b", "a"], 1), False),
    ("includes", ([[1], [2], [1]], 1), False),
    ("includes", ([None, None], 1), False),
    ("includes", ([True, 1, "1"], 1), True),
    ("includes", ([some(1), NONE, some(1.0)], 1), False),
    ("includes", ([semver("1.0.0"), semver("1.0.0+a")], 1), False),
    ("includes", ([b"a", "a", b"a"], 1), False),
    ("includes", ([1, "a", 1, "a"], 1), True),
    ("sets.contains", ([], []), True),
    ("sets.contains", (["a", "b", "a"], []), True),
    ("sets.contains", ([[1], [2], [1]], []), True),
    ("sets.contains", ([None, None], []), True),
    ("sets.contains", ([True, 1, "1"], []), True),
    ("sets.contains", ([some(1), NONE, some(1.0)], []), True),
    ("sets.contains", ([semver("1.0.0"), semver("1.0.0+a")], []), True),
    ("sets.contains", ([b"a", "a", b"a"], []), True),
    ("sets.contains", ([1, "a", 1, "a"], []), True),
    ("sets.equivalent", ([], []), True),
    ("sets.equivalent", (["a", "b", "a"], []), False),
    ("sets.equivalent", ([[1], [2], [1]], []), False),
    ("sets.equivalent", ([None, None], []), False),
    ("sets.equivalent", ([True, 1, "1"], []), False),
    ("sets.equivalent", ([some(1), NONE, some(1.0)], []), False),
    ("sets.equivalent", ([semver("1.0.0"), semver("1.0.0+a")], []), False),
    ("sets.equivalent", ([b"a", "a", b"a"], []), False),
    ("sets.equivalent", ([1, "a", 1, "a"], []), False),
    ("sets.intersects", ([], []), False),
    ("sets.intersects", (["a", "b", "a"], []), False),
    ("sets.intersects", ([[1], [2], [1]], []), False),
    ("sets.intersects", ([None, None], []), False),
    ("sets.intersects", ([True, 1, "1"], []), False),
    ("sets.intersects", ([some(1), NONE, some(1.0)], []), False),
    ("sets.intersects", ([semver("1.0.0"), semver("1.0.0+a")], []), False),
    ("sets.intersects", ([b"a", "a", b"a"], []), False),
    ("sets.intersects", ([1, "a", 1, "a"], []), False),
    ("lists.range", (-1,), ERROR),
    ("lists.range", (0,), []),
    ("lists.range", (1,), [0]),
    ("lists.range", (5,), [0, 1, 2, 3, 4]),
    ("lists.range", (1000001,), ERROR),
    ("lists.range", (9223372036854775807,), ERROR),
    ("lists.range", (-9223372036854775808,), ERROR),
    ("slice", ([1, 2, 3], 0, 0), []),
    ("slice", ([1, 2, 3], 0, 3), [1, 2, 3]),
    ("slice", ([1, 2, 3], 1, 2), [2]),
    ("slice", ([1, 2, 3], 3, 3), []),
    ("slice", ([1, 2, 3], 2, 1), ERROR),
    ("slice", ([1, 2, 3], -1, 1), ERROR),
    ("slice", ([1, 2, 3], 0, 4), ERROR),
    ("slice", ([1, 2, 3], 4, 4), ERROR),
    ("slice", ([1, 2, 3], 1, -1), ERROR),
    ("optional.none", (), NONE),
    ("optional.ofNonZeroValue", (0,), NONE),
    ("optional.ofNonZeroValue", (u(0),), NONE),
    ("optional.ofNonZeroValue", (0.5,), some(0.5)),
    ("optional.ofNonZeroValue", (" ",), some(" ")),
    ("optional.ofNonZeroValue", (True,), some(True)),
    ("optional.ofNonZeroValue", ([0],), some([0])),
    ("optional.ofNonZeroValue", (span("1ns"),), some(span("1ns"))),
    ("optional.ofNonZeroValue", (quantity("0"),), some(quantity("0"))),
    ("optional.ofNonZeroValue", (cidr("0.0.0.0/0"),), some(cidr("0.0.0.0/0"))),
    ("optional.of", (0,), some(0)),
    ("optional.of", (u(0),), some(u(0))),
    ("optional.of", (0.5,), some(0.5)),
    ("optional.of", (" ",), some(" ")),
    ("optional.of", (True,), some(True)),
    ("optional.of", ([0],), some([0])),
    ("optional.of", (span("1ns"),), some(span("1ns"))),
    ("optional.of", (quantity("0"),), some(quantity("0"))),
    ("optional.of", (cidr("0.0.0.0/0"),), some(cidr("0.0.0.0/0"))),
    ("hasValue", (some(1),), True),
    ("hasValue", (NONE,), False),
    ("hasValue", (some(NONE),), True),
    ("hasValue", (some(None),), True),
    ("value", (some(1),), 1),
    ("value", (NONE,), ERROR),
    ("value", (some(NONE),), NONE),
    ("value", (some(None),), None),
    ("optional.unwrap", ([],), []),
    ("optional.unwrap", ([some(1)],), [1]),
    ("optional.unwrap", ([NONE],), []),
    ("optional.unwrap", ([some(1), NONE, some("a")],), [1, "a"]),
    ("optional.unwrap", ([some(NONE)],), [NONE]),
    ("optional.unwrap", ([some(1), 2],), ERROR),
    ("unwrapOpt", ([],), []),
    ("unwrapOpt", ([some(1)],), [1]),
    ("unwrapOpt", ([NONE],), []),
    ("unwrapOpt", ([some(1), NONE, some("a")],), [1, "a"]),
    ("unwrapOpt", ([some(NONE)],), [NONE]),
    ("unwrapOpt", ([some(1), 2],), ERROR),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_list_function_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_flattening_lists_that_double_stops_before_memory_does() -> None:
    doubled: list[Any] = [1]
    for _ in range(40):
        doubled = [doubled, doubled]
    with pytest.raises(size_limits.TooLargeError):
        lists.flatten(doubled, 100)


def test_comparing_everything_with_everything_is_bounded() -> None:
    mixed = [n if n % 2 else float(n) for n in range(5000)]
    with pytest.raises(size_limits.TooLargeError):
        lists.distinct(mixed)
    with pytest.raises(size_limits.TooLargeError):
        sets.contains(mixed, mixed)


def test_a_large_list_of_one_plain_type_is_no_trouble() -> None:
    numbers = list(range(100_000))
    assert lists.distinct(numbers + numbers) == numbers
    assert sets.equivalent(numbers, numbers[::-1])


@pytest.mark.parametrize("length", [500, 5000])
def test_a_long_list_is_sorted_by_its_keys(length: int) -> None:
    keys = [(n * 7919) % 1009 for n in range(length)]
    assert [keys[at] for at in lists.sort_by_keys(list(range(length)), keys)] == sorted(keys)


def test_keys_that_tie_leave_their_elements_in_upstreams_order() -> None:
    short, long = [n % 2 for n in range(12)], [n % 2 for n in range(16)]
    assert lists.sort_by_keys(list(range(12)), short) == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert lists.sort_by_keys(list(range(16)), long) == [
        8,
        10,
        2,
        14,
        4,
        12,
        6,
        0,
        9,
        7,
        1,
        11,
        5,
        13,
        3,
        15,
    ]


@pytest.mark.parametrize("length", [13, 49, 50, 51, 64, 100, 333, 1000])
@pytest.mark.parametrize("step", [1, -1, 7919, 3, 0])
def test_sorting_loses_nothing(length: int, step: int) -> None:
    keys = [n * step % 37 if abs(step) > 1 else n * step for n in range(length)]
    result = lists.sort_by_keys(list(range(length)), keys)
    assert sorted(result) == list(range(length))
    assert [keys[at] for at in result] == sorted(keys)


def test_inserting_changes_a_map_under_construction_in_place() -> None:
    growing = MutableMap()
    assert lists.map_insert(growing, "a", 1) is growing
    assert lists.map_insert_all(growing, {"b": 2, values.map_key(True): 3}) is growing
    assert values.find(growing, True) == (True, 3)
    assert len(growing) == 3


def test_inserting_leaves_a_finished_map_alone() -> None:
    finished = {"a": 1}
    assert lists.map_insert(finished, "b", 2) == {"a": 1, "b": 2}
    assert finished == {"a": 1}


@pytest.mark.parametrize(("present", "key"), [("a", "a"), (1, u(1)), (u(1), 1), (1, 1.0)])
def test_a_key_is_inserted_once(present: Any, key: Any) -> None:
    with pytest.raises(CelError, match="insert failed: key"):
        lists.map_insert(MutableMap({values.map_key(present): 0}), key, 1)


def test_true_and_one_are_different_keys() -> None:
    entries = lists.map_insert(MutableMap({1: "one"}), True, "yes")
    assert values.find(entries, True) == (True, "yes")
    assert values.find(entries, 1) == (True, "one")


def test_sorting_needs_as_many_keys_as_elements() -> None:
    with pytest.raises(CelError, match="same size"):
        lists.sort_by_keys([1, 2], [1])


ORDERED = (
    *(
        [],
        [1],
        [3, 1, 2],
        [1, 2, 3],
        [1, 1],
        [u(3), u(1)],
        [1.5, 0.5],
        [1.0, NAN],
        [NAN, 1.0],
        [NAN, 1.0, 0.5, 2.0],
    ),
    *(
        [INF, -INF],
        [True, False],
        [False, True],
        ["b", "a", "é", "Z", ""],
        [b"b", b"\xff", b"a"],
        [2**63 - 1, 1],
    ),
    *(
        [-(2**63), -1],
        [u(2**64 - 1), u(1)],
        [Duration(2**63 - 1), Duration(1)],
        [1e308, 1e308],
        [0.0, -0.0],
        [1, 2.5],
    ),
    *(
        [1, u(2)],
        [2.5, 1],
        [1, "a"],
        ["a", 1],
        ["b", "a", 1],
        [3, None],
        [1, [2]],
        [True, 1],
        [0.1] * 3,
        [2, 1.5, u(1)],
    ),
    *([span("3s"), span("1s")], [moment("2020-01-02T00:00:00Z"), moment("2019-01-01T00:00:00Z")]),
    [span("1s"), moment("2020-01-01T00:00:00Z")],
    *(
        [(n * 7919) % 101 for n in range(60)],
        [str((n * 7919) % 101) for n in range(60)],
        [n % 2 == 0 for n in range(60)],
    ),
)
MIXED = (
    *(
        [],
        [1, 2, 1],
        ["a", "b", "a"],
        [1, 1.0, u(1)],
        [[1], [2], [1]],
        [{"a": 1}, {"a": 1.0}],
        [None, None],
        [NAN, NAN],
    ),
    *(
        [True, 1, "1"],
        [quantity("1"), quantity("1000m"), 1],
        [some(1), NONE, some(1.0)],
        [types.INT, types.STRING],
    ),
    *(
        [semver("1.0.0"), semver("1.0.0+a")],
        [ip("1.2.3.4"), "1.2.3.4", ip("1.2.3.4")],
        [b"a", "a", b"a"],
    ),
    *([span("1s"), span("1000ms")], [1, "a", 1, "a"], [2, 1, 1]),
)
WANTED = (
    *(
        1,
        1.0,
        u(1),
        "a",
        None,
        [1],
        {"a": 1},
        True,
        quantity("1"),
        NAN,
        some(1),
        types.INT,
        b"a",
        ip("1.2.3.4"),
    ),
    span("1s"),
)
NESTED = ([], [[]], [[], []], [[1], [2, [3, [4]]]], [1, [2]], [[[[1]]]], [{"a": [1]}], [["a"], "b"])
SCALARS = (
    *(
        0,
        1,
        -1,
        u(0),
        u(1),
        0.0,
        -0.0,
        0.5,
        NAN,
        "",
        "a",
        " ",
        b"",
        b"a",
        True,
        False,
        None,
        [],
        [0],
        {},
        {"a": 0},
    ),
    *(
        span("0"),
        span("1ns"),
        moment("0001-01-01T00:00:00Z"),
        moment("1970-01-01T00:00:00Z"),
        quantity("0"),
        url("/"),
    ),
    *(semver("0.0.0"), ip("0.0.0.0"), cidr("0.0.0.0/0"), some(0), NONE, types.INT),
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for elements in ORDERED:
        for name in (
            "isSorted",
            "min",
            "max",
            "sort",
            "reverse",
            "distinct",
            "first",
            "last",
            "flatten",
        ):
            yield name, elements
        if not elements or elements[0].__class__ not in (
            bool,
            str,
            bytes,
            type(moment("2020-01-01T00:00:00Z")),
        ):
            yield "sum", elements
    for elements in MIXED:
        for name in ("distinct", "reverse", "first", "last"):
            yield name, elements
        for expected in WANTED:
            yield "indexOf", elements, expected
            yield "lastIndexOf", elements, expected
            yield "includes", elements, expected
            yield "includes", expected, elements
        for others in MIXED:
            for name in ("sets.contains", "sets.equivalent", "sets.intersects"):
                yield name, elements, others
    for elements in NESTED:
        for depth in (-1, 0, 1, 2, 3, 100):
            yield "flatten", elements, depth
    for count in (-1, 0, 1, 5, 1000001, 2**63 - 1, -(2**63)):
        yield "lists.range", count
    for start, end in ((0, 0), (0, 3), (1, 2), (3, 3), (2, 1), (-1, 1), (0, 4), (4, 4), (1, -1)):
        yield "slice", [1, 2, 3], start, end
    yield from _optionals()


def _optionals() -> Iterator[tuple[Any, ...]]:
    yield ("optional.none",)
    for value in SCALARS:
        yield "optional.ofNonZeroValue", value
        yield "optional.of", value
    for optional in (some(1), NONE, some(NONE), some(None)):
        yield "hasValue", optional
        yield "value", optional
    for optionals in (
        [],
        [some(1)],
        [NONE],
        [some(1), NONE, some("a")],
        [some(NONE)],
        [some(1), 2],
    ):
        yield "optional.unwrap", optionals
        yield "unwrapOpt", optionals


SORTED_BY = (
    *(
        [3, 1, 2],
        [1, 1, 1],
        ["b", "a"],
        [2.0, NAN, 1.0],
        [True, False, True],
        [span("2s"), span("1s")],
        [b"b", b"a"],
    ),
    *([u(2), u(1)], [1, 0] * 6, [1, "a"], [1, 2.0], []),
    # Long enough for upstream's sort to leave ties, and NaN, in an order of its own.
    *([(n * 7919) % 5 for n in range(length)] for length in (13, 14, 20, 49, 50, 51, 99, 200)),
    *([-(n // 3) for n in range(length)] for length in (13, 30, 60, 120)),
    *([n if n % 7 else 0 for n in range(length)] for length in (20, 60, 120)),
    *([min(n, length - n) // 2 for n in range(length)] for length in (20, 60, 300)),
    *([NAN if n % 3 else float(n * 31 % 17) for n in range(length)] for length in (12, 13, 40, 80)),
    *(["ab"[n * n % 3 % 2] for n in range(length)] for length in (16, 70)),
)
