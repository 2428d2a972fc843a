"""Label selectors as typed after -l: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, joined by commas.

Given text, returns a test for labels. Raises InputError naming the part it cannot read.
"""

import re
from collections.abc import Callable, Mapping

from dovetail import errors

Test = Callable[[Mapping[str, str]], bool]

_KEY = r"(?P<key>[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_VALUE = r"(?P<value>([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?)"
_SET = re.compile(rf"{_KEY}\s+(?P<how>in|notin)\s*\(\s*(?P<values>[A-Za-z0-9._,\s-]*)\)")
_EQUAL = re.compile(rf"{_KEY}\s*(?P<how>==?|!=)\s*{_VALUE}")
_EXISTS = re.compile(rf"(?P<not>!?)\s*{_KEY}")


def selector(text: str) -> Test:
    """A test that all parts hold. Empty text holds always."""
    tests = [_test(part.strip(), text) for part in _parts(text)] if text.strip() else []
    return lambda labels: all(test(labels) for test in tests)


def _parts(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    return re.split(r",(?![^(]*\))", text)


def _test(part: str, text: str) -> Test:
    if parts := _SET.fullmatch(part):
        key, is_in = parts["key"], parts["how"] == "in"
        values = {value.strip() for value in parts["values"].split(",")}
        return lambda labels: (key in labels and labels[key] in values) == is_in
    if parts := _EQUAL.fullmatch(part):
        key, value, is_equal = parts["key"], parts["value"], parts["how"] != "!="
        return lambda labels: (key in labels and labels[key] == value) == is_equal
    if parts := _EXISTS.fullmatch(part):
        key, is_wanted = parts["key"], not parts["not"]
        return lambda labels: (key in labels) == is_wanted
    expected = "key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    raise errors.InputError(f'-l "{text}": cannot read "{part}"; expected {expected}')
