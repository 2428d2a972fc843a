"""Quantities and versions in expressions. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel import library
from dovetail.cel.evaluate.values import CelError
from tests.cel import ERROR, Case, assert_same, call, listed, quantity, semver

CASES: list[Case] = [
    ("quantity", ("0",), quantity("0")),
    ("quantity", ("1024Mi",), quantity("1Gi")),
    ("quantity", ("1u",), quantity("1u")),
    ("quantity", ("1Pi",), quantity("1Pi")),
    ("quantity", ("-9223372036854775808",), quantity("-9223372036854775808")),
    ("quantity", ("x",), ERROR),
    ("quantity", ("0.1",), quantity("100m")),
    ("quantity", ("0.000000001",), quantity("1n")),
    ("quantity", ("1Mi1",), ERROR),
    ("isQuantity", ("0",), True),
    ("isQuantity", ("1024Mi",), True),
    ("isQuantity", ("1u",), True),
    ("isQuantity", ("1Pi",), True),
    ("isQuantity", ("-9223372036854775808",), True),
    ("isQuantity", ("x",), False),
    ("isQuantity", ("0.1",), True),
    ("isQuantity", ("0.000000001",), True),
    ("isQuantity", ("1Mi1",), False),
    ("sign", (quantity("0"),), 0),
    ("sign", (quantity("1500m"),), 1),
    ("sign", (quantity("1e3"),), 1),
    ("sign", (quantity("1n"),), 1),
    ("sign", (quantity("1Pi"),), 1),
    ("sign", (quantity("9223372036854775808"),), 1),
    ("sign", (quantity("1E"),), 1),
    ("sign", (quantity("1e-9"),), 1),
    ("sign", (quantity("7"),), 1),
    ("asApproximateFloat", (quantity("0"),), 0.0),
    ("asApproximateFloat", (quantity("1500m"),), 1.5),
    ("asApproximateFloat", (quantity("1e3"),), 1000.0),
    ("asApproximateFloat", (quantity("1n"),), 1e-09),
    ("asApproximateFloat", (quantity("1Pi"),), 1125899906842624.0),
    ("asApproximateFloat", (quantity("9223372036854775808"),), 9.223372036854776e18),
    ("asApproximateFloat", (quantity("1E"),), 1e18),
    ("asApproximateFloat", (quantity("1e-9"),), 1e-09),
    ("asApproximateFloat", (quantity("7"),), 7.0),
    ("isLessThan", (quantity("0"), quantity("1")), True),
    ("isLessThan", (quantity("1k"), quantity("1Gi")), True),
    ("isLessThan", (quantity("1Ei"), quantity("-1500m")), False),
    ("isLessThan", (quantity("1e-3"), quantity("1")), True),
    ("isLessThan", (quantity("1Ti"), quantity("1Gi")), False),
    ("isLessThan", (semver("1.2.3-alpha.1"), semver("1.2.3-alpha.1")), False),
    ("isLessThan", (semver("1.2.3-a+b"), semver("1.2.3-0")), False),
    ("isLessThan", (semver("18446744073709551615.0.0"), semver("1.2.3-alpha")), False),
    ("isLessThan", (semver("1.2.3--"), semver("1.0.0")), False),
    ("isGreaterThan", (quantity("0"), quantity("1")), False),
    ("isGreaterThan", (quantity("1k"), quantity("1Gi")), False),
    ("isGreaterThan", (quantity("1Ei"), quantity("-1500m")), True),
    ("isGreaterThan", (quantity("1e-3"), quantity("1")), False),
    ("isGreaterThan", (quantity("1Ti"), quantity("1Gi")), True),
    ("isGreaterThan", (semver("1.2.3-alpha.1"), semver("1.2.3-alpha.1")), False),
    ("isGreaterThan", (semver("1.2.3-a+b"), semver("1.2.3-0")), True),
    ("isGreaterThan", (semver("18446744073709551615.0.0"), semver("1.2.3-alpha")), True),
    ("isGreaterThan", (semver("1.2.3--"), semver("1.0.0")), True),
    ("compareTo", (quantity("0"), quantity("1")), -1),
    ("compareTo", (quantity("1k"), quantity("1Gi")), -1),
    ("compareTo", (quantity("1Ei"), quantity("-1500m")), 1),
    ("compareTo", (quantity("1e-3"), quantity("1")), -1),
    ("compareTo", (quantity("1Ti"), quantity("1Gi")), 1),
    ("compareTo", (semver("1.2.3-alpha.1"), semver("1.2.3-alpha.1")), 0),
    ("compareTo", (semver("1.2.3-a+b"), semver("1.2.3-0")), 1),
    ("compareTo", (semver("18446744073709551615.0.0"), semver("1.2.3-alpha")), 1),
    ("compareTo", (semver("1.2.3--"), semver("1.0.0")), 1),
    ("add", (quantity("0"), quantity("1")), quantity("1")),
    ("add", (quantity("1500m"), quantity("-1500m")), quantity("0")),
    ("add", (quantity("1e3"), 1), quantity("1001")),
    ("add", (quantity("1n"), quantity("1")), quantity("1000000001n")),
    ("add", (quantity("1Pi"), quantity("-1500m")), quantity("1125899906842622500m")),
    ("add", (quantity("9223372036854775808"), 1), quantity("9223372036854775809")),
    ("add", (quantity("1E"), quantity("1")), quantity("1000000000000000001")),
    ("add", (quantity("1e-9"), quantity("-1500m")), quantity("-1499999999e-9")),
    ("add", (quantity("7"), 1), quantity("8")),
    ("sub", (quantity("0"), quantity("1")), quantity("-1")),
    ("sub", (quantity("1500m"), quantity("-1500m")), quantity("3")),
    ("sub", (quantity("1e3"), 1), quantity("999")),
    ("sub", (quantity("1n"), quantity("1")), quantity("-999999999n")),
    ("sub", (quantity("1Pi"), quantity("-1500m")), quantity("1125899906842625500m")),
    ("sub", (quantity("9223372036854775808"), 1), quantity("9223372036854775807")),
    ("sub", (quantity("1E"), quantity("1")), quantity("999999999999999999")),
    ("sub", (quantity("1e-9"), quantity("-1500m")), quantity("1500000001e-9")),
    ("sub", (quantity("7"), 1), quantity("6")),
    ("semver", ("1.2.3",), semver("1.2.3")),
    ("semver", ("1.2.3+b", False), semver("1.2.3+b")),
    ("semver", ("1", True), semver("1.0.0")),
    ("semver", ("1.2.3-",), ERROR),
    ("semver", ("18446744073709551616.0.0", False), ERROR),
    ("semver", ("v1", True), semver("1.0.0")),
    ("semver", ("1.2.3 ",), ERROR),
    ("semver", ("V1.2.3", False), ERROR),
    ("semver", ("001", True), semver("1.0.0")),
    ("isSemver", ("1.2.3",), True),
    ("isSemver", ("1.2.3+b", False), True),
    ("isSemver", ("1", True), True),
    ("isSemver", ("1.2.3-",), False),
    ("isSemver", ("18446744073709551616.0.0", False), False),
    ("isSemver", ("v1", True), True),
    ("isSemver", ("1.2.3 ",), False),
    ("isSemver", ("V1.2.3", False), False),
    ("isSemver", ("001", True), True),
    ("major", (semver("1.2.3"),), 1),
    ("major", (semver("1.2.3-alpha"),), 1),
    ("major", (semver("1.2.3-alpha.1"),), 1),
    ("major", (semver("1.2.3-a+b"),), 1),
    ("major", (semver("1.2.0"),), 1),
    ("major", (semver("1.0.0"),), 1),
    ("major", (semver("1.2.3-0"),), 1),
    ("major", (semver("1.2.3--"),), 1),
    ("major", (semver("0.0.0"),), 0),
    ("minor", (semver("1.2.3"),), 2),
    ("minor", (semver("1.2.3-alpha"),), 2),
    ("minor", (semver("1.2.3-alpha.1"),), 2),
    ("minor", (semver("1.2.3-a+b"),), 2),
    ("minor", (semver("1.2.0"),), 2),
    ("minor", (semver("1.0.0"),), 0),
    ("minor", (semver("1.2.3-0"),), 2),
    ("minor", (semver("1.2.3--"),), 2),
    ("minor", (semver("0.0.0"),), 0),
    ("patch", (semver("1.2.3"),), 3),
    ("patch", (semver("1.2.3-alpha"),), 3),
    ("patch", (semver("1.2.3-alpha.1"),), 3),
    ("patch", (semver("1.2.3-a+b"),), 3),
    ("patch", (semver("1.2.0"),), 0),
    ("patch", (semver("1.0.0"),), 0),
    ("patch", (semver("1.2.3-0"),), 3),
    ("patch", (semver("1.2.3--"),), 3),
    ("patch", (semver("0.0.0"),), 0),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_function_on_quantities_or_versions_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_nothing_can_be_authorized_in_a_device_selector() -> None:
    (allowed,) = library.STORED.functions["allowed"]
    assert not allowed.accepts(("anything",))
    with pytest.raises(CelError, match="no such overload"):
        allowed.implementation("anything")


QUANTITIES = listed(
    "0|1|-1|1.5|1Gi|1024Mi|1G|1e3|1E3|1k|1m|1u|1n|0.1n|100m|1000m|1Ki|1Pi|1Ei|8Ei|9223372036854775807|"
    "9223372036854775808|-9223372036854775808|1e18|1e19|1E|1e||x|1 | 1|1gi|1K|+1|0.1|12345678901234567890|1e-3|"
    "1e-9|1e-10|0.000000001|1__0|.5|5.|1e2Gi|--1|1Mi1|00|007|1T|1P|1Ti"
)
VERSIONS = listed(
    "1.2.3|1.2.3-alpha|1.2.3-alpha.1|1.2.3+b|1.2.3-a+b|v1.2.3|1.2|1|01.2.3|1.2.3.4||1.2.3-|1.2.3+|"
    "18446744073709551615.0.0|18446744073709551616.0.0|1.2.3-01|1.2.3-0|1.2.3--|v1|1.2-a|v01.02.03|a.b.c|1.2.3 |"
    "1.-2.3|1.2.3-é|V1.2.3|vv1.2.3|0.0.0|1.2.3-rc.1+x.y|001|1..3|1.2.|v"
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text in QUANTITIES:
        yield "quantity", text
        yield "isQuantity", text
    for amount in (
        value for value in (call("quantity", text) for text in QUANTITIES) if value is not ERROR
    ):
        for name in ("sign", "asApproximateFloat"):
            yield name, amount
        for other in (quantity("1"), quantity("1Gi"), quantity("-1.5"), quantity("0")):
            for name in ("isLessThan", "isGreaterThan", "compareTo", "add", "sub"):
                yield name, amount, other
        for number in (0, 1, -1, 2**63 - 1):
            yield "add", amount, number
            yield "sub", amount, number
    for text in VERSIONS:
        for name in ("semver", "isSemver"):
            yield name, text
            yield name, text, True
            yield name, text, False
    versions = [
        value for value in (call("semver", text, True) for text in VERSIONS) if value is not ERROR
    ]
    for version in versions:
        for name in ("major", "minor", "patch"):
            yield name, version
        for other in versions:
            for name in ("isLessThan", "isGreaterThan", "compareTo"):
                yield name, version, other
