"""The functions on strings: searching, cutting, joining. Positions and sizes count Unicode code points.

Given strings that passed the signature; returns values or raises CelError. Formatting and patterns: elsewhere.
"""

from __future__ import annotations

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate.values import CelError, Value
from dovetail.cel.library import gotext, size_limits

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in _LOWER}
# Unicode's White_Space. Python's strip() would also take the separators 1C to 1F.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_QUOTE_ESCAPES = str.maketrans(gotext.NAMED_ESCAPES)


def char_at(text: str, index: int) -> str:
    """The character at an index; empty just past the end."""
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """The first index of a substring, from an index on; -1 if absent. The empty string matches at once."""
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def last_index_of(text: str, part: str) -> int:
    """The last index of a substring; -1 if absent."""
    return text.rfind(part)


def last_index_of_before(text: str, part: str, start: int) -> int:
    """The last index of a substring, at or before an index; -1 if absent, or for an index past the end."""
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def lower_ascii(text: str) -> str:
    """The text with A-Z made a-z; other letters stay."""
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    """The text with a-z made A-Z; other letters stay."""
    return text.translate(_UPPER)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """The text with the first `limit` occurrences replaced; all of them when it is negative."""
    if len(new) > len(old):
        count = text.count(old) if limit < 0 else min(limit, text.count(old))
        size_limits.check_text(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, limit)


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """The parts between separators, at most `limit` unless negative; characters for an empty separator."""
    if limit == 0:
        return []
    whole = text.count(separator) + 1 if separator else len(text)
    pieces = whole if limit < 0 else min(limit, whole)
    size_limits.check_elements(pieces)
    if separator:
        return text.split(separator, pieces - 1)
    return [*text[: pieces - 1], text[pieces - 1 :]] if pieces else []


def join(parts: list[Value], separator: str = "") -> str:
    """The strings one after the other with a separator between them."""
    for part in parts:
        if part.__class__ is not str:
            raise CelError("join: invalid input: every element must be a string")
    size_limits.check_text(sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1))
    return separator.join(parts)


def substring(text: str, start: int) -> str:
    """The text from an index to its end."""
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def substring_between(text: str, start: int, end: int) -> str:
    """The text from an index up to, not including, another."""
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if end > len(text):
        raise _out_of_range(end)
    return text[start:end]


def trim(text: str) -> str:
    """The text without white space around it."""
    return text.strip(_BLANKS)


def quote(text: str) -> str:
    """The text as a CEL literal in double quotes."""
    size_limits.check_text(len(text) * 2 + 2)
    return f'"{text.translate(_QUOTE_ESCAPES)}"'


def to_bytes(text: str) -> bytes:
    """The text in UTF-8; bytes that came in broken (see urls) go out unchanged."""
    return text.encode("utf-8", "surrogateescape")


def _contains(text: str, part: str) -> bool:
    return part in text


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


OVERLOADS: tuple[Overload, ...] = (
    member("contains", "contains_string", "string, string -> bool", _contains),
    member("endsWith", "ends_with_string", "string, string -> bool", str.endswith),
    member("startsWith", "starts_with_string", "string, string -> bool", str.startswith),
    function("size", "size_bytes", "bytes -> int", len),
    member("size", "bytes_size", "bytes -> int", len),
    function("size", "size_list", "list(<A>) -> int", len),
    member("size", "list_size", "list(<A>) -> int", len),
    function("size", "size_map", "map(<A>, <B>) -> int", len),
    member("size", "map_size", "map(<A>, <B>) -> int", len),
    function("size", "size_string", "string -> int", len),
    member("size", "string_size", "string -> int", len),
    member("charAt", "string_char_at_int", "string, int -> string", char_at),
    member("indexOf", "string_index_of_string", "string, string -> int", index_of),
    member("indexOf", "string_index_of_string_int", "string, string, int -> int", index_of),
    member("lastIndexOf", "string_last_index_of_string", "string, string -> int", last_index_of),
    member(
        "lastIndexOf",
        "string_last_index_of_string_int",
        "string, string, int -> int",
        last_index_of_before,
    ),
    member("lowerAscii", "string_lower_ascii", "string -> string", lower_ascii),
    member("replace", "string_replace_string_string", "string, string, string -> string", replace),
    member(
        "replace",
        "string_replace_string_string_int",
        "string, string, string, int -> string",
        replace,
    ),
    member("split", "string_split_string", "string, string -> list(string)", split),
    member("split", "string_split_string_int", "string, string, int -> list(string)", split),
    member("substring", "string_substring_int", "string, int -> string", substring),
    member(
        "substring", "string_substring_int_int", "string, int, int -> string", substring_between
    ),
    member("trim", "string_trim", "string -> string", trim),
    member("upperAscii", "string_upper_ascii", "string -> string", upper_ascii),
    function("strings.quote", "strings_quote", "string -> string", quote),
    member("join", "list_join", "list(string) -> string", join),
    member("join", "list_join_string", "list(string), string -> string", join),
)
