"""Starts, recognises and ends background processes.

Given a command and a log file, starts it in its own session. A process is identified by its id and its start time, so
that a process that reuses the id is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.files import private_files

LOG_TAIL_LINES: Final = 12
LOG_TAIL_BYTES: Final = 8192
_GO: Final = b"go\n"
_LISTEN: Final = "0A"  # TCP_LISTEN in /proc/net/tcp

# Processes that outlive this one. Kept because a discarded Popen warns.
_outliving: list[subprocess.Popen[bytes]] = []


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A started process, as a state file keeps it. `born` is in clock ticks since the machine started."""

    name: str
    pid: int
    born: int
    log: str
    port: int | None = None


def start(
    command: Sequence[str | Path],
    *,
    log: Path,
    is_tethered: bool,
    note: Callable[[int], None] = lambda pid: None,
) -> subprocess.Popen[bytes]:
    """Starts a process whose output is appended to the log.

    A tethered one is killed by the kernel when the thread that started it ends for any reason. One that outlives us
    begins only after `note` has recorded its id: if we are killed before that, it ends by itself.
    """
    words = [*(_tether() if is_tethered else _leash()), *map(str, command)]
    with log.open("ab") as sink:
        process = subprocess.Popen(  # noqa: S603 - no shell reads it
            words,
            stdin=subprocess.DEVNULL if is_tethered else subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if process.stdin is None:
        note(process.pid)
        return process
    _outliving.append(process)
    with (
        contextlib.suppress(BrokenPipeError),
        process.stdin,
    ):  # it may have ended; callers check that it is alive
        note(process.pid)
        process.stdin.write(_GO)
    return process


def recorded(name: str, pid: int, *, log: Path, port: int | None = None) -> ProcessRecord:
    """The record of a process that was just started."""
    return ProcessRecord(name=name, pid=pid, born=birth(pid) or 0, log=str(log), port=port)


def birth(pid: int) -> int | None:
    """When the process started; None if there is none or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in parentheses, which may hold spaces; state is the 3rd field, birth the 22nd.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(process: ProcessRecord) -> bool:
    """Whether that very process still runs."""
    return process.born != 0 and birth(process.pid) == process.born


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the port on 127.0.0.1: an answer could come from another process."""
    local_address = (
        f"0100007F:{port:04X}"  # 127.0.0.1 as the kernel writes it on little-endian machines
    )
    try:
        table = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        rows = [line.split() for line in table]
        sockets = {
            f"socket:[{row[9]}]" for row in rows if row[1] == local_address and row[3] == _LISTEN
        }
        return any(_target(link) in sockets for link in Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(process: ProcessRecord, *, grace_seconds: float) -> None:
    """Asks the process to end, and kills it after the grace. Does nothing to a process that is not the recorded one."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The handle is held first: what is looked at and what is signalled are one process.
        if not is_alive(process):
            return
        with contextlib.suppress(ProcessLookupError):
            if grace_seconds > 0:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                if _ended(handle, grace_seconds):
                    return
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _ended(handle, None)
    finally:
        os.close(handle)
        _bury(process.pid)


def tail_of(log: Path) -> str:
    """The last lines of a log file, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed in between
        return ""


def _tether() -> list[str]:
    """The prefix that ties a command to this process; each part execs the next, so the id stays."""
    program = shutil.which("setpriv")
    if program is None:  # no Linux with util-linux: the caller's own clean-up must do
        return []
    # The shell goes on only if the parent still lives: had it died before the tie, no signal would come.
    check = '[ "$PPID" = "$0" ] && exec "$@"'
    return [program, "--pdeathsig", "KILL", "--", "sh", "-c", check, str(os.getpid())]


def _leash() -> list[str]:
    """The prefix that delays a command until we signal it; if we die first, it never starts."""
    return ["sh", "-c", 'read -r go && exec "$@" </dev/null', "sh"]


def _ended(handle: int, seconds: float | None) -> bool:
    """Whether the process behind the handle ended in time; without a bound it is waited for."""
    watcher = select.poll()
    watcher.register(handle, select.POLLIN)
    return bool(watcher.poll(None if seconds is None else seconds * 1000))


def _bury(pid: int) -> None:
    """Reaps a child of ours; init reaps other processes."""
    for process in list(_outliving):
        if process.pid == pid and process.poll() is not None:
            _outliving.remove(process)


class ProcessRecords:
    """The processes of one directory, in a file that is replaced atomically, so that none is ever lost."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, ProcessRecord]:
        """By name, in the order they were started."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            recorded_ones = msgspec.json.decode(content, type=list[ProcessRecord])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.StateError(
                f"{self.path}: cannot be read: {error}; end the processes it listed and remove its directory by hand"
            ) from None
        return {process.name: process for process in recorded_ones}

    def add(self, process: ProcessRecord) -> None:
        """Records a process; one of the same name is replaced."""
        self._write(self.all() | {process.name: process})

    def remove(self, name: str) -> None:
        """Forgets a process that ended."""
        self._write({key: process for key, process in self.all().items() if key != name})

    def _write(self, processes: dict[str, ProcessRecord]) -> None:
        content = msgspec.json.format(msgspec.json.encode(list(processes.values()))) + b"\n"
        private_files.replace(self.path, content)
