"""The dashboard's built pages are what its sources give, its logic is right, and neither names a machine.

Needs Node and npm, a real part: without them the tests that build skip, or fail under REQUIRE_REAL=1.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import real

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "dashboard"
BUILT = ROOT / "src" / "dovetail" / "web" / "static"
MOST_BYTES = 150 * 1024  # of everything a browser loads, compressed
LONGEST_SECONDS = 300


def run(*command: str, **environment: str) -> None:
    """Runs a command in the sources and shows what it printed if it fails."""
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def packages() -> None:
    """The packages of the lock file, installed once."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        real.missing("Node >= 20 with npm, which builds the dashboard's pages")
    install = ["make", "dashboard/node_modules/.stamp"]
    done = subprocess.run(
        install, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode != 0:
        real.missing(f"the packages of dashboard/package-lock.json: {done.stderr[-400:]}")


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_the_versioned_pages_are_what_the_sources_build() -> None:
    run("node", "build.mjs", "--check")


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_the_sources_have_right_types() -> None:
    run("npm", "run", "--silent", "check")


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_the_logic_of_the_pages() -> None:
    run("npm", "run", "--silent", "test")


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_a_person_with_a_browser_finds_their_way() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        real.missing("chromium; make system-deps installs it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run("node", "dev/interact.mjs", CHROMIUM=chromium, PORT=str(port))


def test_the_pages_are_light() -> None:
    files = [path for path in BUILT.iterdir() if path.is_file()]
    assert {"index.html", "app.js", "app.css"} <= {path.name for path in files}
    total = sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in files)
    assert total <= MOST_BYTES


def test_the_start_page_has_no_inline_script_or_style() -> None:
    page = (BUILT / "index.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script([^>]*)>([^<]*)</script>", page)
    assert scripts
    for attributes, text in scripts:
        assert "src=" in attributes
        assert not text.strip()
    assert "<style" not in page
    assert "style=" not in page
    assert not re.search(r"\son\w+=", page)


def test_the_pages_load_nothing_from_elsewhere() -> None:
    page = (BUILT / "index.html").read_text(encoding="utf-8")
    style = (BUILT / "app.css").read_text(encoding="utf-8")
    assert "//" not in re.sub(r"<!doctype[^>]*>", "", page)
    assert "url(" not in style
    assert "@import" not in style


def test_the_lock_file_pins_contents_and_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    for name, package in packages.items():
        assert "resolved" not in package, name
        assert package.get("integrity", "").startswith("sha512-"), name
