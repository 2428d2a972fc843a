"""What an author probably meant."""

from __future__ import annotations

import pytest

from dovetail.answer.why.fixes import nearest


@pytest.mark.parametrize(
    ("written", "existing", "meant"),
    [
        ("hopper", ["Ampere", "Hopper"], "Hopper"),
        ("nvidia-h100-80gb", ["NVIDIA_H100_80GB", "NVIDIA-H200"], "NVIDIA_H100_80GB"),
        ("H100", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"], "NVIDIA H100 80GB HBM3"),
        ("nvidia.com", ["compute-domain.nvidia.com", "gpu.nvidia.com"], "gpu.nvidia.com"),
        ("traning", ["train", "training"], "training"),
    ],
)
def test_the_nearest_name_comes_first(written: str, existing: list[str], meant: str) -> None:
    assert nearest.names(written, existing)[0] == meant
    assert nearest.is_slip(written, meant)


@pytest.mark.parametrize(("written", "other"), [("H100", "H200"), ("zone-a", "nvme"), ("a", "ab")])
def test_another_model_or_name_is_no_slip(written: str, other: str) -> None:
    assert not nearest.is_slip(written, other)


def test_nothing_is_near_to_what_is_quite_different() -> None:
    assert nearest.names("train", ["inference", "cpu"]) == []


def test_profiles_are_near_by_size_not_by_spelling() -> None:
    offered = ["1g.10gb", "2g.20gb", "4g.40gb", "7g.80gb"]
    assert nearest.profiles("3g.40gb", offered) == ["4g.40gb", "2g.20gb", "1g.10gb", "7g.80gb"]
    assert nearest.profiles("nvidia.com/gpu", offered) == []
    assert nearest.is_profile("nvidia.com/mig-1g.10gb")
