"""Go programs are built once, kept whole, and named after what they were built from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.devcluster import build_lock, go_build
from tests.support import real

ROOT = Path(__file__).resolve().parents[2]
HELLO = 'package main\n\nimport "fmt"\n\nvar stamp = "plain"\n\nfunc main() { fmt.Println("hello", stamp) }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of ours. Go keeps its own cache, which would otherwise move along and be cold."""
    go = shutil.which("go")
    if go is None:
        real.missing("a Go toolchain")
    kept = subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GOCACHE", kept.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dovetail"


def hello(directory: Path, *, source: str = HELLO, link_flags: str = "") -> go_build.Recipe:
    directory.mkdir(exist_ok=True)
    (directory / "go.mod").write_text("module example.test/hello\n\ngo 1.21\n")
    (directory / "main.go").write_text(source)
    return go_build.Recipe(
        name="greeting",
        title="a greeting",
        directory=directory,
        sources=(directory / "go.mod", directory / "main.go"),
        programs=("greet",),
        link_flags=link_flags,
        renamed={"hello": "greet"},
    )


def output_of(built: Path) -> str:
    return subprocess.run([built / "greet"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_program_is_built_once_and_then_found(cache: Path, tmp_path: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    recipe = hello(tmp_path / "source", link_flags="-X main.stamp=stamped")
    built = go_build.finished(recipe, say=first.append)
    assert output_of(built) == "hello stamped\n"
    assert first[0].startswith("building a greeting")
    assert go_build.finished(recipe, say=second.append) == built
    assert second == []
    assert built.parent == cache / "greeting"
    assert not list(cache.glob("*/unfinished-*"))


@pytest.mark.slow
def test_a_changed_source_or_flag_is_another_program(cache: Path, tmp_path: Path) -> None:
    say: list[str] = []
    path = go_build.finished(hello(tmp_path / "source"), say=say.append)
    other = go_build.finished(
        hello(tmp_path / "source", source=HELLO.replace("hello", "bye")), say=say.append
    )
    flagged = go_build.finished(
        hello(tmp_path / "source", link_flags="-X main.stamp=s"), say=say.append
    )
    assert [output_of(built) for built in (path, other, flagged)] == [
        "hello plain\n",
        "bye plain\n",
        "hello s\n",
    ]
    announced = [line for line in say if line.endswith("…")]
    assert announced[0] == "building a greeting (the first time takes minutes) …"
    assert len(announced) == 3
    for line in announced[1:]:  # the time of a build outlives its sources
        assert re.fullmatch(r"building a greeting \(took \d+s last time\) …", line)


@pytest.mark.slow
def test_a_failed_build_is_reported_and_leaves_nothing_that_looks_finished(
    cache: Path, tmp_path: Path
) -> None:
    broken = hello(tmp_path / "source", source="package main\n\nfunc main() { undefined() }\n")
    for _ in range(2):  # the second try must not take the first for a finished one
        with pytest.raises(go_build.BuildFailed, match="undefined: undefined"):
            go_build.finished(broken, say=lambda _: None)
    assert [path for path in (cache / "greeting").iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_a_program_that_was_lost_is_built_again(cache: Path, tmp_path: Path) -> None:
    recipe = hello(tmp_path / "source")
    built = go_build.finished(recipe, say=lambda _: None)
    (built / "greet").unlink()
    (built / "leftover").touch()
    assert go_build.finished(recipe, say=lambda _: None) == built
    assert [path.name for path in built.iterdir()] == ["greet"]


@pytest.mark.slow
def test_of_two_builders_one_builds_and_the_other_waits(cache: Path, tmp_path: Path) -> None:
    hello(tmp_path / "source")
    program = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[2]); from tests.boot import test_gobuild as t; "
        "print(t.go_build.finished(t.hello(pathlib.Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "source"), str(ROOT)]
    builders = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {}
        )
        for _ in range(2)
    ]
    outputs = [builder.communicate() for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    announcing = [talk for _, talk in outputs if talk.startswith("building a greeting (")]
    assert len(announcing) == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m00s"), (370.2, "6m10s"), (3725, "62m05s")]
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert build_lock.duration_text(seconds) == text


def test_without_go_the_message_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(go_build.GoMissing, match=r"a greeting needs Go 1\.26 or newer"):
        go_build.finished(hello(tmp_path / "source"))


def test_a_cache_that_cannot_be_written_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(go_build.BuildFailed, match=r"file/dovetail/greeting: Not a directory"):
        go_build.finished(hello(tmp_path / "source"))


@pytest.mark.parametrize("script", ["tools/oracle/build.py", "tools/kube/build.py"])
def test_the_scripts_end_with_three_where_go_is_missing(tmp_path: Path, script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / script)],  # no site-packages: a checkout alone must do
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs Go" in done.stderr


def test_the_script_names_the_versions_it_knows() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/kube/build.py"), "1.2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown: 1.2; pinned: 1.37, 1.36\n"
