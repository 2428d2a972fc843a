"""NVIDIA_REQUIRE_CUDA of public CUDA images, as their configurations hold it, and hosts to try them on."""

from __future__ import annotations

from typing import Final

_BRANDS: Final = [
    "unknown",
    "grid",
    "tesla",
    "nvidia",
    "quadro",
    "quadrortx",
    "nvidiartx",
    "vapps",
    "vpc",
    "vcs",
    "vws",
    "cloudgaming",
]
_OLDER_BRANDS: Final = [
    "tesla",
    "unknown",
    "nvidia",
    "nvidiartx",
    "geforce",
    "geforcertx",
    "quadro",
    "quadrortx",
    "titan",
    "titanrtx",
]


def _text(cuda: str, branches: tuple[int, ...], brands: list[str]) -> str:
    """As the images write it: every branch with every brand."""
    pairs = [
        f"brand={brand},driver>={branch},driver<{branch + 1}"
        for branch in branches
        for brand in brands
    ]
    return " ".join([f"cuda>={cuda}", *pairs])


BY_CUDA: Final = {
    "12.1": _text("12.1", (470, 525), _OLDER_BRANDS),
    "12.9": _text("12.9", (535, 550, 560, 565, 570), _BRANDS),
    "13.0": _text("13.0", (535, 550, 565, 570, 575), _BRANDS),
    "13.1": _text("13.1", (535, 550, 570, 575, 580), _BRANDS),
    "13.2": _text("13.2", (535, 570, 580, 590), _BRANDS),
}

# Driver, and the CUDA inside it.
HOSTS: Final = {
    "470.256.2": "11.4",
    "525.147.5": "12.0",
    "535.309.1": "12.2",
    "550.163.1": "12.4",
    "555.42.6": "12.5",
    "560.35.5": "12.6",
    "565.57.1": "12.7",
    "570.211.1": "12.8",
    "575.57.8": "12.9",
    "580.178.4": "13.0",
    "590.48.1": "13.1",
    "595.91.7": "13.2",
}
