"""`dovetail up` and the program around it: off a terminal, on one, in pipes, in poor locales."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.cli.views import live_picture
from dovetail.files import state_directory
from tests.cli import running
from tests.support import waiting

SMALL = "name: tiny\npools: [{name: l4, count: 2, gpu: L4, gpusPerNode: 3}]\n"
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: kept}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / "fleet.yaml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A state directory whose cluster is a process of its own, ended with the test."""
    directory = tmp_path / "own"
    yield directory
    running.inside(directory, "down", "--purge")
    assert not directory.exists()


@pytest.mark.slow
def test_off_a_terminal_it_starts_the_sample_shows_it_and_leaves_it_running(own: Path) -> None:
    run = running.outside(own, "up")
    assert run.code == 0
    assert len(run.lines) == 27
    assert "\x1b" not in run.out + run.err
    tiles = "".join(run.column("TILES"))
    assert all(sign in tiles for sign in "□■▤▥")
    pods = running.inside(own, "get", "pods", "-A")
    statuses = pods.column("STATUS")
    running_now, waiting = statuses.count("Running"), statuses.count("Pending")
    assert f"{running_now + waiting} pods: {running_now} running, {waiting} waiting" in run.err
    assert running_now > waiting > 0
    assert f"export KUBECONFIG={own}/kubeconfig" in run.err
    assert run.err.splitlines()[-1] == "next: dovetail get pods -A"
    for status, node, why in zip(
        statuses, pods.column("NODE"), pods.column("WHY NOT"), strict=True
    ):
        assert (node == "-") == (status == "Pending") == why.startswith("26 nodes: ")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_killed_cluster_goes_on_from_its_journal(own: Path, fleet: str) -> None:
    assert "started the cluster" in running.outside(own, "up", "--fleet", fleet).err
    assert running.inside(own, "apply", "-f", "-", stdin=CLAIM).code == 0
    before = running.inside(own, "get", "claims", "-o", "json").out
    again = running.outside(own, "up")
    assert (again.code, "found the cluster" in again.err) == (0, True)

    pid = state_directory.running_pid(own)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    waiting.wait_until(lambda: state_directory.running_pid(own) is None, "the process is gone")
    lost = running.inside(own, "get", "claims")
    assert lost.code == 1
    assert "is not running; its state is kept\nnext: dovetail up" in lost.err

    resumed = running.outside(own, "up")
    assert (resumed.code, "resumed the cluster" in resumed.err) == (0, True)
    assert running.inside(own, "get", "claims", "-o", "json").out == before
    refused = running.outside(own, "up", "--fleet", str(running.EXAMPLES / "fleets" / "small.yaml"))
    assert refused.code == 1
    assert 'a cluster of fleet "tiny" is already up' in refused.err
    assert running.inside(own, "down").code == 0
    assert state_directory.running_pid(own) is None
    assert running.outside(own, "up", "--fresh", "--fleet", fleet).code == 0
    assert running.inside(own, "get", "claims", "-o", "name").lines == []


@pytest.mark.slow
def test_shipped_fleets_start(own: Path) -> None:
    files = sorted((running.EXAMPLES / "fleets").glob("*.yaml"))
    assert files
    offers: set[str] = set()
    for file in files:
        assert running.outside(own, "up", "--fresh", "--fleet", str(file)).code == 0
        offers |= {*running.inside(own, "get", "gpus").column("OFFERS")}
    assert offers == {"whole", "whole+mig", "whole+shared"}


def test_another_fleet_needs_fresh(state: Path, fleet: str) -> None:
    run = running.inside(state, "up", "--fleet", fleet)
    assert (run.code, run.out) == (1, "")
    assert "add --fresh to replace it" in run.err


def test_down_without_a_cluster_is_no_error(empty: Path) -> None:
    run = running.inside(empty, "down")
    assert (run.code, run.out) == (0, "")
    assert f"no cluster in {empty}" in run.err
    assert not empty.exists()


def test_a_wrong_or_missing_fleet_file_is_refused(empty: Path, tmp_path: Path) -> None:
    assert running.inside(empty, "up", "--fleet", str(tmp_path / "none.yaml")).code == 1
    (tmp_path / "bad.yaml").write_text("name: x\npools: [{name: a, count: 1, gpu: nope}]")
    run = running.inside(empty, "up", "--fleet", str(tmp_path / "bad.yaml"))
    assert run.code == 1
    assert "pools[0].gpu" in run.err
    assert not empty.exists()


def test_prices_that_cannot_be_used_start_nothing(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("currency: USD\nprices: [{perHour: cheap}]\n")
    run = running.inside(empty, "up", "--prices", str(tmp_path / "bad.yaml"))
    assert run.code == 2
    assert "prices[0].perHour" in run.err
    assert "give a path" in running.inside(empty, "up", "--prices", "-").err
    bare = running.inside(empty, "up", "--prices", "examples", "--no-dashboard")
    assert (bare.code, "--prices are for the dashboard" in bare.err) == (2, True)
    assert not empty.exists()


def test_state_option_wins_over_the_environment(state: Path, empty: Path) -> None:
    assert running.inside(empty, "get", "nodes", "--state", str(state)).code == 0
    assert running.inside(empty, "get", "nodes").code == 1
    assert not empty.exists()


def test_the_state_directory_follows_the_xdg_rules() -> None:
    assert state_directory.state_directory("/a", {"DOVETAIL_STATE": "/b"}) == Path("/a")
    assert state_directory.state_directory(
        None, {"DOVETAIL_STATE": "/b", "XDG_STATE_HOME": "/c"}
    ) == Path("/b")
    assert state_directory.state_directory(None, {"XDG_STATE_HOME": "/c"}) == Path("/c/dovetail")
    home = Path("~/.local/state/dovetail").expanduser()
    assert state_directory.state_directory(None, {"XDG_STATE_HOME": "relative"}) == home
    assert state_directory.state_directory(None, {}) == home


# The terminal -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_on_a_terminal_it_is_live_until_q_which_ends_the_cluster(own: Path) -> None:
    with running.terminal(own, "up", "--empty") as screen:
        screen.wait_for("0 claims")
        assert "1049h" in screen.text  # the alternate screen
        assert running.outside(own, "apply", "-f", "examples/one-gpu.yaml").code == 0
        screen.wait_for("1 claim ")
        screen.press("q")
        assert screen.ending() == 0
        left = screen.text.rpartition("1049l")[2]
        assert "the cluster has ended; its state is kept" in left
        assert "next: dovetail up" in left
    assert state_directory.running_pid(own) is None


@pytest.mark.parametrize("key", ["\x03", "\x04", "Q"])
def test_control_c_and_others_leave_too(state: Path, key: str) -> None:
    with running.terminal(state, "up") as screen:
        screen.wait_for("q leaves")
        screen.press("x")
        screen.press(key)
        assert screen.ending() == 0
        assert "1049l" in screen.text
    assert state_directory.running_pid(state) is not None, (
        "a command that only watches ends nothing"
    )


def test_control_c_leaves_a_key_that_came_before_it_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal drops it by default, and the program, which saw it come, would wait for another key."""
    screen, keyboard = pty.openpty()
    with os.fdopen(screen, "wb", buffering=0) as typed, os.fdopen(keyboard) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with live_picture._keys() as keys:
            os.set_blocking(keys, False)
            typed.write(b"x\x03")
            assert os.read(keys, 1) == b"x"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(state: Path, number: signal.Signals) -> None:
    with running.terminal(state, "up") as screen:
        screen.wait_for("q leaves")
        os.kill(screen.process.pid, number)
        assert screen.ending() == 0
        assert "1049l" in screen.text


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 4), (5, 20), (24, 80), (60, 300)])
def test_any_size_of_terminal_will_do(state: Path, rows: int, columns: int) -> None:
    with running.terminal(state, "up", rows=rows, columns=columns) as screen:
        screen.wait_for("1049h")
        screen.press("q")
        assert screen.ending() == 0
        assert "Traceback" not in screen.text


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
        screen.wait_for("........")
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
        "dovetail.cli.slow_notice",
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
