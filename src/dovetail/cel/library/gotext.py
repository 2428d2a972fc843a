"""How upstream's language writes values as text: quoted strings and doubles in their shortest form.

Given Python values; returns text. Never fails.
"""

from __future__ import annotations

import math

NAMED_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
_SHORTEST_EXPONENT = 6  # %g without a precision: from here on, scientific


def quoted(text: str) -> str:
    """The text in double quotes, as %q writes it: unprintable characters are escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in NAMED_ESCAPES:
        return NAMED_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortest(number: float) -> str:
    """A double with the fewest digits that identify it, as %g: 1, 0.5, 1e+06, +Inf, NaN."""
    if not math.isfinite(number):
        return _special(number)
    sign, digits, point = _decimal(number)
    exponent = point - 1
    if -4 <= exponent < _SHORTEST_EXPONENT or digits == "0":
        return sign + _positional(digits, point)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def positional(number: float) -> str:
    """A double with the fewest digits that identify it, never in scientific notation."""
    if not math.isfinite(number):
        return _special(number)
    sign, digits, point = _decimal(number)
    return sign + _positional(digits, point)


def fixed(number: float, precision: int) -> str:
    """A double rounded to so many places, as %.<precision>f without any locale."""
    return f"{number:.{precision}f}" if math.isfinite(number) else _special(number)


def _special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "+Inf" if number > 0 else "-Inf"


def _decimal(number: float) -> tuple[str, str, int]:
    """Sign, significant digits and where the decimal point stands after the first of them."""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    return sign, digits.rstrip("0") or "0", point if digits else 1


def _positional(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}" if digits != "0" else "0"
    whole = digits[:point].ljust(point, "0")
    return f"{whole}.{digits[point:]}" if len(digits) > point else whole
