"""Every `dovetail` and `python` command in the documents runs and prints what the document shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import reading

SHIM = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -c 'import sys; from dovetail.cli.main import main; sys.exit(main())' "$@"
"""
PYTHON_SHIM = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} "$@"
"""
WITH_COMMANDS = [
    path for path in reading.documents() if reading.commands(path.read_text(encoding="utf-8"))
]

FIRST = ("README.md",)  # where every reader begins
NEED_NONE = (
    "decide",
    "allocate",
    "migrate",
    "monitoring",
    "cost",
    "version",
    "scheduler",
    "install",
    "upgrade",
    "uninstall",
    "dev",
    "--help",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", WITH_COMMANDS, ids=lambda path: str(path.relative_to(reading.ROOT))
)
def test_the_commands_of_a_document_print_what_it_shows(path: Path, tmp_path: Path) -> None:
    """In order, in one fresh state directory, beside the examples and the files the document has its reader save."""
    text = path.read_text(encoding="utf-8")
    here = workplace(tmp_path, reading.files(text))
    try:
        failures = [
            problem
            for command in reading.commands(text)
            if command.is_ours
            for problem in faults(command, here)
        ]
    finally:
        ended(here)
    assert not failures, "\n\n".join(failures)


def test_readme_and_tutorial_show_commands() -> None:
    names = {str(path.relative_to(reading.ROOT)) for path in WITH_COMMANDS}
    assert {"README.md", "docs/tutorial.md", "docs/reference/cli.md"} <= names


@pytest.mark.parametrize(
    "path", WITH_COMMANDS, ids=lambda path: str(path.relative_to(reading.ROOT))
)
def test_a_page_begins_with_a_cluster_of_its_own_whatever_was_read_before(path: Path) -> None:
    """Readers go from page to page in one state directory; the tests above give each page a new one."""
    used = [
        command
        for command in reading.commands(path.read_text(encoding="utf-8"))
        if uses_a_cluster(command)
    ]
    if used and path.name not in FIRST:
        words = used[0].text.split()
        assert words[1] == "up", f"line {used[0].line}: {used[0].text}"
        assert "--fresh" in words, f"line {used[0].line}: {used[0].text}"


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        (("a", "...", "d"), "a\nb\nc\nd\n", True),
        (("a", "...", "d"), "a\nd\n", True),
        (("a", "d"), "a\nb\nd\n", False),
        (("age ...s",), "age 12s\n", True),
        (("age ...s",), "age 12s\nmore\n", False),
        ((), "", True),
        ((), "talk\n", False),
        (("3 x (1|2)",), "3 x 1\n", False),
    ],
)
def test_shown_output_matches_only_what_it_shows(
    shown: tuple[str, ...], printed: str, is_same: bool
) -> None:
    assert bool(reading.pattern(shown).fullmatch(printed)) is is_same


def test_exit_codes_and_continued_lines_are_read() -> None:
    text = "```console\n$ dovetail a \\\n    b  # exit 1\nsaid\n$ ls\n```\n"
    first, second = reading.commands(text)
    assert (first.text, first.code, first.shown, first.is_ours) == (
        "dovetail a b",
        1,
        ("said",),
        True,
    )
    assert (second.code, second.is_ours) == (0, False)


def uses_a_cluster(command: reading.Command) -> bool:
    """Whether what it prints depends on the cluster in the state directory. What is refused by itself does not."""
    words = reading.ALIASES.get(command.text, command.text).split()
    is_alone = (
        words[1] in NEED_NONE
        or words[1:3] in (["cel", "check"], ["sim", "mig"])
        or {"--cases", "--state", "--snapshot"} & {*words}
    )
    return command.is_ours and not is_alone and command.code == 0


def faults(command: reading.Command, here: Path) -> list[str]:
    """What differs between a command's run and its document; empty when nothing does."""
    done = subprocess.run(
        reading.ALIASES.get(command.text, command.text),
        shell=True,
        cwd=here,
        env=environment(here),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    printed = done.stdout.decode()
    where = f"line {command.line}: $ {command.text}"
    result = []
    if done.returncode != command.code:
        result.append(
            f"{where}\nexit code {done.returncode}, the document says {command.code}; printed:\n{printed}"
        )
    if not reading.pattern(command.shown).fullmatch(printed):
        result.append(f"{where}\nprinted:\n{printed}\nshown:\n" + "\n".join(command.shown))
    return result


def ended(here: Path) -> None:
    """Ends the cluster that the commands started, if they did."""
    subprocess.run(
        [str(here.parent / "dovetail"), "down", "--purge"],
        env=environment(here),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )


def workplace(folder: Path, files: dict[str, str]) -> Path:
    """A folder that looks like a checkout to commands: the examples, the saved files, `dovetail` to call."""
    here = folder / "checkout"
    here.mkdir()
    (here / "examples").symlink_to(reading.ROOT / "examples")
    for name, body in files.items():
        assert "/" not in name
        (here / name).write_text(body, encoding="utf-8")
    for name, script in (("dovetail", SHIM), ("python", PYTHON_SHIM)):
        program = folder / name
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
    return here


def environment(here: Path) -> dict[str, str]:
    result = {name: os.environ[name] for name in ("HOME", "VIRTUAL_ENV") if name in os.environ}
    state, path = str(here.parent / "state"), f"{here.parent}{os.pathsep}{os.environ['PATH']}"
    return {**result, "PATH": path, "DOVETAIL_STATE": state, "PYTHONUTF8": "1"}
