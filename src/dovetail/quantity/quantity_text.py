"""Decides what a quantity's text says and how a quantity is written.

Given text, or a number in nano units; returns plain numbers, or text. Keeps upstream's rules of reading
(rounding, caps, odd spellings of zero) and none of its slips in printing. Never compares or adds.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from dovetail import errors

MAX_TEXT_LENGTH = 1024  # ours: upstream has no bound; real quantities have a dozen characters
# Our own bound: upstream works for minutes on 1e2147483648, and no amount is beyond a double's range.
MAX_EXPONENT = 1024
MAX_ORDER = (
    MAX_TEXT_LENGTH + MAX_EXPONENT
)  # no number that is read has more digits before its point
NANOS = 10**9  # a quantity is a whole number of nano units: apimachinery api/resource
INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

_SMALLEST_EXPONENT = -9
_FAST_DIGITS = 18  # digits upstream trusts to an int64
_FAST_BINARY_DIGITS = 14  # the same for binary suffixes, less three digits for every factor of 1024
_LARGEST_BINARY = INT64_MAX * NANOS
_INT64_DIGITS = 19
_FRACTION_DIGITS = (
    40  # nine count, and twice ten more where a binary suffix of 2^60 multiplies them
)

# Possessive, so that hostile text fails in one pass.
_SHAPE = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_POWER = re.compile(r"[eE]([+-]?)0*([0-9]+)")


class Format(enum.StrEnum):
    """The family of suffixes a quantity was written with, and is written with again."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)


class Reading(NamedTuple):
    """The number in a text. `exponent` and `is_big` are how upstream would hold it, which CEL can observe."""

    nanos: int
    format: Format
    exponent: int
    is_big: bool
    written: str | None  # the text itself where upstream writes it back untouched


class _Digits(NamedTuple):
    negative: bool
    whole: str  # without leading zeros, "0" at least
    fraction: str
    has_any: bool


def read(text: str) -> Reading:
    """The number in the text. Raises QuantityError. Linear in the text, which is bounded."""
    if len(text) > MAX_TEXT_LENGTH:
        raise errors.QuantityError(
            f"quantity of {len(text)} characters starting {text[:20]!r}: at most {MAX_TEXT_LENGTH} are read"
        )
    parts = _SHAPE.fullmatch(text)
    if parts is None or not text:
        raise errors.QuantityError(
            f"{text[:60]!r} is not a quantity; expected a number and a suffix, such as 80Gi, 500m or 12e6"
        )
    sign, whole, fraction, suffix = parts.groups(default="")
    digits = _Digits(sign == "-", whole.lstrip("0") or "0", fraction, bool(whole or fraction))
    shift = _BINARY.get(suffix)
    if shift is not None:
        return _read_binary(text, digits, shift=shift)
    return _read_decimal(text, digits, suffix=suffix)


def read_stored(text: str) -> Reading:
    """As `read`, for what an API server keeps: beyond our bounds a number is clamped, not refused.

    Upstream bounds neither the length nor the exponent of a decimal, so such numbers are stored and served. An amount
    no machine has reads as the largest there is, one below a nano unit as one of them, and is written as it was. Linear
    in the text. Raises QuantityError for what upstream does not take either.
    """
    try:
        return read(text)
    except errors.QuantityError:
        reading = _read_clamped(text)
        if reading is None:
            raise
        return reading


def canonical(nanos: int, form: Format) -> str:
    """The shortest exact spelling: no fraction, the largest suffix of the family that divides the number."""
    if nanos == 0:
        return "0"
    if form is Format.BINARY_SI:
        whole, fraction = divmod(nanos, NANOS)
        # Above int64 a binary suffix would be read back as the cap, below 1Ki there is no suffix to use.
        if fraction == 0 and 1024 <= abs(whole) <= INT64_MAX:
            return _binary_text(whole)
        form = Format.DECIMAL_SI
    digits = str(abs(nanos))
    exponent = len(digits) - len(digits.rstrip("0")) - 9
    exponent -= exponent % 3
    if form is Format.DECIMAL_SI:
        exponent = min(exponent, 18)
        suffix = _DECIMAL_SUFFIX[exponent]
    else:
        suffix = f"e{exponent}" if exponent else ""
    return f"{'-' if nanos < 0 else ''}{digits[: len(digits) - exponent - 9]}{suffix}"


def _read_binary(text: str, digits: _Digits, *, shift: int) -> Reading:
    if not digits.fraction and len(digits.whole) + shift * 3 // 10 <= _FAST_BINARY_DIGITS:
        number = int(digits.whole)
        written = text if number & 7 else None
        return Reading(
            _signed(digits, (number << shift) * NANOS), Format.BINARY_SI, 0, False, written
        )
    nanos, exponent = _exact(text, digits, exponent=-len(digits.fraction), factor=1 << shift)
    if nanos > _LARGEST_BINARY:
        nanos, exponent = _LARGEST_BINARY, 0
    # Less than one has no binary spelling.
    form = Format.DECIMAL_SI if 0 < nanos < NANOS else Format.BINARY_SI
    return Reading(_signed(digits, nanos), form, exponent, True, None)


def _read_decimal(text: str, digits: _Digits, *, suffix: str) -> Reading:
    scale = _DECIMAL.get(suffix)
    form = Format.DECIMAL_EXPONENT if scale is None else Format.DECIMAL_SI
    exponent = (_power(text, suffix) if scale is None else scale) - len(digits.fraction)
    shifted = digits.whole + digits.fraction
    if len(shifted) <= _FAST_DIGITS and exponent >= _SMALLEST_EXPONENT:
        is_echoed = exponent % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
        nanos = int(shifted) * 10 ** (exponent + 9)
        return Reading(_signed(digits, nanos), form, exponent, False, text if is_echoed else None)
    nanos, exponent = _exact(text, digits, exponent=exponent, factor=1)
    return Reading(_signed(digits, nanos), form, exponent, True, None)


def _read_clamped(text: str) -> Reading | None:
    """None for what is no quantity upstream."""
    parts = _SHAPE.fullmatch(text)
    if parts is None:
        return None
    sign, whole, fraction, suffix = parts.groups(default="")
    if not whole and not fraction:
        return None
    digits = _Digits(sign == "-", whole.lstrip("0") or "0", _shortened(fraction), True)
    if (shift := _BINARY.get(suffix)) is not None:
        if len(digits.whole) > _INT64_DIGITS:
            return Reading(_signed(digits, _LARGEST_BINARY), Format.BINARY_SI, 0, True, text)
        return _read_binary(text, digits, shift=shift)
    power = _wrapped_power(suffix)
    exponent = _DECIMAL.get(suffix, power)
    if exponent is None:
        return None
    form = Format.DECIMAL_SI if suffix in _DECIMAL else Format.DECIMAL_EXPONENT
    nanos = _clamped(digits.whole.lstrip("0") + fraction, exponent - len(fraction))
    return Reading(_signed(digits, nanos), form, _SMALLEST_EXPONENT, True, text)


def _clamped(digits: str, exponent: int) -> int:
    """So many nano units, rounded up, at most ten to the power of MAX_ORDER whole ones."""
    significant = digits.lstrip("0")
    if not significant:
        return 0
    order = len(significant) + exponent  # digits before the point
    if order > MAX_ORDER:
        return int(10 ** (MAX_ORDER + 9))
    digits_kept = len(significant) + min(0, exponent + 9)
    if digits_kept <= 0:
        return 1
    is_rounded = bool(significant[digits_kept:].strip("0"))
    return (int(significant[:digits_kept]) + is_rounded) * int(10 ** max(0, exponent + 9))


def _wrapped_power(suffix: str) -> int | None:
    """The exponent as upstream keeps it: read as an int64, of which the lower half counts."""
    power = _POWER.fullmatch(suffix)
    if power is None or len(power[2]) > _INT64_DIGITS:
        return None
    number = int(power[1] + power[2])
    if not INT64_MIN <= number <= INT64_MAX:
        return None
    lower = number & 0xFFFF_FFFF
    return lower - (1 << 32) if lower >= 1 << 31 else lower


def _shortened(fraction: str) -> str:
    """As much of a fraction as can count, and whether anything follows."""
    shown_digits, cut_digits = fraction[:_FRACTION_DIGITS], fraction[_FRACTION_DIGITS:]
    return shown_digits + "1" if cut_digits.strip("0") else shown_digits


def _power(text: str, suffix: str) -> int:
    power = _POWER.fullmatch(suffix)
    if power is None:
        raise errors.QuantityError(
            f"{text[:60]!r}: unknown suffix {suffix[:20]!r}; known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, e<number>"
        )
    if (
        len(power[2]) > 4 or int(power[2]) > MAX_EXPONENT
    ):  # the length first: no work for absurd exponents
        raise errors.QuantityError(f"{text[:60]!r}: exponent beyond {MAX_EXPONENT}")
    return int(power[1] + power[2])


def _exact(text: str, digits: _Digits, *, exponent: int, factor: int) -> tuple[int, int]:
    """Magnitude in nano units, rounded up, and the decimal exponent upstream would keep."""
    if not digits.has_any:  # a bare suffix reads as zero only where upstream takes its fast path
        raise errors.QuantityError(f"{text!r} is not a quantity: no digits before the suffix")
    unscaled = int(digits.whole + digits.fraction) * factor
    if unscaled == 0:
        return 0, exponent
    shift = exponent + 9
    if shift >= 0:
        return unscaled * 10**shift, _SMALLEST_EXPONENT
    return -(-unscaled // 10**-shift), _SMALLEST_EXPONENT


def _signed(digits: _Digits, magnitude: int) -> int:
    return -magnitude if digits.negative else magnitude


def _binary_text(whole: int) -> str:
    factors = 0
    while whole % 1024 == 0:
        whole //= 1024
        factors += 1
    return f"{whole}{_BINARY_SUFFIX[factors]}"
