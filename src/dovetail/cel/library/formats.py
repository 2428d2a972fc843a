"""The named formats of strings, and what is wrong with a string that should have one.

Given text; returns a list of messages, empty when the text is well formed. Expressions can read the messages,
so they are upstream's to the letter. Lengths count bytes of UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Format, Optional
from dovetail.cel.library import times, urls

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_KEY})?"
_UUID: Final = r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_TIME_OF_DAY: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_DATE: Final = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"

_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_MESSAGE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_KEY_MESSAGE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

Check = Callable[[str], list[str]]


def dns1123_label(text: str) -> list[str]:
    """One label of a host name, at most 63 long."""
    wrong = _too_long(text, 63, "characters")
    if not _is(_LABEL, text):
        if _is(_SUBDOMAIN, text):
            return [*wrong, "must not contain dots"]
        wrong.append(_mismatch(_LABEL_MESSAGE, _LABEL, "my-name", "123-abc"))
    return wrong


def dns1123_subdomain(text: str, unit: str = "characters") -> list[str]:
    """Labels joined by dots, at most 253 long."""
    wrong = _too_long(text, 253, unit)
    if not _is(_SUBDOMAIN, text):
        wrong.append(_mismatch(_SUBDOMAIN_MESSAGE, _SUBDOMAIN, "example.com"))
    return wrong


def dns1035_label(text: str) -> list[str]:
    """One label that begins with a letter, at most 63 long."""
    wrong = _too_long(text, 63, "characters")
    if not _is(_LABEL_1035, text):
        wrong.append(_mismatch(_LABEL_1035_MESSAGE, _LABEL_1035, "my-name", "abc-123"))
    return wrong


def qualified_name(text: str) -> list[str]:
    """A name of at most 63, with an optional domain and slash before it."""
    parts = text.split("/")
    mismatch = _mismatch(_KEY_MESSAGE, _KEY, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        return [
            f"a valid label key {mismatch} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    wrong: list[str] = []
    name = parts[-1]
    if len(parts) == 2:
        problems = dns1123_subdomain(parts[0], "bytes") if parts[0] else ["must be non-empty"]
        wrong += [f"prefix part {problem}" for problem in problems]
    if not name:
        wrong.append("name part must be non-empty")
    wrong += [f"name part {problem}" for problem in _too_long(name, 63, "bytes")]
    if not _is(_KEY, name):
        wrong.append(f"name part {mismatch}")
    return wrong


def label_value(text: str) -> list[str]:
    """The value of a label: empty, or at most 63 of letters, digits, dash, underscore and dot."""
    wrong = _too_long(text, 63, "bytes")
    if not _is(_LABEL_VALUE, text):
        wrong.append(_mismatch(_LABEL_VALUE_MESSAGE, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return wrong


def uri(text: str) -> list[str]:
    """An absolute URL or path."""
    wrong = urls.problem(text)
    return [] if wrong is None else [wrong]


def uuid(text: str) -> list[str]:
    """32 hexadecimal digits, with dashes at their usual places or without."""
    return [] if re.fullmatch(_UUID, text, re.IGNORECASE) else ["does not match the UUID format"]


def base64(text: str) -> list[str]:
    """At least one group of padded base64."""
    return [] if re.fullmatch(_BASE64, text) else ["invalid base64"]


def date(text: str) -> list[str]:
    """A day that exists: 2024-02-29."""
    return [] if _is_date(text) else ["invalid date"]


def date_time(text: str) -> list[str]:
    """A date and a time of day with its zone."""
    return [] if _is_date_time(text) else ["invalid datetime"]


def _is_date(text: str) -> bool:
    match = re.fullmatch(_DATE, text)
    if match is None:
        return False
    try:
        times.days_since_1970(int(match[1]), int(match[2]), int(match[3]))
    except CelError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    # Upstream cuts at every t and reads two pieces only; what follows a third t goes unread.
    day, _, time_of_day = text.lower().partition("t")
    if not _is_date(day):
        return False
    time = re.fullmatch(_TIME_OF_DAY, time_of_day.partition("t")[0])
    return time is not None and time[1] <= "23" and time[2] <= "59" and time[3] <= "59"


def _is(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text) > limit else []


def _mismatch(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _of_bytes(check: Check) -> Check:
    """A check that sees each byte of UTF-8 as one character."""
    return lambda text: check(text.encode("utf-8", "surrogateescape").decode("latin-1"))


def _of_prefix(check: Check) -> Check:
    """A check of what a generated name begins with: it may end in a dash."""

    def problems(text: str) -> list[str]:
        ends_in_dash = len(text) > 1 and text.endswith("-")
        return check(text[:-2] + "a" if ends_in_dash else text)

    return problems


FORMATS: Final[dict[str, Format]] = {
    # Name in expressions, name in messages, check, size of the pattern as upstream's costs count it.
    "dns1123Label": Format("DNS1123Label", _of_bytes(dns1123_label), 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _of_bytes(dns1123_subdomain), 60),
    "dns1035Label": Format("DNS1035Label", _of_bytes(dns1035_label), 30),
    "qualifiedName": Format("QualifiedName", _of_bytes(qualified_name), 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _of_bytes(_of_prefix(dns1123_label)), 30),
    "dns1123SubdomainPrefix": Format(
        "DNS1123SubdomainPrefix", _of_bytes(_of_prefix(dns1123_subdomain)), 60
    ),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _of_bytes(_of_prefix(dns1035_label)), 30),
    "labelValue": Format("LabelValue", _of_bytes(label_value), 40),
    "uri": Format("URI", uri, 1103),
    "uuid": Format("uuid", _of_bytes(uuid), len(f"(?i)^{_UUID}$")),
    "byte": Format("byte", _of_bytes(base64), 84),
    "date": Format("date", _of_bytes(date), len(f"^{_TIME_OF_DAY}$")),
    "datetime": Format("datetime", date_time, len(f"^{_TIME_OF_DAY}$")),
}


def named(name: str) -> Optional:
    """The format of a name, if there is one."""
    format_ = FORMATS.get(name)
    return values.NONE if format_ is None else Optional(format_)


def validate(expected: Format, text: str) -> Optional:
    """What is wrong with a text; nothing when it has the format."""
    problems = expected.problems(text)
    return Optional(problems) if problems else values.NONE


def _constant(name: str) -> Overload:
    format_ = FORMATS[name]
    return function(f"format.{name}", f"format.{name}", "-> format", lambda: format_)


OVERLOADS: tuple[Overload, ...] = (
    *map(_constant, FORMATS),
    function("format.named", "format-named", "string -> optional(format)", named),
    member("validate", "format-validate", "format, string -> optional(list(string))", validate),
)
