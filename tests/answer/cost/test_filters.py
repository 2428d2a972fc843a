"""The filter language of allocations: what it means, and that any text is a filter or a clear refusal."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from dovetail import errors
from dovetail.answer.cost import cost_filter, cost_keys
from tests.answer.cost import accounts

WORK = cost_keys.Subject(
    "c1",
    accounts.gpu("g0", node="node-7"),
    accounts.owner("team-a", "train-0", queue="research", app="llm", team="vision"),
)
IDLE = cost_keys.Subject("c1", accounts.gpu("g0", node="node-7"), None)


def is_kept(written: str, subject: cost_keys.Subject = WORK) -> bool:
    test = cost_filter.parse(written)
    assert test is not None
    return test(subject)


@pytest.mark.parametrize(
    ("written", "is_true"),
    [
        ('namespace:"team-a"', True),
        ('namespace:"team-b"', False),
        ('namespace:"team-b","team-a"', True),
        ('namespace!:"team-a"', False),
        ('namespace!:"team-b","team-c"', True),
        ('namespace!:"team-b","team-a"', False),
        ('namespace~:"am-"', True),
        ('namespace!~:"am-"', False),
        ('namespace<~:"team"', True),
        ('namespace!<~:"team"', False),
        ('namespace~>:"-a"', True),
        ('namespace!~>:"-a"', False),
        ('label[app]:"llm"', True),
        ('label[app]!:"llm"', False),
        ('label[none]!:"x"', True),
        ('label[none]:"__unallocated__"', True),
        ('label:"app"', True),
        ('label:"none"', False),
        ('label!:"none"', True),
        ('team:"vision" + product:"llm"', True),
        ('controllerKind:"job"', True),
        ('controllerKind:"Job"', True),
        ('controllerName:"train" + queue:"research"', True),
        ('cluster:"c1"+node:"node-7"+pod:"train-0"', True),
        ('namespace:"x" | pod:"train-0"', True),
        ('namespace:"x" | (pod:"train-0" + cluster:"c2")', False),
        ('( ( namespace:"team-a" ) )', True),
        ('(namespace:"x" | namespace:"team-a") + (pod:"y" | label[team]:"vision")', True),
    ],
)
def test_filters(written: str, is_true: bool) -> None:
    assert is_kept(written) is is_true


def test_free_capacity_has_a_node_and_a_cluster_and_no_owner() -> None:
    assert is_kept('node:"node-7" + cluster:"c1"', IDLE)
    assert not is_kept('namespace:"team-a"', IDLE)
    assert is_kept('namespace:"__unallocated__"', IDLE)


def test_an_empty_filter_keeps_everything() -> None:
    assert cost_filter.parse("  ") is None


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "namespace",
            "position 10: expected an operator after namespace: : !: ~: !~: <~: !<~: ~>: !~>:",
        ),
        ("namespace:", 'position 11: expected a value in double quotes, such as "a"'),
        ('namespace:"a', "position 11: '\"' has no end"),
        ('label[app:"a"', "position 6: '[' has no end"),
        ('namespace:"a" + ', "position 17: the end where a field such as namespace was expected"),
        ('namespace:"a" pod:"b"', 'position 15: "pod" after the end of the filter'),
        ('namespace:"a" + pod:"b" | node:"c"', "position 25: both + and |: put parentheses"),
        ('(namespace:"a"', 'position 15: the end where ")" was expected'),
        ('nmespace:"a"', 'position 1: unknown field "nmespace"; did you mean namespace?'),
        ('container:"a"', "position 1: container is not recorded; known: cluster"),
        ('node[x]:"a"', "position 1: node has no keys: leave [x] out"),
        ('label[]:"a"', 'position 1: unknown field "label"'),
        ('namespace:"a"$', "position 14: '$' is not part of the language"),
        ('namespace!"a"', "position 10: '!' is not part of the language"),
        ("(" * 51, "position 51: more than 50 open parentheses"),
        ("x" * 10_001, "10001 characters; at most 10000 are read"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_position(written: str, problem: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        cost_filter.parse(written)
    assert str(refused.value).startswith(f"filter: {problem}")


WORDS = ["namespace", "label", "[app]", ":", "!:", "~:", "<~:", "!~>:", '"a"', '""', ",", "+", "|"]
tokens = strategies.sampled_from([*WORDS, "(", ")", " ", "x", "[", '"', "\x00", "é", "["])


@hypothesis.given(
    strategies.one_of(
        strategies.lists(tokens, max_size=25).map("".join), strategies.text(max_size=60)
    )
)
def test_any_text_is_a_filter_or_an_input_error(written: str) -> None:
    test, message = parsed(written)
    assert not message or message.startswith("filter: position ")
    if test is not None:
        assert test(WORK) in (True, False)
        assert test(IDLE) in (True, False)


def parsed(written: str) -> tuple[cost_filter.Test | None, str]:
    try:
        return cost_filter.parse(written), ""
    except errors.InputError as error:
        return None, str(error)


@strategies.composite
def filters(draw: strategies.DrawFn, depth: int = 3) -> tuple[str, bool]:
    """A filter and what it must say about the work, built together."""
    if depth == 0 or draw(strategies.booleans()):
        field, value = draw(
            strategies.sampled_from(
                [("namespace", "team-a"), ("pod", "train-0"), ("queue", "research")]
            )
        )
        wanted = draw(strategies.sampled_from([value, "other"]))
        is_negated = draw(strategies.booleans())
        sign = "!:" if is_negated else ":"
        return f'{field}{sign}"{wanted}"', (value == wanted) != is_negated
    parts = draw(strategies.lists(filters(depth - 1), min_size=1, max_size=3))
    sign = draw(strategies.sampled_from(["+", " | "]))
    written = sign.join(f"({text})" for text, _ in parts)
    truths = [truth for _, truth in parts]
    return written, all(truths) if sign == "+" else any(truths)


@hypothesis.given(filters())
def test_filters_of_any_shape_mean_what_they_say(pair: tuple[str, bool]) -> None:
    written, is_true = pair
    assert is_kept(written) is is_true
