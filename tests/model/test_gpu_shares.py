"""Shares of a GPU by KAI's annotations: what they request, the template that stands for it, and how parts add up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes import names
from dovetail.kubetypes.field_errors import Terms
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_shares, share_templates
from tests.schedule import build

GIB = 1024**3
L40S = 46068 * gpu_shares.MIB
TERMS = Terms(selectors.problem, now="2026-01-01T00:00:00Z")

DIGITS = st.from_regex(r"0?\.[0-9]{1,6}", fullmatch=True).filter(lambda text: text.strip("0."))
COUNTS = st.integers(1, gpu_shares.MOST_DEVICES)
SHARES = st.one_of(
    st.builds(lambda text, count: ({"gpu-fraction": text}, count), DIGITS, COUNTS),
    st.builds(
        lambda mib, count: ({"gpu-memory": str(mib)}, count), st.integers(1, 10**9 - 1), COUNTS
    ),
)


@given(SHARES)
def test_a_template_says_in_its_name_what_the_annotations_request(
    request: tuple[dict[str, str], int],
) -> None:
    words, count = request
    share = gpu_shares.requested(words | {"gpu-fraction-num-devices": str(count)})
    assert isinstance(share, gpu_shares.Share)
    name = gpu_shares.template_name(share)
    assert names.is_dns_subdomain(name)
    assert gpu_shares.of_template(name) == share


@pytest.mark.parametrize(
    ("words", "key"),
    [
        *[({"gpu-fraction": text}, "gpu-fraction") for text in ("0", "0.0", "1", "1.5", "-0.1")],
        *[
            ({"gpu-fraction": text}, "gpu-fraction")
            for text in ("", "5e-1", "0,5", "0.5 ", "0.5\n")
        ],
        *[({"gpu-fraction": text}, "gpu-fraction") for text in ("0.1234567", "0.५", "nan", "0x.8")],
        *[({"gpu-memory": text}, "gpu-memory") for text in ("", "0", "-1", "2Gi", "1.5", "１")],
        ({"gpu-memory": "1" * 10}, "gpu-memory"),
        ({"gpu-fraction": "0.5", "gpu-memory": "1"}, "gpu-memory"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "gpu-fraction-num-devices"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "17"}, "gpu-fraction-num-devices"),
        ({"gpu-fraction-num-devices": "2"}, "gpu-fraction-num-devices"),
        ({"gpu-fraction-container-name": "main"}, "gpu-fraction-container-name"),
    ],
    ids=str,
)
def test_what_is_no_share_is_named(words: dict[str, str], key: str) -> None:
    problem = gpu_shares.requested(words)
    assert isinstance(problem, gpu_shares.Problem)
    assert problem.key == key


@given(st.text(max_size=40) | st.from_regex(r"dovetail-gpu-(fraction|memory)-.{0,12}"))
def test_only_names_that_are_derived_from_a_share_are_read_as_one(name: str) -> None:
    share = gpu_shares.of_template(name)
    assert share is None or gpu_shares.template_name(share) == name


@pytest.mark.parametrize(
    "name",
    [
        "dovetail-gpu-fraction-0.0",
        "dovetail-gpu-fraction-1.5",
        "dovetail-gpu-fraction-0.5-x1",
        "dovetail-gpu-fraction-0.5-x17",
        "dovetail-gpu-memory-0mi",
        "dovetail-gpu-memory-2gi",
        "x-dovetail-gpu-memory-1mi",
        "dovetail-gpu-memory-1mi\n",
    ],
)
def test_no_other_name_is_a_share(name: str) -> None:
    assert gpu_shares.of_template(name) is None


@given(DIGITS, st.integers(1, 300 * GIB))
def test_as_many_parts_fit_as_the_fraction_promises(text: str, size: int) -> None:
    share = gpu_shares.requested({"gpu-fraction": text})
    assert isinstance(share, gpu_shares.Share)
    part = share.memory_of(size) * gpu_shares.MIB
    fraction = Fraction(share.fraction)
    assert part == gpu_shares.MIB or fraction * size - gpu_shares.MIB < part <= fraction * size
    if part > gpu_shares.MIB:
        assert math.floor(1 / fraction) * part <= size


def test_a_fraction_has_one_alternative_per_size_the_smallest_first() -> None:
    template = _template({"gpu-fraction": "0.25"}, _kinds({80 * GIB: 8, L40S: 4}))
    [request] = template.spec.spec.devices.requests
    alternatives = {option.name: _memory(option) for option in request.first_available}
    assert alternatives == {"of-46068mi": "11517Mi", "of-80gi": "20Gi"}
    assert [*alternatives] == ["of-46068mi", "of-80gi"]


def test_memory_is_the_same_on_every_size() -> None:
    template = _template({"gpu-memory": "2000"}, _kinds({80 * GIB: 8, L40S: 4}))
    [request] = template.spec.spec.devices.requests
    assert request.exactly is not None
    assert _memory(request.exactly) == "2000Mi"


def test_of_too_many_sizes_the_most_frequent_count() -> None:
    counts = {size * GIB: size for size in range(1, 11)}
    kinds = share_templates.kinds_for(_kinds(counts))
    assert [kind.memory_bytes for kind in kinds] == [size * GIB for size in range(3, 11)]


@pytest.mark.parametrize(("whole", "amounts"), [(1000, ["250m", "20m"]), (100_000, ["25", "2"])])
def test_where_gpus_also_offer_a_share_of_the_whole_it_is_the_same_part(
    whole: int, amounts: list[str]
) -> None:
    requests = []
    for words in ({"gpu-fraction": "0.25"}, {"gpu-memory": "2000"}):
        [request] = _template(words, _kinds({80 * GIB: 1}, whole)).spec.spec.devices.requests
        [option] = request.first_available
        assert option.capacity is not None
        requests.append({name: str(each) for name, each in option.capacity.requests.items()})
    assert requests == [
        {"memory": "20Gi", "dovetail.dev/share": amounts[0]},
        {"memory": "2000Mi", "dovetail.dev/share": amounts[1]},
    ]


KINDS = st.builds(
    share_templates.Kind,
    st.integers(1, 3) | st.integers(1, 2**40),
    st.sampled_from([0, 1000, 10**5]),
)


@given(SHARES, st.dictionaries(KINDS, st.integers(1, 100), min_size=1, max_size=12))
def test_an_api_server_takes_every_template(
    request: tuple[dict[str, str], int], kinds: dict[share_templates.Kind, int]
) -> None:
    words, count = request
    template = _template(words | {"gpu-fraction-num-devices": str(count)}, kinds)
    verdict = admit.create(template, TERMS)
    assert verdict.is_valid, verdict.problems


def _kinds(counts: dict[int, int], share_thousandths: int = 0) -> dict[share_templates.Kind, int]:
    return {share_templates.Kind(size, share_thousandths): count for size, count in counts.items()}


def _template(
    words: dict[str, str], counts: dict[share_templates.Kind, int]
) -> claims.ResourceClaimTemplate:
    share = gpu_shares.requested(words)
    assert isinstance(share, gpu_shares.Share)
    return share_templates.template_for(
        gpu_shares.template_name(share),
        share,
        pod=build.pod("p"),
        kinds=share_templates.kinds_for(counts),
    )


def _memory(option: Any) -> str:
    return str(option.capacity.requests["memory"])
