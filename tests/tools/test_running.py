"""The tool behind `make test`: builds beside the fast tests, counts all stages in one line, leaves no process."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import closing, real, shared
from tools import realparts
from tools import test as running

PASSES = "def test_passes() -> None:\n    pass\n"
FAILS = "def test_fails() -> None:\n    raise AssertionError\n"
SKIPS = "from tests.support import shared\n\ndef test_skips() -> None:\n    shared.data('no/such.json')\n"
ALL_BUILT = [sys.executable, "-c", ""]
NOT_BUILT = [sys.executable, "-c", "print('helm'); raise SystemExit(1)"]


def stage(tmp_path: Path, source: str, *, needs_parts: bool = False) -> running.Stage:
    """A stage of one file. Lies outside the checkout, so that our hooks have to be named."""
    file = tmp_path / f"test_{len(list(tmp_path.iterdir()))}.py"
    file.write_text(source, encoding="utf-8")
    hooks = ("-p", "tests.conftest", "-p", "no:cacheprovider")
    return running.Stage(
        file.stem, "not slow", needs_parts, (*hooks, "--rootdir", str(tmp_path), str(file))
    )


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """`run` sets what SIGTERM and SIGINT do."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_last_line_counts_all_stages_and_the_worst_exit_code_is_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stages = [stage(tmp_path, FAILS), stage(tmp_path, PASSES + SKIPS, needs_parts=True)]
    assert running.run(stages, ALL_BUILT, workers=running.Workers("0", "0")) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1].startswith("1 failed, 1 passed, 1 skipped in ")
    assert lines[-3].startswith("test_0: 1 failed in ")
    assert lines[-3].endswith(", exit code 1")
    assert lines[-2].startswith("test_1: 1 passed, 1 skipped in ")
    assert lines[-4] == "recorded data that was not there (1 tests skipped): no/such.json"


def test_a_part_that_is_not_built_is_known_to_the_tests_that_need_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUIRE_REAL", raising=False)
    asks = f"import os\n\ndef test_asks() -> None:\n    assert os.environ['{real.NOT_BUILT_VARIABLE}'] == 'helm'\n"
    assert (
        running.run(
            [stage(tmp_path, asks, needs_parts=True)], NOT_BUILT, workers=running.Workers("0", "0")
        )
        == 0
    )
    assert f"not built: helm; see {realparts.LOG}" in capfd.readouterr().out


def test_a_required_part_that_is_not_built_fails_the_run_after_the_fast_tests(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUIRE_REAL", "1")
    stages = [stage(tmp_path, PASSES), stage(tmp_path, PASSES, needs_parts=True)]
    assert running.run(stages, NOT_BUILT, workers=running.Workers("0", "0")) == 1
    captured = capfd.readouterr()
    assert captured.out.splitlines()[-1].startswith("1 passed, 1 error in ")
    assert captured.out.splitlines()[-2].startswith("test_1, not run: 1 error in ")
    assert "not built: helm; the end of " in captured.err


WAITS = """
import os, signal

def test_waits() -> None:
    pipe = os.open({pipe!r}, os.O_WRONLY)
    os.write(pipe, b"here")
    signal.pause()
"""


def test_an_ended_run_leaves_neither_builder_nor_tests_behind(tmp_path: Path) -> None:
    """Builder and tests hold a pipe open as long as they live: it ends when both have."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waits = WAITS.format(pipe=str(pipe))
    build = [sys.executable, "-c", f"{waits}\ntest_waits()"]
    stages = [stage(tmp_path, waits)]
    program = (
        "from tools import test; "
        f"raise SystemExit(test.run([test.Stage{tuple(stages[0])}], {build}, workers=test.Workers('0', '0')))"
    )
    with (
        subprocess.Popen([sys.executable, "-c", program], cwd=running.ROOT) as tool,
        pipe.open("rb") as held,
    ):
        assert held.read(len(b"herehere")) == b"herehere"
        tool.terminate()
        assert held.read() == b""
    assert tool.returncode == running.INTERRUPTED


def test_the_builder_goes_on_after_a_part_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    log = io.StringIO()
    built: list[str] = []

    def fails(talk: Any) -> Path:
        talk("building a part (took 6m10s last time) …")
        talk("building a part (took 6m10s last time) … 5s")
        raise realparts.go_build.BuildFailed("building a part failed:\nundefined: x")

    def works(talk: Any) -> Path:
        built.append("other")
        return Path()

    parts = iter([realparts.Part("part", fails), realparts.Part("other", works)])
    assert realparts.built(parts, realparts.Talk(log)) == 1
    captured = capsys.readouterr()
    assert built == ["other"]
    assert captured.out == "part\n"
    assert (
        captured.err == "building a part (took 6m10s last time) …\n"
    )  # progress would break the tests' output
    assert log.getvalue().splitlines()[1:] == [
        "building a part (took 6m10s last time) … 5s",
        "building a part failed:",
        "undefined: x",
    ]


def test_programs_that_are_given_take_the_place_of_kubernetes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    nvidia = ["nvidia-dra", "nvidia-plugin", "nvidia-toolkit", "nvidia-requirements"]
    last = ["nvidia-upgrade", "oauth2-proxy", *nvidia]
    assert [part.name for part in realparts.parts(["1.37"])] == [
        "oracle",
        "helm",
        "grafana-schema",
        "kubernetes-1.37",
        "drain",
        "node",
        *last,
    ]
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/somewhere")
    assert [part.name for part in realparts.parts(["1.37"])] == [
        "oracle",
        "helm",
        "grafana-schema",
        "drain",
        "node",
        *last,
    ]


def test_a_real_node_is_built_for_the_version_of_its_kubelet_alone() -> None:
    assert "node" not in [part.name for part in realparts.parts(["1.36"])]


def test_both_sides_use_the_same_words() -> None:
    assert (running.REPORT_VARIABLE, running.NOT_BUILT_VARIABLE) == (
        closing.REPORT_VARIABLE,
        real.NOT_BUILT_VARIABLE,
    )


def test_recorded_data_is_absent_whatever_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_REAL", "1")
    with pytest.raises(pytest.skip.Exception, match=r"recorded data is not there: no/such\.json"):
        shared.data("no/such.json")


def test_a_part_whose_build_failed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(real.NOT_BUILT_VARIABLE, "helm,kubernetes-1.36")
    monkeypatch.delenv("REQUIRE_REAL", raising=False)
    real.refuse_unbuilt("oracle")
    with pytest.raises(
        pytest.skip.Exception, match=r"missing: kubernetes-1\.36, whose build failed"
    ):
        real.refuse_unbuilt("kubernetes-1.36")
    monkeypatch.setenv("REQUIRE_REAL", "1")
    with pytest.raises(pytest.fail.Exception, match="required but missing: helm"):
        real.refuse_unbuilt("helm")
