"""Quantities: the recorded answers of Kubernetes, and what must hold for all of them."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.quantity import quantity, quantity_text
from tests.support import shared

INT64_MAX = (1 << 63) - 1
CAPPED = INT64_MAX * quantity_text.NANOS
SEPTILLION = 10**21 * quantity_text.NANOS

texts = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "-", "+"]),
        st.text("0123456789", min_size=1, max_size=22),
        st.one_of(st.just(""), st.text("0123456789", max_size=12).map(lambda digits: "." + digits)),
        st.sampled_from(
            [
                "",
                "n",
                "u",
                "m",
                "k",
                "M",
                "G",
                "T",
                "P",
                "E",
                "Ki",
                "Mi",
                "Gi",
                "Ti",
                "Pi",
                "Ei",
                "e3",
                "E-7",
                "e99",
            ]
        ),
    ),
)
quantities = texts.map(quantity.parse)


def recorded(table: str) -> list[dict[str, Any]]:
    return list(shared.document("conformance/dra/quantity_semver.json.gz")[table])


def is_printed_wrongly_upstream(q: quantity.Quantity) -> bool:
    """Upstream has no suffix beyond E, and its binary suffixes read back as the cap beyond int64."""
    if q.format is quantity.Format.BINARY_SI and abs(q.nanos) > CAPPED:
        return True
    return (
        q.nanos != 0
        and q.nanos % SEPTILLION == 0
        and q.format is not quantity.Format.DECIMAL_EXPONENT
    )


def upstream_reads_without_wrapping(q: quantity.Quantity, exact: int) -> bool:
    """Upstream's int64 reads wrap when too large, and misround negative big decimals."""
    return -INT64_MAX - 1 <= exact <= INT64_MAX and not (q.is_big and q.sign < 0)


def test_every_recorded_text_is_accepted_or_refused_as_upstream_does() -> None:
    for row in recorded("quantity"):
        assert quantity.is_quantity(row["input"]) == row["ok"] == row["celIsQuantity"], row


def test_every_recorded_reading_agrees() -> None:
    accepted = [row for row in recorded("quantity") if row["ok"]]
    assert len(accepted) > 150
    for row in accepted:
        q = quantity.parse(row["input"])
        assert Fraction(q.nanos, quantity_text.NANOS) == Fraction(row["exactDecimal"]), row
        assert (q.format, q.sign) == (row["format"], row["sign"]), row
        number = q.as_int64()
        assert (number is not None) == row["asInt64Ok"] == row["celIsInteger"] == q.is_integer(), (
            row
        )
        assert number == (int(row["asInt64"]) if row["asInt64Ok"] else None), row
        assert ("celAsIntegerError" in row) == (number is None), row
        assert row.get("celAsInteger", str(number)) == str(number), row
        assert (
            q.approx_float() == float(row["approxFloat"]) == float(row["celAsApproximateFloat"])
        ), row


def test_every_recorded_integer_read_agrees_where_upstream_does_not_wrap() -> None:
    compared = 0
    for row in recorded("quantity"):
        if row["ok"]:
            q = quantity.parse(row["input"])
            for exact, column in ((q.value(), "value"), (q.milli_value(), "milliValue")):
                if upstream_reads_without_wrapping(q, exact):
                    assert str(exact) == row[column], row
                    compared += 1
    assert compared > 300


def test_every_recorded_printing_agrees_but_for_the_known_slips() -> None:
    compared = 0
    for row in recorded("quantity"):
        if row["ok"] and not is_printed_wrongly_upstream(q := quantity.parse(row["input"])):
            assert (str(q), q.text) == (row["canonical"], row["string"]), row
            compared += 1
    assert compared > 150


def test_every_recorded_pair_compares_and_adds_up_as_upstream_says() -> None:
    compared = 0
    for row in recorded("quantityPairs"):
        a, b = quantity.parse(row["a"]), quantity.parse(row["b"])
        assert a.compare(b) == row["cmp"], row
        assert (a == b) == row["celEqual"], row
        for result, column in ((a.add(b), "add"), (a.sub(b), "sub")):
            if not is_printed_wrongly_upstream(result):
                assert str(result) == row[column], row
                compared += 1
    assert compared > 1000


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000E", "1000E"),
        ("1000000000000000000000", "1000E"),
        ("-5000000E", "-5000000E"),
        ("1500m", "1500m"),
        ("0.5Gi", "512Mi"),
        ("8Ei", "9223372036854775807"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("0.1Ki", "102400m"),
        ("1e21", "1e21"),
    ],
)
def test_the_canonical_form_is_exact_and_reads_back(text: str, canonical: str) -> None:
    assert str(quantity.parse(text)) == canonical
    assert quantity.parse(canonical) == quantity.parse(text)


def test_sums_beyond_the_binary_cap_are_written_in_full() -> None:
    total = quantity.parse("4Ei").add(quantity.parse("4Ei"))
    assert str(total) == "9223372036854775808"
    assert quantity.parse(str(total)) == total


def test_zero_takes_on_the_format_of_what_is_added() -> None:
    assert str(quantity.parse("0").add(quantity.parse("2Ki"))) == "2Ki"
    assert str(quantity.parse("0").add(2000)) == "2e3"
    assert str(quantity.parse("1Ki").add(1024)) == "2Ki"
    assert str(quantity.parse("3k").sub(1000)) == "2k"


def test_a_quantity_never_changes_and_survives_pickling() -> None:
    q = quantity.parse("1.5Gi")
    with pytest.raises(AttributeError):
        q.nanos = 1
    with pytest.raises(AttributeError):
        del q.nanos
    again = pickle.loads(pickle.dumps(q))
    assert (again, again.text, again.is_big, again.approx_float()) == (
        q,
        q.text,
        q.is_big,
        q.approx_float(),
    )


def test_integers_beyond_int64_are_kept_exactly() -> None:
    big = quantity.Quantity.from_int(INT64_MAX + 1)
    assert (big.value(), big.as_int64()) == (INT64_MAX + 1, None)
    assert quantity.Quantity.from_int(INT64_MAX).as_int64() == INT64_MAX
    assert quantity.Quantity.from_int(INT64_MAX).add(1).as_int64() is None


@pytest.mark.parametrize(
    "text", ["Ei", "-Pi", ".Ei", "e-20", "1e", "1 ", "1\n", "٣", "1Gi ", "", "1e1025"]
)
def test_what_upstream_or_the_bounds_refuse_is_refused(text: str) -> None:
    with pytest.raises(errors.QuantityError):
        quantity.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "1e2147483648",
        "1e-2147483648",
        "1e" + "9" * 900,
        "9" * 100_000,
        "1" * 1000 + "x",
        "." * 1000,
    ],
)
def test_hostile_texts_are_refused_at_once_with_a_short_message(text: str) -> None:
    with pytest.raises(errors.QuantityError) as refused:
        quantity.parse(text)
    assert len(str(refused.value)) < 200


def test_the_largest_numbers_within_the_bounds_can_be_printed() -> None:
    largest = quantity.parse("9" * 1000 + "e1024")
    assert str(largest.add(quantity.parse("1"))).endswith("001")
    assert str(quantity.parse("1").sub(largest)).startswith("-999")
    assert largest.approx_float() == float("inf")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1e1100", 10**1100),
        ("-1e1500", -(10**1500)),
        (
            "1e2147483646",
            10**quantity_text.MAX_ORDER,
        ),  # upstream keeps it as one times a power, at no cost
        ("1e4294967296", 1),  # upstream keeps the lower half of an exponent
        ("1e-4294967294", 100),
        ("9" * 5_000, 10**quantity_text.MAX_ORDER),
        ("1" + "0" * 1500 + "E", 10**1518),
        ("1" + "0" * 1500 + "Ki", INT64_MAX),
        ("0" * 3_000 + "7", 7),
        ("0." + "0" * 3_000 + "e9", 0),
        ("2." + "0" * 3_000 + "Ki", 2048),
    ],
)
def test_what_a_server_stores_beyond_our_bounds_is_clamped(text: str, whole: int) -> None:
    assert quantity.from_wire(text).value() == whole


def test_what_was_clamped_is_written_as_it_was() -> None:
    assert [quantity.from_wire(text).text for text in ("1e1100", "9" * 2_000)] == [
        "1e1100",
        "9" * 2_000,
    ]


@pytest.mark.parametrize(
    "text", ["1e-2000", "1e-2147483647", "0." + "0" * 2_000 + "1", "0." + "0" * 2_000 + "1Ki"]
)
def test_less_than_the_smallest_unit_is_one_of_them(text: str) -> None:
    assert quantity.from_wire(text).nanos == 1


@pytest.mark.parametrize(
    "text",
    [
        "1e9223372036854775808",
        "1e" + "9" * 2_000,
        "1" * 2_000 + "x",
        "." * 2_000,
        "e2000",
        "Ei" * 600,
        "",
    ],
)
def test_what_no_server_stores_is_refused_from_the_wire_too(text: str) -> None:
    with pytest.raises(errors.QuantityError):
        quantity.from_wire(text)


@given(
    st.text("0123456789", min_size=1, max_size=30),
    st.text("0123456789", max_size=30),
    st.integers(-60, 60),
)
def test_clamping_is_exact_within_the_bounds(whole: str, fraction: str, exponent: int) -> None:
    text = f"{whole}.{fraction}e{exponent}"
    padded = f"{'0' * quantity_text.MAX_TEXT_LENGTH}{text}"
    assert quantity.from_wire(padded) == quantity.parse(text)


def test_the_wire_may_carry_text_numbers_or_null() -> None:
    class Box(msgspec.Struct):
        size: quantity.Quantity

    def decoded(raw: str) -> quantity.Quantity:
        return msgspec.json.decode(
            f'{{"size": {raw}}}', type=Box, dec_hook=quantity.decode_hook
        ).size

    assert decoded('" 80Gi "') == quantity.parse("80Gi")
    assert decoded("12") == quantity.parse("12")
    assert decoded("0.5") == quantity.parse("500m")
    assert decoded("1e22") == quantity.parse("1e22")
    assert decoded("null") == quantity.ZERO
    for raw in ("true", "[]", '"eighty"'):
        with pytest.raises(msgspec.ValidationError, match=r"\$\.size"):
            decoded(raw)
    box = Box(size=quantity.parse("1024Ki"))
    assert msgspec.json.encode(box, enc_hook=quantity.encode_hook) == b'{"size":"1Mi"}'


def test_numbers_too_long_for_a_quantity_are_refused() -> None:
    with pytest.raises(errors.QuantityError):
        quantity.from_wire(1 << 100_000)


@given(quantities)
def test_text_reads_back_to_an_equal_quantity(q: quantity.Quantity) -> None:
    for text in (str(q), q.text):
        assert quantity.parse(text) == q
        assert hash(quantity.parse(text)) == hash(q)
    assert str(quantity.parse(str(q))) == str(q)


@given(quantities, quantities)
def test_sums_and_differences_undo_each_other_and_read_back(
    a: quantity.Quantity, b: quantity.Quantity
) -> None:
    assert a.add(b).sub(b) == a == a.sub(b).add(b)
    assert a.add(b) == b.add(a)
    assert quantity.parse(str(a.add(b))) == a.add(b)
    assert quantity.parse(str(a.sub(b))) == a.sub(b)


@given(quantities, quantities)
def test_the_order_is_total_and_agrees_with_the_exact_value(
    a: quantity.Quantity, b: quantity.Quantity
) -> None:
    assert [a < b, a == b, a > b].count(True) == 1
    assert (a <= b, a >= b) == (not a > b, not a < b)
    assert a.compare(b) == -b.compare(a) == a.sub(b).sign


@given(quantities)
def test_reads_in_whole_units_round_away_from_zero(q: quantity.Quantity) -> None:
    exact = Fraction(q.nanos, quantity_text.NANOS)
    assert 0 <= (q.value() - exact) * (q.sign or 1) < 1
    assert 0 <= (q.milli_value() - exact * 1000) * (q.sign or 1) < 1


@given(st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_either_a_quantity_or_a_quantity_error(text: str) -> None:
    if quantity.is_quantity(text):
        assert quantity.parse(str(quantity.parse(text))) == quantity.parse(text)
