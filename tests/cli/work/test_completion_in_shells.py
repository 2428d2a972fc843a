"""Completion in real shells: what TAB makes of a command line in bash and zsh, and what fish offers for it."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli import running
from tests.cli.work import shell_programs
from tests.support import cluster, real

pytestmark = pytest.mark.slow

KILL_LINE = "\x15"
INTERACTIVE = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
# Bells would come between what is typed and what is completed.
BEFORE = {
    "bash": "bind 'set bell-style none'; bind 'set enable-bracketed-paste off'",
    "zsh": "unsetopt beep; autoload -Uz compinit; compinit -u -D",
}


class Case(NamedTuple):
    """A line that has one completion."""

    typed: str
    becomes: str


CASES = (
    Case("dovetail comp", "dovetail completion"),
    Case("dovetail why --names", "dovetail why --namespace"),
    Case("dovetail get deviceclas", "dovetail get deviceclasses"),
    Case("dovetail get deviceclasses mig.nv", "dovetail get deviceclasses mig.nvidia.com"),
    Case("dovetail cancel job/tr", "dovetail cancel job/train"),
    Case("dovetail why pod/tr", "dovetail why pod/train-0-"),
    Case("dovetail get pods -n kube-s", "dovetail get pods -n kube-system"),
    Case("dovetail get --namespace=kube-s", "dovetail get --namespace=kube-system"),
    Case("dovetail run --type h", "dovetail run --type h100-80gb-hbm3"),
    Case("dovetail what-if --set job/", "dovetail what-if --set job/train.priority="),
    Case("dovetail wait --for=st", "dovetail wait --for=started"),
    Case("dovetail snapshot sa", "dovetail snapshot save"),
)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the programs that an installation has."""
    return shell_programs.install(tmp_path / "bin")


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


@contextlib.contextmanager
def interactive(
    shell: str, programs: Path, *, scripts: tuple[str, ...] = ("dovetail",), **more: str
) -> Iterator[running.Terminal]:
    """A shell on a terminal that has read the completion scripts."""
    require(shell)
    variables = shell_programs.environment(programs, TERM="xterm", PS1="% ", **more)
    sources = [f"source <({program} completion {shell})" for program in scripts]
    with running.on_terminal(INTERACTIVE[shell], variables, columns=200) as terminal:
        terminal.press(f"{'; '.join([BEFORE[shell], *sources])}; echo scripts' 'read\r")
        terminal.wait_for("scripts read")
        yield terminal


def tab(terminal: running.Terminal, typed: str, shown: str) -> None:
    """Types a line, presses TAB and waits for what the shell shows; the line is dropped after it."""
    terminal.text = ""
    terminal.press(f"{typed}\t")
    terminal.wait_for(shown)
    terminal.press(KILL_LINE)


def fish(programs: Path, line: str, *, script: str = "dovetail", **more: str) -> list[list[str]]:
    """What fish offers for a line: words, with their descriptions."""
    require("fish")
    done = subprocess.run(
        [
            "fish",
            "--no-config",
            "--command",
            f"{script} completion fish | source; complete --do-complete {shlex.quote(line)}",
        ],
        env=shell_programs.environment(programs, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [answer.split("\t") for answer in done.stdout.splitlines()]


def require(program: str) -> None:
    """Ends the test where a shell is missing."""
    if shutil.which(program) is None:
        real.missing(program)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes_commands_options_kinds_names_and_namespaces(
    small: Path, programs: Path, shell: str
) -> None:
    running.inside(small, *shell_programs.RUN)
    with interactive(shell, programs, DOVETAIL_STATE=str(small)) as terminal:
        for case in CASES:
            tab(terminal, case.typed, case.becomes)


def test_zsh_shows_the_help_of_commands_and_the_counts_of_types(
    small: Path, programs: Path
) -> None:
    with interactive("zsh", programs, DOVETAIL_STATE=str(small)) as terminal:
        tab(terminal, "dovetail wh", "why      -- Say why a pod does not start: cause, numbers")
        tab(terminal, "dovetail run --type ", "l4              -- 6 of 6 free")


def test_fish_offers_commands_options_kinds_names_and_namespaces(
    small: Path, programs: Path
) -> None:
    running.inside(small, *shell_programs.RUN)
    for case in CASES:
        words = [word for word, *_ in fish(programs, case.typed, DOVETAIL_STATE=str(small))]
        wanted = case.becomes.rpartition(" ")[2]
        assert len(words) == 1, (case, words)
        assert words[0].startswith(wanted), (case, words)
    offered = fish(programs, "dovetail wh", DOVETAIL_STATE=str(small))
    assert ["when", "Say when waiting work starts, and how late it may get."] in offered


def test_files_are_completed_where_a_file_is_meant(
    empty: Path, programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "gang-of-eight.yaml").touch()
    prefix = tmp_path / "gang"
    whole = f"{tmp_path}/gang-of-eight.yaml"
    for option in ("-f ", "--filename="):
        offered = fish(programs, f"dovetail apply {option}{prefix}")
        assert offered[0][0].endswith(whole), offered
    for shell in INTERACTIVE:
        with interactive(shell, programs) as terminal:
            tab(terminal, f"dovetail apply -f {prefix}", whole)
            tab(terminal, f"dovetail apply --filename={prefix}", f"--filename={whole}")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_kubectl_completes_the_plugin_in_other_shells(
    small: Path, programs: Path, shell: str
) -> None:
    (programs / "kubectl").symlink_to(cluster.parts().kubectl)
    running.inside(small, *shell_programs.RUN)
    more = {"KUBECONFIG": str(small / "kubeconfig")}
    if shell == "fish":
        typed = "kubectl dovetail cancel job/"
        assert fish(programs, typed, script="kubectl", **more) == [["job/train"]]
        return
    with interactive(shell, programs, scripts=("kubectl",), **more) as terminal:
        tab(terminal, "kubectl dovetail cancel job/", "kubectl dovetail cancel job/train")
        tab(terminal, "kubectl dovetail expl", "kubectl dovetail explain")


def test_a_cluster_that_never_answers_is_given_up_in_silence(
    programs: Path, silent_server: int, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(shell_programs.kubeconfig(f"http://127.0.0.1:{silent_server}"))
    assert fish(programs, "dovetail why pod/", KUBECONFIG=str(config)) == []
    assert fish(programs, "dovetail run --type ", KUBECONFIG=str(config)) == []
    with interactive("zsh", programs, KUBECONFIG=str(config)) as terminal:
        terminal.press("dovetail why pod/\t")
        terminal.press(f"{KILL_LINE}echo go' 'on\r")
        terminal.wait_for("go on")
        assert "rror" not in terminal.text
