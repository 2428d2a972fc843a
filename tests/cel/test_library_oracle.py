"""Asks upstream what thousands of calls return and holds the library to it: values, types and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from dovetail.cel.library import formats
from tests.cel import (
    ERROR,
    call,
    literal,
    test_library_conversions,
    test_library_formats,
    test_library_formatting,
    test_library_kubernetes,
    test_library_lists,
    test_library_network,
    test_library_regex,
    test_library_strings,
    test_library_times,
    test_library_urls,
    text_literal,
    written,
)
from tests.support import oracle as oracles
from tests.support.oracle import Oracle

pytestmark = pytest.mark.slow

AREAS = (
    test_library_conversions,
    test_library_formatting,
    test_library_kubernetes,
    test_library_lists,
    test_library_network,
    test_library_regex,
    test_library_strings,
    test_library_times,
    test_library_urls,
)
OUR_MISTAKES = ("found no matching overload", "undeclared reference", "Syntax error")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Oracle]:
    with oracles.start() as running:
        yield running


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__.rpartition("_")[2])
def test_the_tables_say_what_upstream_says(area: ModuleType, upstream: Oracle) -> None:
    confirm(
        upstream, [(written(name, arguments), expected) for name, arguments, expected in area.CASES]
    )


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__.rpartition("_")[2])
def test_many_more_calls_answer_as_upstream(area: ModuleType, upstream: Oracle) -> None:
    calls = [(name, tuple(arguments)) for name, *arguments in area.inputs()]
    confirm(
        upstream, [(written(name, arguments), call(name, *arguments)) for name, arguments in calls]
    )


def test_every_part_of_a_url_is_upstreams(upstream: Oracle) -> None:
    parts = []
    for text in test_library_urls.texts():
        result = call("url", text)
        for name in test_library_urls.PARTS if result is not ERROR else ():
            part = call(name, result)
            if "\\udc" not in repr(part):  # bytes that are no text have no literal
                parts.append((f"url({text_literal(text)}).{name}()", part))
    confirm(upstream, parts)


def test_formats_report_upstreams_problems(upstream: Oracle) -> None:
    reports = [
        (
            f"format.{name}().validate({text_literal(text)}).orValue([])",
            formats.FORMATS[name].problems(text),
        )
        for name in formats.FORMATS
        for text in test_library_formats.TEXTS
    ]
    confirm(upstream, reports)


def test_sorting_by_keys_is_upstreams(upstream: Oracle) -> None:
    sorted_by = [
        (
            f"lists.range({len(keys)}).sortBy(i, {literal(keys)}[i])",
            call("@sortByAssociatedKeys", list(range(len(keys))), keys),
        )
        for keys in test_library_lists.SORTED_BY
    ]
    confirm(upstream, sorted_by)


def confirm(upstream: Oracle, results: list[tuple[str, Any]]) -> None:
    """Fails with every call where upstream's answer is another."""
    claims = [claim(source, result) for source, result in results]
    answers = upstream.ask_many(
        {"op": "cel", "expression": text, "device": {"driver": "d"}} for text in claims
    )
    assert len(answers) == len(claims) > 0
    wrong = []
    for text, (_, result), answer in zip(claims, results, answers, strict=True):
        assert not any(mistake in answer.get("compileError", "") for mistake in OUR_MISTAKES), (
            text,
            answer,
        )
        is_error = "matchError" in answer or "compileError" in answer
        if not (is_error if result is ERROR else answer.get("match") is True):
            wrong.append(f"{text}\n    {answer}")
    assert not wrong, f"{len(wrong)} of {len(claims)}:\n" + "\n".join(wrong[:20])


def claim(source: str, result: Any) -> str:
    """An expression that is true when upstream agrees, or that fails when the result must be an error."""
    if result is ERROR:
        return f"dyn({source}) == dyn(0)"
    if isinstance(result, float) and math.isnan(result):
        return f'string({source}) == "NaN"'
    if "nan" in repr(getattr(result, "_value", result)):
        shown = call("format", "%s", [[result.value] if hasattr(result, "value") else result])
        value = f"[{source}.value()]" if hasattr(result, "value") else source
        return f'"%s".format([dyn({value})]) == {text_literal(shown)}'
    expected = literal(result)
    return f"dyn({source}) == dyn({expected}) && type(dyn({source})) == type(dyn({expected}))"
