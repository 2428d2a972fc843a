"""The Containerfile, as far as it can be judged without a container engine: what it copies is there and is enough.

The image's steps are taken by hand: only what is copied is laid out, the wheel is built from it without a network, and
the program runs from that wheel alone.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy import build

TEXT = (build.ROOT / "Containerfile").read_text(encoding="utf-8")
IGNORED = (build.ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
DOVETAIL = "import sys; from dovetail.cli.main import main; sys.exit(main())"


def instructions() -> list[tuple[str, list[str]]]:
    """Each instruction and its words, continued lines joined, comments left out."""
    lines = [line for line in TEXT.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (line.split()[0], shlex.split(line)[1:]) for line in joined.splitlines() if line.strip()
    ]


def copied() -> list[str]:
    """What comes from the checkout, not from another stage."""
    return [
        source
        for word, rest in instructions()
        if word == "COPY" and not rest[0].startswith("--")
        for source in rest[:-1]
    ]


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    allowed = [line[1:] for line in IGNORED if line.startswith("!")]
    for source in copied():
        assert (build.ROOT / source).exists(), source
        assert any(source == item or source.startswith(f"{item}/") for item in allowed), (
            f"{source} is ignored"
        )
    assert "*" in IGNORED
    assert sorted(allowed) == sorted(copied()), "the context holds what is copied and nothing else"


def test_the_image_runs_as_a_numeric_user() -> None:
    result = dict(instructions())  # the last of each
    user, _, group = result["USER"][0].partition(":")
    assert user.isdigit()
    assert group.isdigit()
    (deployment,) = build.of_kind(build.objects(), "Deployment")
    assert int(user) == deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    stages = [rest for word, rest in instructions() if word == "FROM"]
    assert len(stages) == 2
    assert {rest[0] for rest in stages} == {"${PYTHON_IMAGE}"}


def test_nothing_is_installed_without_a_hash_or_from_elsewhere() -> None:
    commands = [" ".join(rest) for word, rest in instructions() if word == "RUN"]
    installs = [part for text in commands for part in text.split("&&") if "pip install" in part]
    assert len(installs) == 2
    assert all(
        "--require-hashes" in install or ("--no-index" in install and "--no-deps" in install)
        for install in installs
    )
    assert not any(
        word in text for text in commands for word in ("curl", "wget", "apt-get", "http")
    )
    assert not [rest for word, rest in instructions() if word == "ADD"]


def test_what_is_taken_out_again_was_in_the_lock() -> None:
    locked = set(
        re.findall(
            r"^([a-z0-9-]+)==",
            (build.ROOT / "requirements/postgres.lock").read_text(),
            re.MULTILINE,
        )
    )
    removed = re.findall(r"pip uninstall --yes ([^&\\]+)", TEXT)
    names = {name for text in removed for name in text.split()} - {"pip"}
    assert names < locked
    project = (build.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not any(f'"{name}>' in project for name in names), "a dependency of the program itself"


@pytest.mark.slow
def test_the_wheel_of_what_is_copied_runs_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in copied():
        _lay_out(build.ROOT / name, source / name)
    _pip(
        "wheel",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(source),
    )
    (wheel,) = tmp_path.glob("*.whl")
    _pip("install", "--no-index", "--no-deps", "--target", str(target), str(wheel))
    assert _run(target, "-c", "import dovetail; print(dovetail.__file__)").startswith(str(target))
    assert _run(target, "-c", DOVETAIL, "version").strip()
    assert "SchedulerConfiguration" in _run(target, "-c", DOVETAIL, "scheduler", "--print-schema")
    printed = _run(target, "-c", DOVETAIL, "install", "--dry-run", "--set", build.IMAGE)
    assert list(yaml.safe_load_all(printed)) == build.objects()


def _lay_out(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=lambda _, names: fnmatch.filter(names, "__pycache__")
        )
    else:
        shutil.copy(source, target)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _run(target: Path, *arguments: str) -> str:
    """What a Python that sees this package before any other prints."""
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
