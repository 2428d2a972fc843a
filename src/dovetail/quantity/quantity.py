"""Decides what two quantities add up to and which is larger, exactly.

Given texts such as 80Gi, 500m or 12e6, or integers; a Quantity is a whole number of nano units, so no answer
is ever rounded except the reads that say so. Never uses floating point, but for CEL's approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

from dovetail import cache, errors
from dovetail.quantity import quantity_text
from dovetail.quantity.quantity_text import INT64_MAX, INT64_MIN, NANOS, Format

__all__ = [
    "ZERO",
    "Format",
    "Quantity",
    "decode_hook",
    "encode_hook",
    "from_wire",
    "is_quantity",
    "parse",
]

_MILLI = 10**6  # nano units in one thousandth
_MEMO = 16_384  # texts remembered; a cluster spells its capacities in a few dozen ways
_WIRE_BLANKS = " \t\n\v\f\r\x85\xa0"  # what JSON decoding upstream trims around a quantity


class Quantity:
    """An exact amount. Equal amounts are equal and hash alike, however they were written.

    `exponent` and `is_big` keep how upstream would hold the number (an int64 times a power of ten, or a big
    decimal): CEL's isInteger and asApproximateFloat depend on it. They take no part in comparisons.
    Neither a Struct nor a dataclass: msgspec would then expect an object instead of asking `decode_hook`.
    """

    __slots__ = ("exponent", "format", "is_big", "nanos", "written")

    nanos: int
    format: Format
    exponent: int
    is_big: bool
    written: str | None

    def __init__(
        self,
        nanos: int,
        form: Format = Format.DECIMAL_SI,
        *,
        exponent: int = 0,
        is_big: bool = False,
        written: str | None = None,
    ) -> None:
        keep = object.__setattr__
        keep(self, "nanos", nanos)
        keep(self, "format", form)
        keep(self, "exponent", exponent)
        keep(self, "is_big", is_big)
        keep(self, "written", written)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a quantity never changes: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a quantity never changes: cannot delete {name}")

    def __reduce__(
        self,
    ) -> tuple[Callable[[quantity_text.Reading], Quantity], tuple[quantity_text.Reading]]:
        reading = quantity_text.Reading(
            self.nanos, self.format, self.exponent, self.is_big, self.written
        )
        return _from_reading, (reading,)

    @classmethod
    def from_int(cls, number: int, form: Format = Format.DECIMAL_SI) -> Quantity:
        """The quantity of a plain integer."""
        return cls(number * NANOS, form, is_big=not INT64_MIN <= number <= INT64_MAX)

    @classmethod
    def from_milli(cls, thousandths: int, form: Format = Format.DECIMAL_SI) -> Quantity:
        """The quantity of so many thousandths."""
        return cls(
            thousandths * _MILLI,
            form,
            exponent=-3,
            is_big=not INT64_MIN <= thousandths <= INT64_MAX,
        )

    def __str__(self) -> str:
        """The canonical form, which parses back to an equal quantity."""
        return quantity_text.canonical(self.nanos, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    @property
    def text(self) -> str:
        """What an API server would store: the text as written where upstream keeps it, else canonical."""
        return self.written if self.written is not None else str(self)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    def value(self) -> int:
        """The amount in whole units, rounded away from zero. Not bounded, unlike upstream's int64."""
        return _rounded_up(self.nanos, NANOS)

    def milli_value(self) -> int:
        """The amount in thousandths, rounded away from zero. Not bounded, unlike upstream's int64."""
        return _rounded_up(self.nanos, _MILLI)

    def as_exact_milli(self) -> int | None:
        """The amount in thousandths if that loses nothing and fits an int64."""
        thousandths, remainder = divmod(self.nanos, _MILLI)
        return thousandths if remainder == 0 and INT64_MIN <= thousandths <= INT64_MAX else None

    def as_int64(self) -> int | None:
        """The amount where upstream has it as an int64: for 5 and 2k, not for 1.0 or 1Pi (see `is_big`)."""
        if self.is_big or self.exponent < 0:
            return None
        number = self.nanos // NANOS
        return number if INT64_MIN <= number <= INT64_MAX else None

    def is_integer(self) -> bool:
        """As CEL's isInteger: whether `as_int64` has an answer. Narrower than being a whole number."""
        return self.as_int64() is not None

    def approx_float(self) -> float:
        """As CEL's asApproximateFloat, to the last bit: two roundings, infinite beyond a double's range."""
        shift = self.exponent + 9
        unscaled = self.nanos // 10**shift if shift >= 0 else self.nanos * 10**-shift
        base = _nearest_float(unscaled)
        return base * _power_of_ten(self.exponent) if self.exponent else base

    def add(self, other: Quantity | int) -> Quantity:
        """The sum, in our format; in the other's if we are zero."""
        return self._combined(_term(other), negated=False)

    def sub(self, other: Quantity | int) -> Quantity:
        """The difference, in our format; in the other's if we are zero."""
        return self._combined(_term(other), negated=True)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1 as we are less, equal or greater."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)

    def is_spelled_like(self, other: Quantity) -> bool:
        """Whether both have the same representation, as Go's == on quantities compares. Big decimals never do."""
        return (
            not self.is_big
            and not other.is_big
            and self.nanos == other.nanos
            and self.exponent == other.exponent
            and self.format is other.format
            and self.written == other.written
        )

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Quantity) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Quantity) -> bool:
        return self.nanos >= other.nanos

    def _combined(self, other: Quantity, *, negated: bool) -> Quantity:
        nanos = self.nanos - other.nanos if negated else self.nanos + other.nanos
        form = self.format if self.nanos else other.format
        exponent = min(self.exponent, other.exponent)
        if self.is_big or other.is_big:
            return Quantity(nanos, form, exponent=exponent, is_big=True)
        if not other.nanos:
            return Quantity(nanos, form, exponent=self.exponent)
        if not self.nanos:
            return Quantity(nanos, form, exponent=other.exponent)
        unit = 10 ** (exponent + 9)
        fits = all(
            INT64_MIN <= number // unit <= INT64_MAX for number in (self.nanos, other.nanos, nanos)
        )
        return Quantity(nanos, form, exponent=exponent, is_big=not fits)


ZERO = Quantity(0)


@cache.remembered(_MEMO)
def parse(text: str) -> Quantity:
    """The quantity a text spells. Raises errors.QuantityError; remembers recent texts."""
    return _from_reading(quantity_text.read(text))


def is_quantity(text: str) -> bool:
    """Whether `parse` accepts the text."""
    try:
        parse(text)
    except errors.QuantityError:
        return False
    return True


def from_wire(value: object) -> Quantity:
    """A quantity from JSON or YAML: a text, a number, or null for zero. Blanks around a text are allowed.

    Reads whatever an API server stores: numbers beyond our bounds are clamped, see `quantity_text.read_stored`.
    """
    if isinstance(value, str):
        return _stored(value.strip(_WIRE_BLANKS))
    if value is None:
        return ZERO
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.QuantityError(
            f"expected a quantity such as 80Gi or 2, got {type(value).__name__}"
        )
    if isinstance(value, int) and value.bit_length() > 2 * quantity_text.MAX_TEXT_LENGTH:
        raise errors.QuantityError(
            f"a number of {value.bit_length()} bits is too long for a quantity"
        )
    return parse(repr(value))


def _stored(text: str) -> Quantity:
    try:
        return parse(text)  # remembered
    except errors.QuantityError:
        return _from_reading(quantity_text.read_stored(text))


def decode_hook(kind: type, value: object) -> object:
    """For msgspec's dec_hook: turns wire values into quantities; NotImplementedError is how a hook declines."""
    if kind is Quantity:
        return from_wire(value)
    raise NotImplementedError(f"no decoding for {kind.__name__}")


def encode_hook(value: object) -> object:
    """For msgspec's enc_hook: writes quantities as text; NotImplementedError is how a hook declines."""
    if isinstance(value, Quantity):
        return value.text
    raise NotImplementedError(f"no encoding for {type(value).__name__}")


def _from_reading(reading: quantity_text.Reading) -> Quantity:
    nanos, form, exponent, is_big, written = reading
    return Quantity(nanos, form, exponent=exponent, is_big=is_big, written=written)


def _term(other: Quantity | int) -> Quantity:
    return Quantity.from_int(other, Format.DECIMAL_EXPONENT) if isinstance(other, int) else other


def _rounded_up(nanos: int, unit: int) -> int:
    return -(-nanos // unit) if nanos > 0 else nanos // unit


def _nearest_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _power_of_ten(exponent: int) -> float:
    """Go's math.Pow10: made of two table entries, so it may be off by one bit, which CEL shows."""
    if exponent > 308:
        return math.inf
    if exponent < -323:
        return 0.0
    coarse, fine = divmod(abs(exponent), 32)
    if exponent < 0:
        return float(f"1e-{32 * coarse}") / float(f"1e{fine}")
    return float(f"1e{32 * coarse}") * float(f"1e{fine}")
