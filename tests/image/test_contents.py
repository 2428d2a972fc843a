"""What is in the image: the program and the packages of the lock, and nothing to build or to test with."""

from __future__ import annotations

import re

import pytest

from tests.support import product_image
from tools import sbom

pytestmark = pytest.mark.slow

HOME = "opt/dovetail"
INFORMATION = re.compile(
    rf"{HOME}/lib/python[\d.]+/site-packages/([^/]+)-([^/-]+)\.dist-info/METADATA"
)
# What the Containerfile removes after the build.
BUILD_PACKAGES = frozenset(
    (
        "editables",
        "grpcio-tools",
        "hatchling",
        "packaging",
        "pathspec",
        "pluggy",
        "setuptools",
        "tomlkit",
        "trove-classifiers",
    )
)
PROGRAMS = frozenset(
    ("cc", "gcc", "g++", "go", "ld", "make", "pip", "pip3", "apt-get", "curl", "git")
)


@pytest.fixture(scope="module")
def image() -> product_image.Image:
    """The image of this checkout."""
    return product_image.image()


def test_the_image_names_its_user_and_its_program(image: product_image.Image) -> None:
    settings = image.configuration["config"]
    assert settings["User"] == "65532:65532"
    assert settings["Entrypoint"] == ["/opt/dovetail/bin/dovetail"]
    assert settings["Cmd"] == ["scheduler"]


def test_the_packages_are_those_of_the_bill_of_materials(image: product_image.Image) -> None:
    listed = sbom.packages(sbom.LOCK.read_text(encoding="utf-8"))
    expected = {
        (sbom.normalised(package.name), package.version)
        for package in listed
        if not package.marker and sbom.normalised(package.name) not in BUILD_PACKAGES
    }
    present = {(sbom.normalised(name), version) for name, version in installed(image)}
    (own,) = [entry for entry in present if entry[0] == "dovetail"]
    # What the lock installs on some systems only may or may not be there; nothing else may.
    conditional = {
        (sbom.normalised(package.name), package.version) for package in listed if package.marker
    }
    assert expected <= present
    assert present - expected - {own} <= conditional


def test_nothing_to_build_or_to_test_with_is_in_the_environment(
    image: product_image.Image,
) -> None:
    names = {sbom.normalised(name) for name, _ in installed(image)}
    assert not names & (BUILD_PACKAGES | {"pip", "pytest", "hypothesis"})
    environment = {path for path in image.paths if path.startswith(f"{HOME}/")}
    assert len(environment) > 1000
    own = {path for path in environment if "/site-packages/dovetail/" in path}
    assert not [path for path in own if "/tests/" in path]
    assert not [
        path for path in environment if path.endswith((".c", ".o", ".a")) and path not in own
    ]


def test_the_image_has_no_compiler_and_no_installer(image: product_image.Image) -> None:
    folders = ("bin/", "sbin/", "usr/bin/", "usr/sbin/", "usr/local/bin/", f"{HOME}/bin/")
    programs = {path.rpartition("/")[2] for path in image.paths if path.startswith(folders)}
    assert {"python3", "dovetail"} <= programs
    assert not programs & PROGRAMS


def test_every_module_is_compiled(image: product_image.Image) -> None:
    library = re.compile(rf"({HOME}/lib/(python[\d.]+)/site-packages/.*?)([^/]+)\.py")
    missing = []
    for path in image.paths:
        if module := library.fullmatch(path):
            folder, version, name = module.groups()
            tag = f"cpython-{version.removeprefix('python').replace('.', '')}"
            compiled = f"{folder}__pycache__/{name}.{tag}.pyc"
            if compiled not in image.paths:
                missing.append(path)
    assert missing == []


def test_the_messages_of_the_kubelet_were_generated_in_the_build(
    image: product_image.Image,
) -> None:
    generated = {path for path in image.paths if path.endswith("_pb2.py") and "/dovetail/" in path}
    assert len(generated) >= 4


def test_the_size_is_as_documented(image: product_image.Image) -> None:
    page = (sbom.ROOT / "docs/how-to/build-the-image.md").read_text(encoding="utf-8")
    stated = re.search(r"adds (\d+) MB to the base", page)
    assert stated is not None
    _, product = image.layer_bytes
    print(f"image {image.size_bytes / 1e6:.0f} MB, of which Dovetail {product / 1e6:.0f} MB")
    assert product == pytest.approx(int(stated[1]) * 1e6, rel=0.1)


def installed(image: product_image.Image) -> list[tuple[str, str]]:
    """Name and version of each package of the environment."""
    matches = [INFORMATION.fullmatch(path) for path in image.paths]
    return [(match[1], match[2]) for match in matches if match is not None]
