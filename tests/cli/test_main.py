"""The command line as a whole: what is no command, and that no wrong input ends in a traceback."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.cli import running

BINARY = bytes(range(256))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("whne", '"whne" is not a command; did you mean when?'),
        ("squeue", '"squeue" is not a command; `dovetail queue` shows what waits and runs'),
        ("xyzzy", '"xyzzy" is not a command\n'),
    ],
)
def test_an_unknown_command_gets_the_nearest_name(tmp_path: Path, typed: str, message: str) -> None:
    done = running.inside(tmp_path, typed, "pod/train-0")
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_help_shows_every_command_once_under_a_topic() -> None:
    shown = [name for names in main.TOPICS.values() for name in names]
    assert len(shown) == len(set(shown))
    assert main.COMMANDS.keys() <= set(shown)


def test_hints_are_about_commands_there_are_not_and_name_ones_there_are() -> None:
    assert not main.HINTS.keys() & main.COMMANDS.keys()
    for hint in main.HINTS.values():
        assert {part.split()[1] for part in hint.split("`")[1::2]} <= main.COMMANDS.keys()


@pytest.mark.parametrize(
    "command",
    [
        ("apply", "-f"),
        ("migrate", "kueue", "-f"),
        ("migrate", "kai", "-f"),
        ("decide", "--scenarios"),
        ("allocate", "--worlds"),
        ("up", "--fleet"),
        ("scheduler", "--config"),
        ("when", "--kubeconfig"),
        ("get", "queues", "--kubeconfig"),
        ("snapshot", "show"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("what", ["nowhere", "binary", "directory", "text"])
def test_a_file_that_is_none_is_refused_in_words(
    tmp_path: Path, command: tuple[str, ...], what: str
) -> None:
    """Each command that reads a file says which one is wrong; an unexpected exception would come out of `inside`."""
    place = tmp_path / what
    if what == "binary":
        place.write_bytes(BINARY)
    elif what == "directory":
        place.mkdir()
    elif what == "text":
        place.write_text("just text\n", encoding="utf-8")
    done = running.inside(tmp_path / "state", *command, str(place))
    is_snapshot = command[0] == "snapshot"  # a path that holds no objects is bad usage
    assert (done.code, done.out) == (2 if is_snapshot else 1, "")
    assert done.err.startswith("error: ")
    assert str(place) in done.err


@pytest.mark.parametrize(("where", "code"), [(">/dev/full", 1), (">&-", 0), ("| head -1", 0)])
def test_an_output_that_takes_nothing_ends_in_words(tmp_path: Path, where: str, code: int) -> None:
    command = f"{shlex.join(running.PROGRAM)} cel check true {where}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stderr == ("error: output: No space left on device\n" if code else "")
