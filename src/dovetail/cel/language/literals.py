"""Values of literal tokens: numbers within their ranges, strings and bytes with their escapes undone."""

from __future__ import annotations

from dovetail.cel.evaluate.values import INT_MAX, INT_MIN, UINT_MAX, UInt

_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip


def integer(text: str) -> int | None:
    """An int literal with its sign; None when it does not fit 64 bits."""
    value = _digits(text)
    return value if INT_MIN <= value <= INT_MAX else None


def unsigned(text: str) -> UInt | None:
    """A uint literal such as `7u`; None when it does not fit 64 bits."""
    value = _digits(text[:-1])
    return UInt(value) if value <= UINT_MAX else None


def double(text: str) -> float | None:
    """A double literal; None when it is too large to be finite."""
    value = float(text)
    return None if value in (float("inf"), float("-inf")) else value


def string(text: str) -> str | None:
    """The text between the quotes; None when an escape names no valid character."""
    body, is_raw = _body(text)
    if is_raw or "\\" not in body:
        return body
    return _unescape(body)


def octets(text: str) -> bytes | None:
    """The bytes of `b'...'`: characters as UTF-8, \\x and octal escapes as single bytes."""
    body, is_raw = _body(text[1:])
    if is_raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    return _unescape_bytes(body)


def _digits(text: str) -> int:
    # Length is bounded before conversion: Python refuses or dawdles on very long digit strings.
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    base, digits = (16, digits[2:]) if digits.startswith("0x") else (10, digits)
    digits = digits.lstrip("0") or "0"
    return sign * (int(digits, base) if len(digits) <= 20 else UINT_MAX + 1)


def _body(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    if is_raw:
        text = text[1:]
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[quotes:-quotes], is_raw


def _unescape(body: str) -> str | None:
    out: list[str] = []
    position = 0
    while position < len(body):
        if body[position] != "\\":
            out.append(body[position])
            position += 1
            continue
        letter = body[position + 1]
        if letter in _SIMPLE:
            out.append(_SIMPLE[letter])
            position += 2
            continue
        code, position = _numeric(body, position)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            return None
        out.append(chr(code))
    return "".join(out)


def _unescape_bytes(body: str) -> bytes | None:
    out = bytearray()
    position = 0
    while position < len(body):
        if body[position] != "\\":
            out += body[position].encode("utf-8", "surrogatepass")
            position += 1
            continue
        letter = body[position + 1]
        if letter in _SIMPLE:
            out += _SIMPLE[letter].encode()
            position += 2
            continue
        if letter in "uU":  # a code point has no place in bytes
            return None
        code, position = _numeric(body, position)
        out.append(code)
    return bytes(out)


def _numeric(body: str, position: int) -> tuple[int, int]:
    """The number of a \\x, \\u, \\U or octal escape and where it ends; the lexer saw its digits."""
    letter = body[position + 1]
    width = {"x": 2, "X": 2, "u": 4, "U": 8}.get(letter)
    if width is None:
        return int(body[position + 1 : position + 4], 8), position + 4
    start = position + 2
    return int(body[start : start + width], 16), start + width
