"""Asks `dovetail why` about a story: writes its objects to a file and runs the command in this process.

Given a story. The file holds ordinary objects, one document each, and nothing of the story's header. Never judges.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dovetail.cli import main
from tests.answers import story_file
from tests.cli import running


class Replies(msgspec.Struct, frozen=True):
    """What the command answered: as JSON, and as text for people."""

    json: running.Run
    text: running.Run


def ask(story: story_file.Story) -> Replies:
    """The replies to a story's question."""
    question = story.question
    with tempfile.TemporaryDirectory(prefix="dovetail-story-") as scratch:
        directory = Path(scratch)
        snapshot = directory / f"{story.name}.yaml"
        snapshot.write_bytes(document_of(story))
        subject = f"{question.kind}/{question.name}"
        arguments = ["why", subject, "-n", question.namespace, "--snapshot", str(snapshot)]
        with _state(directory / "state"):
            return Replies(json=_run(*arguments, "-o", "json"), text=_run(*arguments))


def document_of(story: story_file.Story) -> bytes:
    """The objects as one YAML file of many documents; each is JSON, which is YAML that is read quickly."""
    return b"---\n" + b"\n---\n".join(msgspec.json.encode(tree) for tree in story.objects) + b"\n"


def _run(*arguments: str) -> running.Run:
    """The command as the console script runs it, so that its exit code is the one that shells see."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(arguments)
    return running.Run(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _state(directory: Path) -> Iterator[None]:
    """Commands of the block keep their state there."""
    wanted = {"DOVETAIL_STATE": str(directory), "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
