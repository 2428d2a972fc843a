"""Background processes are recognised by id and birth, and ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.devcluster import processes
from tests.support import cluster
from tests.support.waiting import wait_until

PATIENCE_SECONDS = 30.0  # only something broken takes so long


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@contextlib.contextmanager
def running(log: Path, *command: str) -> Iterator[processes.ProcessRecord]:
    process = processes.start(command, log=log, is_tethered=True)
    try:
        yield processes.recorded("thing", process.pid, log=log)
    finally:
        process.kill()
        process.wait()


def wait_for(text: str, log: Path) -> None:
    wait_until(lambda: text in log.read_text(), f"{text!r} in the log", so_far=log.read_text)


def test_a_process_is_alive_until_it_is_ended(log: Path) -> None:
    with running(log, "sleep", "60") as thing:
        assert processes.is_alive(thing)
        processes.end(thing, grace_seconds=PATIENCE_SECONDS)
        assert not processes.is_alive(thing)
        processes.end(thing, grace_seconds=PATIENCE_SECONDS)  # once more does no harm


def test_a_process_that_will_not_go_is_killed_after_the_grace(log: Path) -> None:
    with running(
        log, "sh", "-c", "trap 'echo heard' TERM; echo set; while :; do sleep 0.05; done"
    ) as thing:
        wait_for("set", log)
        processes.end(thing, grace_seconds=0.5)
        assert not processes.is_alive(thing)
        assert "heard" in log.read_text()


def test_a_process_that_took_over_the_id_is_left_alone(log: Path) -> None:
    with running(log, "sleep", "60") as thing:
        stranger = msgspec.structs.replace(thing, born=thing.born - 1)
        assert not processes.is_alive(stranger)
        processes.end(stranger, grace_seconds=0)
        assert processes.is_alive(thing)


def test_a_zombie_process_counts_as_ended(log: Path) -> None:
    with running(log, "sleep", "60") as thing:
        os.kill(thing.pid, signal.SIGKILL)
        cluster.wait_until_gone(thing)
        assert Path(f"/proc/{thing.pid}").exists()


def test_a_name_with_parentheses_and_blanks_is_read_past(tmp_path: Path, log: Path) -> None:
    odd = tmp_path / "a) Z 0 (b"
    odd.symlink_to("/bin/sleep")
    with running(log, str(odd), "60") as thing:
        assert processes.is_alive(thing)


def test_a_tethered_process_dies_with_its_parent_even_when_that_is_killed(log: Path) -> None:
    program = (
        "import pathlib, signal, sys; from dovetail.devcluster import processes\n"
        "child = processes.start(['sleep', '600'], log=pathlib.Path(sys.argv[1]), is_tethered=True)\n"
        "print(child.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(log)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = processes.recorded("child", int(parent.stdout.readline()), log=log)
        assert processes.is_alive(child)
        parent.kill()
    cluster.wait_until_gone(child)


def test_a_process_that_is_to_live_on_does_not_begin_before_its_id_was_put_down(log: Path) -> None:
    program = (
        "import os, pathlib, sys; from dovetail.devcluster import processes\n"
        "def note(pid):\n"
        "    print(pid, flush=True)\n"
        "    if sys.argv[2] == 'killed': os.kill(os.getpid(), 9)\n"
        "words = ['sh', '-c', 'echo began; exec sleep 600']\n"
        "processes.start(words, log=pathlib.Path(sys.argv[1]), is_tethered=False, note=note)"
    )

    def start(fate: str) -> processes.ProcessRecord:
        asked = [sys.executable, "-c", program, str(log), fate]
        pid = int(
            subprocess.run(
                asked, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS
            ).stdout
        )
        return processes.recorded("child", pid, log=log)

    cluster.wait_until_gone(start("killed"))
    assert log.read_text() == ""
    child = start("spared")
    wait_for("began", log)
    assert processes.is_alive(child)
    processes.end(child, grace_seconds=0)


def test_only_who_listens_is_said_to_listen(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, running(log, "sleep", "60") as thing:
        port = server.getsockname()[1]
        assert processes.listens(os.getpid(), port)
        assert not processes.listens(thing.pid, port)
        server.close()
        assert not processes.listens(os.getpid(), port)
    assert not processes.listens(thing.pid, port)


def test_the_roster_keeps_what_runs_in_order_of_start(tmp_path: Path) -> None:
    roster = processes.ProcessRecords(tmp_path / "processes.json")
    assert roster.all() == {}
    first, second = (
        processes.ProcessRecord(name=name, pid=pid, born=1, log="log", port=port)
        for name, pid, port in (("etcd", 10, 2379), ("player", 11, None))
    )
    roster.add(first)
    roster.add(second)
    again = msgspec.structs.replace(first, pid=12)
    roster.add(again)
    assert list(processes.ProcessRecords(roster.path).all().values()) == [again, second]
    roster.remove("etcd")
    assert list(roster.all().values()) == [second]


def test_the_end_of_a_log_is_short_and_never_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert processes.tail_of(log) == "  (its log is empty)"
    log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(10_000)))
    lines = processes.tail_of(log).splitlines()
    assert len(lines) == processes.LOG_TAIL_LINES
    assert lines[-1].startswith("  line 9999 ")
