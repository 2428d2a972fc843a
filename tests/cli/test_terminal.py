"""What a terminal gets: rows of its width, colours if it knows them, a live view that says what it hides."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from dovetail.cli import slow_notice
from dovetail.tables import text
from tests.cli import embedded, running

BIG = """
apiVersion: v1
kind: Pod
metadata: {name: big}
spec: {containers: [{name: a, image: x, resources: {requests: {cpu: '9999'}}}]}
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def shown_on(state: Path, *arguments: str, columns: int = 80, **environment: str) -> list[str]:
    with running.terminal(state, *arguments, columns=columns, **environment) as screen:
        assert screen.ending() == 0
        return ESCAPES.sub("", screen.text).splitlines()


def test_rows_are_cut_to_the_width_of_a_terminal_and_whole_in_a_pipe(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=BIG).code == 0
    (row,) = [
        line for line in shown_on(state, "get", "pods", columns=60) if line.startswith("default")
    ]
    assert row.endswith("...")
    assert len(row) <= 60
    assert "needs 9999" in running.inside(state, "get", "pods").out


@pytest.mark.parametrize(("columns", "shown"), [(8, "abcdefgh"), (7, "abcd..."), (2, "...")])
def test_what_is_cut_off_is_marked(columns: int, shown: str) -> None:
    assert text.fitted("abcdefgh", columns) == shown


def test_a_terminal_without_colours_gets_none(state: Path) -> None:
    with running.terminal(state, "get", "gpus", TERM="dumb") as screen:
        assert screen.ending() == 0
        assert "□" in screen.text
        assert "\x1b" not in screen.text


def test_the_live_view_says_how_many_rows_do_not_fit_and_who_waits(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=BIG).code == 0
    with running.terminal(state, "up", rows=14, columns=80) as screen:
        screen.wait_for("rows more; dovetail get gpus shows all")
        screen.press("q")
        assert screen.ending() == 0
        assert "1 pod waiting" in screen.text
        assert "default/big: 26 nodes: 26 lack cpu" in screen.text


def test_a_live_view_that_is_ended_gives_the_screen_back(cluster: embedded.Embedded) -> None:
    with running.terminal(cluster.directory, "up") as screen:
        screen.wait_for("q leaves")
        screen.process.send_signal(signal.SIGTERM)
        screen.ending()
        assert screen.text.rindex("\x1b[?1049l") > screen.text.rindex("\x1b[?1049h")


def test_a_command_that_takes_a_moment_says_so_on_a_terminal_until_it_has_an_answer(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = (
        "import sys; from dovetail.cli import main, slow_notice; slow_notice.AFTER_SECONDS = 0.0"
    )
    program = [sys.executable, "-c", f"{at_once}; sys.exit(main.main())"]
    monkeypatch.setattr(running, "PROGRAM", program)
    with running.terminal(state, "when") as screen:
        assert screen.ending() == 0
    before, notice, after = screen.text.partition(slow_notice.ASKING)
    assert before.strip() == ""
    assert notice
    assert after.startswith("\r" + " " * len(notice) + "\r")
    assert "nothing waits" in after
    assert slow_notice.ASKING not in running.inside(state, "when").err


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "queue",
        "top",
        "get gpus",
        "get pods -A",
        "describe nodes",
        "why",
        "when",
        "what-if --add 1xh100",
        "capacity --gpus 1",
        "explain pods.spec",
        "snapshot save {scratch}",
        "delete pods --all",
    ],
)
def test_who_pipes_the_answer_away_still_sees_that_a_command_runs(
    state: Path, tmp_path: Path, command: str
) -> None:
    at_once = (
        "import sys; from dovetail.cli import main, slow_notice; slow_notice.AFTER_SECONDS = 0.0"
    )
    words = command.format(scratch=tmp_path / "saved").split()
    answer = tmp_path / "answer"
    program = [sys.executable, "-c", f"{at_once}; sys.exit(main.main())", *words]
    piped = ["sh", "-c", f"{shlex.join(program)} | cat > {shlex.quote(str(answer))}"]
    variables = running.environment(state) | {"TERM": "xterm"}
    with running.on_terminal(piped, variables) as screen:
        assert screen.ending() == 0
    notice = slow_notice.NOTICES[words[0]]
    assert screen.text.strip("\r").startswith(notice), screen.text
    assert notice not in answer.read_text()
