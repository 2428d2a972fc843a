"""`dovetail up` and the program around it: off a terminal, on one, in pipes, in poor locales."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.sim.local import state_dir
from tests.cli import running

SMALL = "name: small\npools: [{name: l4, count: 2, gpu: L4, gpusPerNode: 3}]\n"


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / "fleet.yaml"
    path.write_text(SMALL)
    return str(path)


def test_off_a_terminal_it_prints_the_table_and_ends(empty: Path) -> None:
    run = running.outside(empty, "up", "--empty")
    assert run.code == 0
    assert len(run.lines) == 27
    assert "\x1b" not in run.out + run.err
    assert run.err.splitlines()[-1] == "next: dovetail apply -f examples/one-gpu.yaml"


def test_the_sample_fills_with_pods_some_of_which_wait_and_say_why(empty: Path) -> None:
    run = running.outside(empty, "up")
    assert run.code == 0
    tiles = "".join(run.column("TILES"))
    assert all(sign in tiles for sign in "□■▤▥")
    pods = running.inside(empty, "get", "pods", "-A")
    running_now, waiting = (
        pods.column("STATUS").count("Running"),
        pods.column("STATUS").count("Pending"),
    )
    assert f"{running_now + waiting} pods: {running_now} running, {waiting} waiting" in run.err
    assert running_now > waiting > 0
    assert run.err.splitlines()[-1] == "next: dovetail get pods -A"
    for status, node, why in zip(
        pods.column("STATUS"), pods.column("NODE"), pods.column("WHY NOT"), strict=True
    ):
        assert (node == "-") == (status == "Pending") == why.startswith("26 nodes: ")


def test_a_second_up_finds_the_cluster_and_keeps_what_was_applied(empty: Path) -> None:
    assert "started the cluster" in running.outside(empty, "up").err
    running.outside(empty, "apply", "-f", "examples/one-gpu.yaml")
    again = running.outside(empty, "up")
    assert (again.code, "found the cluster" in again.err) == (0, True)
    assert running.outside(empty, "get", "claims", "-o", "name").lines == [
        "resourceclaim.resource.k8s.io/one-gpu"
    ]
    assert running.outside(empty, "up", "--fresh").code == 0
    assert running.outside(empty, "get", "claims", "-o", "name").lines == []


def test_another_fleet_needs_fresh(state: Path, fleet: str) -> None:
    run = running.inside(state, "up", "--fleet", fleet)
    assert (run.code, run.out) == (1, "")
    assert "add --fresh to replace it" in run.err
    fresh = running.inside(state, "up", "--fleet", fleet, "--fresh")
    assert fresh.column("NODE") == ["l4-0", "l4-1"]
    assert fresh.column("TILES") == ["□□□", "□□□"]
    assert running.inside(state, "up", "--fleet", fleet).code == 0


def test_shipped_fleets_start(empty: Path) -> None:
    files = sorted((running.EXAMPLES / "fleets").glob("*.yaml"))
    assert files
    for file in files:
        assert running.inside(empty, "up", "--fresh", "--fleet", str(file)).code == 0
        assert "whole+mig" in running.inside(empty, "get", "gpus").column("OFFERS")


def test_a_wrong_or_missing_fleet_file_is_refused(empty: Path, tmp_path: Path) -> None:
    assert running.inside(empty, "up", "--fleet", str(tmp_path / "none.yaml")).code == 1
    (tmp_path / "bad.yaml").write_text("name: x\npools: [{name: a, count: 1, gpu: nope}]")
    run = running.inside(empty, "up", "--fleet", str(tmp_path / "bad.yaml"))
    assert run.code == 1
    assert "pools[0].gpu" in run.err
    assert not empty.exists()


def test_state_option_wins_over_the_environment(empty: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert running.inside(empty, "up", "--state", str(other)).code == 0
    assert (other / "cluster.json").exists()
    assert not empty.exists()


def test_the_state_directory_follows_the_xdg_rules() -> None:
    assert state_dir.state_directory("/a", {"DOVETAIL_STATE": "/b"}) == Path("/a")
    assert state_dir.state_directory(
        None, {"DOVETAIL_STATE": "/b", "XDG_STATE_HOME": "/c"}
    ) == Path("/b")
    assert state_dir.state_directory(None, {"XDG_STATE_HOME": "/c"}) == Path("/c/dovetail")
    home = Path("~/.local/state/dovetail").expanduser()
    assert state_dir.state_directory(None, {"XDG_STATE_HOME": "relative"}) == home
    assert state_dir.state_directory(None, {}) == home


# The terminal -----------------------------------------------------------------------------------------------


def test_on_a_terminal_it_is_live_until_q(empty: Path) -> None:
    with running.terminal(empty, "up", "--empty") as screen:
        screen.wait_for("q leaves")
        assert "0 claims" in screen.text
        assert "1049h" in screen.text  # the alternate screen
        assert running.outside(empty, "apply", "-f", "examples/one-gpu.yaml").code == 0
        screen.wait_for("1 claim ")
        screen.press("q")
        assert screen.ending() == 0
        assert "1049l" in screen.text
        left = screen.text.rpartition("1049l")[2]
        assert "h100-3" in left
        assert "1 pod: 1 running, 0 waiting" in left
        assert "next: dovetail get pods" in left


@pytest.mark.parametrize("key", ["\x03", "\x04", "Q"])
def test_control_c_and_others_leave_too(state: Path, key: str) -> None:
    with running.terminal(state, "up") as screen:
        screen.wait_for("q leaves")
        screen.press("x")
        screen.press(key)
        assert screen.ending() == 0
        assert "next: dovetail" in screen.text


def test_an_interrupt_leaves_the_terminal_as_it_was(state: Path) -> None:
    with running.terminal(state, "up") as screen:
        screen.wait_for("q leaves")
        os.kill(screen.process.pid, signal.SIGINT)
        assert screen.ending() == 0
        assert "1049l" in screen.text


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 4), (5, 20), (24, 80), (60, 300)])
def test_any_size_of_terminal_will_do(state: Path, rows: int, columns: int) -> None:
    with running.terminal(state, "up", rows=rows, columns=columns) as screen:
        screen.wait_for("1049h")
        screen.press("q")
        assert screen.ending() == 0
        assert "Traceback" not in screen.text


def test_a_broken_state_is_shown_and_the_picture_stays(state: Path) -> None:
    whole = (state / "cluster.json").read_bytes()
    with running.terminal(state, "up", columns=200) as screen:
        screen.wait_for("q leaves")
        (state / "cluster.json").write_bytes(b"{half")
        screen.wait_for("not a readable state file")
        (state / "cluster.json").write_bytes(whole)
        screen.press("q")
        assert screen.ending() == 0


def test_a_dumb_terminal_gets_the_table_once(state: Path) -> None:
    with running.terminal(state, "up", TERM="dumb") as screen:
        assert screen.ending() == 0
        assert "1049h" not in screen.text
        assert "h100-3" in screen.text


def test_tiles_have_colour_on_a_terminal_unless_it_is_disabled(state: Path) -> None:
    with running.terminal(state, "get", "gpus") as screen:
        assert screen.ending() == 0
        assert "\x1b[32m□\x1b[0m" in screen.text
    with running.terminal(state, "get", "gpus", NO_COLOR="1") as screen:
        assert screen.ending() == 0
        assert "\x1b" not in screen.text


# Pipes and locales ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("get", "devices"), ("get", "slices", "-o", "json"), ("up",)]
)
def test_a_reader_that_goes_away_is_no_error(state: Path, arguments: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*running.PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DOVETAIL_STATE": str(state)},
    )
    assert process.stdout is not None
    process.stdout.close()
    _, messages = process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in messages
    assert b"BrokenPipe" not in messages


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_locale_without_the_tiles_gets_letters(state: Path, encoding: str) -> None:
    run = running.outside(state, "get", "gpus", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert run.code == 0
    rows = dict(zip(run.column("NODE"), run.column("TILES"), strict=True))
    assert rows["h100-0"] == "........"
    assert rows["a100-0"] == "mmmm"
    assert running.outside(state, "up", PYTHONIOENCODING=encoding, PYTHONUTF8="0").code == 0


def test_a_locale_without_the_tiles_gets_letters_on_the_live_screen(state: Path) -> None:
    with running.terminal(state, "up", PYTHONIOENCODING="ascii", PYTHONUTF8="0") as screen:
        screen.wait_for("q leaves")
        assert "h100-0 ........" in screen.text.replace("\x1b[2m", "").replace("\x1b[0m", "")
        screen.press("q")
        assert screen.ending() == 0


# The program ------------------------------------------------------------------------------------------------


def test_help_lists_every_command_without_importing_one() -> None:
    code = (
        "import sys; from dovetail.cli import main; main.main(['--help']);"
        "print(*[name for name in sys.modules if name.startswith(('dovetail.', 'rich', 'yaml', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shown, loaded = done.stdout.splitlines()
    for name in main.COMMANDS:
        assert any(line.split()[:1] == [name] for line in shown)
    assert set(loaded.split()) == {
        "dovetail.cli",
        "dovetail.cli.main",
        "dovetail.cli.lazy",
        "dovetail.errors",
    }


def test_reading_commands_never_import_what_only_others_need() -> None:
    code = (
        "import sys; from dovetail.cli import main; main.main(['get', 'nodes', '--state', '/nowhere']);"
        "print(*[name for name in sys.modules if name.startswith(('rich', 'yaml', 'dovetail.cel', 're2'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", ["up", "get", "apply", "version"])
def test_every_command_explains_itself(empty: Path, name: str) -> None:
    run = running.inside(empty, name, "--help")
    assert run.code == 0
    assert run.out.startswith(f"Usage: cli {name}")
    assert max(map(len, run.lines)) <= 100


def test_version_names_the_release(empty: Path) -> None:
    run = running.outside(empty, "version")
    assert (run.code, run.lines[0].split()[0]) == (0, "dovetail")


def test_main_returns_exit_codes(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["version"]) == 0
    assert main.main(["get", "gpus", "--state", str(empty)]) == 1
    assert main.main(["get"]) == 2
    assert main.main(["nope"]) == 2
    assert main.main(["--help"]) == 0
    assert "Usage: dovetail" in capsys.readouterr().out
