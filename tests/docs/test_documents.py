"""The documents hold together: links lead somewhere, nothing is forgotten, nothing belongs to one machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tests.docs import reading

DOCUMENTS = reading.documents()
# The kubelet, container runtimes and NVIDIA's driver have the same paths on every machine.
FIXED_PATH = re.compile(r"/var/lib/kubelet|/var/run/cdi|/usr/bin/nvidia-|/var/run/kubernetes\.io")
MACHINE_PATH = re.compile(
    r"(?<![\w.~$}])/(?:home|root|tmp|work|Users|opt|mnt|var|srv|usr)/|\b[A-Z]:\\"
)


def named(path: Path) -> str:
    return str(path.relative_to(reading.ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_relative_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    dead = [target for target in reading.links(text) if not leads_somewhere(path, target)]
    assert not dead, f"{named(path)}: {dead}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_no_path_of_one_machine_is_mentioned(path: Path) -> None:
    lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if MACHINE_PATH.search(FIXED_PATH.sub("", line))
    ]
    assert not lines, f"{named(path)}: {lines}"


def test_every_example_is_mentioned() -> None:
    every = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    examples = [path for path in (reading.ROOT / "examples").rglob("*") if path.is_file()]
    assert examples
    missing = [named(path) for path in examples if named(path) not in every]
    assert not missing, missing


def test_every_page_is_in_the_table_of_contents_and_exists() -> None:
    contents = yaml.safe_load((reading.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {
        str(path.relative_to(reading.ROOT / "docs"))
        for path in (reading.ROOT / "docs").rglob("*.md")
    }
    assert set(leaves(contents)) == pages


def test_the_architecture_lists_the_modules_as_their_docstrings_describe_them() -> None:
    tool = reading.ROOT / "tools" / "architecture.py"
    check = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout


def test_every_benchmark_file_is_summarised() -> None:
    text = (reading.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    results = sorted(path.name for path in (reading.ROOT / "bench" / "results").glob("*.json"))
    assert results
    assert not [name for name in results if name not in text]


def leads_somewhere(path: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    file, _, anchor = target.partition("#")
    place = (path.parent / unquote(file)).resolve() if file else path
    if not place.exists():
        return False
    return not anchor or anchor in reading.anchors(place.read_text(encoding="utf-8"))


def leaves(contents: object) -> list[str]:
    if isinstance(contents, str):
        return [contents]
    inner = (
        contents
        if isinstance(contents, list)
        else contents.values()
        if isinstance(contents, dict)
        else []
    )
    return [leaf for item in inner for leaf in leaves(item)]
