"""NVIDIA_REQUIRE_* of real images on real driver branches, and the rules of the grammar."""

from __future__ import annotations

import pytest

from dovetail.gpus import image_requirements as requirements
from tests.gpus import requirement_strings

MET, UNMET = requirements.State.MET, requirements.State.UNMET
UNKNOWN, INVALID = requirements.State.UNKNOWN, requirements.State.INVALID


def _on(text: str, **host: str | None) -> requirements.Outcome:
    return requirements.evaluate([text], host)


def _branches(cuda: str, brand: str) -> list[str]:
    """The branches on which the image of that CUDA may start."""
    text = requirement_strings.BY_CUDA[cuda]
    outcomes = {
        driver.partition(".")[0]: _on(text, cuda=inside, driver=driver, brand=brand, arch="9.0")
        for driver, inside in requirement_strings.HOSTS.items()
    }
    return [branch for branch, outcome in outcomes.items() if outcome.state is MET]


def test_an_image_of_cuda_13_2_skips_branches_between_those_it_lists() -> None:
    assert _branches("13.2", "tesla") == ["535", "570", "580", "590", "595"]


def test_an_image_of_cuda_12_9_starts_on_560_and_not_on_555() -> None:
    assert _branches("12.9", "nvidia") == [
        "535", "550", "560", "565", "570", "575", "580", "590", "595",
    ]  # fmt: skip


def test_a_geforce_board_gets_no_compatibility_package() -> None:
    assert _branches("12.9", "geforce") == ["575", "580", "590", "595"]


def test_the_outcome_names_the_alternative_that_was_met() -> None:
    text = requirement_strings.BY_CUDA["13.2"]
    newer = _on(text, cuda="13.2", driver="595.91.7", brand="tesla")
    older = _on(text, cuda="12.8", driver="570.211.1", brand="tesla")
    assert [",".join(map(str, each)) for each in newer.met_by] == ["cuda>=13.2"]
    assert [",".join(map(str, each)) for each in older.met_by] == [
        "brand=tesla,driver>=570,driver<571"
    ]


def test_what_is_not_known_is_unknown_only_where_it_decides() -> None:
    text = requirement_strings.BY_CUDA["13.2"]
    assert _on(text, cuda="13.2", driver=None, brand=None).state is MET
    assert _on(text, cuda="12.8", driver="570.211.1", brand=None).state is UNKNOWN
    assert _on(text, cuda="12.4", driver="550.163.1", brand=None).state is UNMET
    assert _on(text, cuda="12.8", driver=None, brand="tesla").problem == "not known: driver, arch"


def test_an_unmet_requirement_says_need_and_have() -> None:
    outcome = _on("cuda>=13.0 brand=tesla,driver>=535", cuda="12.2", brand="geforce", driver="535")
    assert outcome.problem == (
        "needs cuda>=13.0 or one of 1 other alternatives;"
        " the host has cuda 12.2, driver 535, brand geforce"
    )


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", MET),
        ("   ", MET),
        ("cuda>=12.0,cuda<13", MET),
        ("cuda>=13 cuda<13", MET),
        ("driver>=580.95", MET),
        ("driver>=580.95.05", INVALID),  # Go's versions have no leading zeros
        ("jetpack>=6", MET),  # nothing that counts
        ("jetpack>=6,cuda>=13", UNMET),
        ("cuda", INVALID),
        ("cuda>=12.0 cuda>=twelve", INVALID),
        ("cuda=>12.0", INVALID),
        ("brand!tesla", UNMET),
        ("brand!=tesla brand=tesla", MET),
        ("arch>=9", MET),
        ("arch>=10", UNMET),
    ],
)
def test_the_grammar(text: str, state: requirements.State) -> None:
    assert _on(text, cuda="12.8", driver="580.95.5", brand="tesla", arch="9.0").state is state


@pytest.mark.parametrize(
    ("environment", "texts"),
    [
        ({}, ()),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.9", "CUDA_VERSION": "12.9.1"}, ("cuda>=12.9",)),
        ({"CUDA_VERSION": "12.9.1"}, ("cuda>=12.9",)),
        ({"CUDA_VERSION": "9"}, ("cuda>=9.0",)),
        ({"CUDA_VERSION": "local"}, ("cuda>=?local",)),
        (
            {"NVIDIA_REQUIRE_DRIVER": "driver>=535", "NVIDIA_REQUIRE_ARCH": "arch>=8"},
            ("arch>=8", "driver>=535"),
        ),
        ({"NVIDIA_REQUIRE_JETPACK": "6"}, ()),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=13", "NVIDIA_DISABLE_REQUIRE": "true"}, ()),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=13", "NVIDIA_DISABLE_REQUIRE": "yes"}, ("cuda>=13",)),
    ],
)
def test_which_variables_count(environment: dict[str, str], texts: tuple[str, ...]) -> None:
    assert requirements.requirements_of(environment) == texts
