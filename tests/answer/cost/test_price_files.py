"""Price files and documents of records: what they mean, and how they are refused."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies

from dovetail import errors
from dovetail.answer.cost import example_prices, price_file, record_document
from tests.answer.cost import accounts

FILE = """\
currency: EUR
discountPercent: 10
prices:
  - product: "*h100*"
    pool: train-*
    spot: false
    labels: {topology.kubernetes.io/region: eu-*}
    perHour: "2.50"
    from: 2026-11-02T06:00:00Z
    until: 2026-11-03
  - product: "*H100*"
    perHour: 4
    discountPercent: 0
"""


def test_the_first_entry_that_matches_and_is_valid_counts() -> None:
    known = accounts.prices(FILE)
    region = {"topology.kubernetes.io/region": "eu-west-1"}
    gpu = accounts.gpu("g0", pool="train-1", **region)
    assert known.nano_per_hour(gpu, accounts.at(5.9)) == 4_000_000_000
    assert known.nano_per_hour(gpu, accounts.at(6)) == 2_250_000_000
    assert known.nano_per_hour(gpu, accounts.at(24)) == 4_000_000_000
    elsewhere = accounts.gpu("g0", pool="train-1")
    assert known.nano_per_hour(elsewhere, accounts.at(6)) == 4_000_000_000
    spot = accounts.gpu("g0", pool="train-1", is_spot=True, **region)
    assert known.nano_per_hour(spot, accounts.at(6)) == 4_000_000_000
    assert known.nano_per_hour(accounts.gpu("t", product="Tesla T4"), accounts.at(6)) is None
    assert known.changes() == (accounts.at(6), accounts.at(24))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prices: []", "line 1: currency: missing"),
        (
            "currency: USD\nprices:\n  - perHour: 1\n  - perhour: 1",
            'line 4: prices[1].perhour: unknown field; did you mean "perHour"?',
        ),
        ("currency: USD\nprices:\n  - product: x", "line 3: prices[0]: perHour is missing"),
        (
            "currency: USD\nprices:\n  - perHour: -1",
            'line 3: prices[0].perHour: "-1": expected 0 to',
        ),
        (
            "currency: USD\nprices:\n  - perHour: $3",
            'line 3: prices[0].perHour: "$3": expected a number',
        ),
        (
            "currency: USD\nprices:\n  - perHour: true",
            'line 3: prices[0].perHour: "True": expected a number',
        ),
        (
            "currency: USD\nprices:\n  - perHour: 'NaN'",
            'line 3: prices[0].perHour: "NaN": expected 0 to',
        ),
        (
            "currency: USD\nprices:\n  - perHour: 1\n    gpus: 0",
            'line 4: prices[0].gpus: "0": expected 1 to 1024',
        ),
        (
            "currency: USD\nprices:\n  - perHour: 1\n    spot: maybe",
            'line 4: prices[0].spot: "maybe": expected true',
        ),
        (
            "currency: USD\nprices:\n  - perHour: 1\n    from: soon",
            'line 4: prices[0].from: "soon": expected a date',
        ),
        (
            "currency: USD\nprices:\n  - perHour: 1\n    from: 2026-02-01\n    until: 2026-02-01",
            "line 5: prices[0].until: not after from",
        ),
        (
            "currency: USD\nprices:\n  - perHour: 1\n    labels: {a: 1}",
            'line 4: prices[0].labels.a: "1": expected text',
        ),
        ("currency: USD\nprices: 3", 'line 2: prices: "3": expected a list'),
        ("currency: USD\nprices: [3]", 'line 2: prices[0]: "3": expected fields: product'),
        (
            "currency: USD\ndiscountPercent: 120",
            'line 2: discountPercent: "120": expected 0 to 100',
        ),
        ("currency: USD\nbudgets:\n- perMonth: 3", "line 3: budgets[0]: queue is missing"),
        ("currency: USD\ncarbon:\n- {}", "line 3: carbon[0]: gramsPerKwh is missing"),
        ("- 1", 'line 1: "[1]": expected fields: currency'),
        ("currency: [", "line 2: not YAML"),
        ("", "0 documents; expected one"),
        ("a: 1\n---\nb: 1", "2 documents; expected one"),
    ],
)
def test_problems_name_the_line_and_the_path(text: str, problem: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        price_file.read(text, "p.yaml")
    assert str(refused.value).startswith(f"p.yaml: {problem}"), refused.value


trees = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=8),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(
            strategies.sampled_from(
                [
                    "currency",
                    "prices",
                    "carbon",
                    "budgets",
                    "perHour",
                    "product",
                    "labels",
                    "from",
                    "gpus",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@hypothesis.given(trees)
def test_any_tree_is_a_price_list_or_an_input_error(tree: object) -> None:
    message = refusal(json.dumps(tree))
    assert not message or message.startswith("p.yaml: ")


def refusal(text: str) -> str:
    try:
        price_file.read(text, "p.yaml")
    except errors.InputError as error:
        return str(error)
    return ""


def test_examples_are_marked_and_cover_common_gpus() -> None:
    known = example_prices.PRICES
    for product in (accounts.H100, accounts.A100, "Tesla T4", "NVIDIA L4", "NVIDIA L40S"):
        assert known.nano_per_hour(accounts.gpu("g", product=product), 0)
    recorded = record_document.read(b'{"assets": []}', "r.json")
    notes = accounts.table(recorded, known).notes
    assert [note.code for note in notes] == ["example-prices"]


ASSET = {"asset": "g", "node": "n", "product": "p", "start": 0}


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ([], "expected an object with assets, allocations"),
        ({"asset": []}, 'asset: unknown field; did you mean "assets"?'),
        (
            {"assets": [ASSET | {"isSpot": True}]},
            'assets[0].isSpot: unknown field; did you mean "is_spot"?',
        ),
        ({"assets": [ASSET, {"asset": "g"}]}, "assets[1]: Object missing required field node"),
        ({"assets": [ASSET | {"start": "soon"}]}, 'assets[0].start: "soon": expected milliseconds'),
        ({"assets": [ASSET | {"start": 5, "end": 4}]}, "assets[0].end: before start"),
        ({"assets": [ASSET | {"count": 0}]}, "assets[0].count: 0: expected 1 to"),
        ({"assets": [ASSET | {"start": -1}]}, "assets[0].start: expected years 1970 to 9999"),
        (
            {"unusable": [{"asset": "g", "node": "n", "micro_gpu": -1, "start": 0}]},
            "unusable[0].micro_gpu: -1: expected 0 or more",
        ),
        (
            {"waiting": [{"owner": {"namespce": "a"}, "micro_gpu": 1, "start": 0}]},
            'waiting[0].owner.namespce: unknown field; did you mean "namespace"?',
        ),
    ],
)
def test_documents_of_records_are_refused_with_their_path(tree: object, problem: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        record_document.read(json.dumps(tree).encode(), "r.json")
    assert str(refused.value).startswith(f"r.json: {problem}"), refused.value


def test_times_are_text_or_milliseconds() -> None:
    text = json.dumps({"assets": [ASSET | {"start": "1970-01-02T00:00:00Z", "end": 86_400_001}]})
    (asset,) = record_document.read(text.encode(), "r.json").assets
    assert (asset.start, asset.end) == (86_400_000, 86_400_001)


@hypothesis.given(strategies.binary(max_size=60))
def test_any_bytes_are_records_or_an_input_error(content: bytes) -> None:
    with pytest.raises(errors.InputError):
        record_document.read(b"[" + content, "r.json")
