"""Decides whether labels pass a label selector, as the selectors of workloads are written.

A selector is read once into plain tests, which can be compared and cached. Given structs and labels; an unreadable
test never holds. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes import meta


class Test(NamedTuple):
    """One test of one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


Tests = tuple[Test, ...]  # all must hold; without any, everything passes
EVERYTHING: Final[Tests] = ()
NOTHING: Final[Tests] = (Test("", "never"),)


def tests_of(selector: meta.LabelSelector | None) -> Tests:
    """The tests of a selector, in a fixed order. An absent selector matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    tests = {Test(key, "In", frozenset({value})) for key, value in selector.match_labels.items()}
    for expression in selector.match_expressions:
        tests.add(Test(expression.key, expression.operator, frozenset(expression.values)))
    return tuple(sorted(tests, key=_order))


def narrowed(tests: Tests, keys: Iterable[str], labels: Mapping[str, str]) -> Tests:
    """The tests, and equality with those of the labels that exist; NOTHING stays NOTHING."""
    if tests == NOTHING:
        return tests
    present = [key for key in keys if key in labels]
    equalities = {Test(key, "In", frozenset({labels[key]})) for key in present}
    return tuple(sorted({*tests, *equalities}, key=_order))


def passes(tests: Tests, labels: Mapping[str, str]) -> bool:
    """Whether all tests hold."""
    return all(_holds(test, labels.get(test.key)) for test in tests)


def _holds(test: Test, value: str | None) -> bool:
    match test.operator:
        case "In":
            return value is not None and value in test.values
        case "NotIn":
            return value is None or value not in test.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _order(test: Test) -> tuple[str, str, list[str]]:
    return test.key, test.operator, sorted(test.values)
