"""Runs `dovetail` for tests: in this process, as a process of its own, or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import yaml

from dovetail.cli import main
from tests.support import waiting

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SINGLE = (
    "one-gpu",
    "mig-slice",
    "h100-or-a100",
    "eight-gpus-one-node",
)  # examples of one pod, or of a claim alone
PROGRAM = [sys.executable, "-c", "import sys; from dovetail.cli.main import main; sys.exit(main())"]
PATIENCE_SECONDS = 60.0  # for a terminal to answer; only a broken program waits so long


def single() -> list[str]:
    """Options that name the examples of one pod."""
    return [part for name in SINGLE for part in ("-f", str(EXAMPLES / f"{name}.yaml"))]


class Run(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of data."""
        return self.out.splitlines()

    def column(self, header: str) -> list[str]:
        """The cells under a header of a table."""
        starts = {
            result[0]: result.start() for result in re.finditer(r"\S+(?: \S+)*", self.lines[0])
        }
        start = starts[header]
        end = min((other for other in starts.values() if other > start), default=None)
        return [line[start:end].strip() for line in self.lines[1:]]


def inside(state: Path, *arguments: str, stdin: str | None = None) -> Run:
    """The command in this process, through click's own test runner."""
    runner = click.testing.CliRunner(env={"DOVETAIL_STATE": str(state), "NO_COLOR": "1"})
    result = runner.invoke(main.cli, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def until(state: Path, *arguments: str, shows: Callable[[Run], object], what: str) -> Run:
    """The first run of a command that shows what an asynchronous step comes to."""
    last: list[Run] = []

    def is_shown() -> bool:
        last[:] = [inside(state, *arguments)]
        return bool(shows(last[0]))

    waiting.wait_until(is_shown, what, so_far=lambda: last[0].out + last[0].err)
    return last[0]


def yaml_tree(text: str) -> Any:
    """What YAML means. Read with libyaml where there is one: a fleet takes seconds otherwise."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def outside(state: Path, *arguments: str, **environment: str) -> Run:
    """The command as a process, with no terminal."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_environment(state, environment),
        cwd=ROOT,
        check=False,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


class Terminal:
    """A process whose input and output are a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Reads until the text was shown."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.text:
            assert time.monotonic() < deadline, (
                f"never shown: {text!r}; so far: {self.text[-2000:]!r}"
            )
            if not self._read():
                assert text in self.text, f"ended without {text!r}: {self.text[-2000:]!r}"

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._screen, keys.encode())

    def ending(self) -> int:
        """Reads what is left and returns the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE_SECONDS)
        if not ready:
            return False
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # the other side is gone
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextlib.contextmanager
def terminal(
    state: Path, *arguments: str, rows: int = 40, columns: int = 100, **environment: str
) -> Iterator[Terminal]:
    """The command on a terminal of the given size; ended with the block if it still runs."""
    variables = _environment(state, {"TERM": "xterm-256color"} | environment)
    with on_terminal([*PROGRAM, *arguments], variables, rows=rows, columns=columns) as shown:
        yield shown


@contextlib.contextmanager
def on_terminal(
    program: Sequence[str], environment: Mapping[str, str], *, rows: int = 40, columns: int = 100
) -> Iterator[Terminal]:
    """Any program on a terminal; ended with the block if it still runs."""
    screen, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        program,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(
            0, termios.TIOCSCTTY, 0
        ),  # so that Ctrl-C means an interrupt
    )
    os.close(inner)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)


def _environment(state: Path, more: dict[str, str]) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "VIRTUAL_ENV") if name in os.environ
    }
    return {**kept, "DOVETAIL_STATE": str(state), "PYTHONUTF8": "1", **more}


def environment(state: Path) -> dict[str, str]:
    """The environment of a process with this state directory."""
    return _environment(state, {})
