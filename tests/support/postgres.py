"""A private PostgreSQL server in a temporary directory, on a Unix socket: no port, no other users."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.support import real
from tests.support.waiting import wait_until

DEBIAN = Path("/usr/lib/postgresql")  # one folder per major version, not on the PATH
USER = "dovetail"
_FAST = ("fsync=off", "max_wal_size=256MB", "shared_buffers=64MB", "listen_addresses=''")


class Server:
    """A running server. Schemas are created by number."""

    def __init__(self, directory: Path) -> None:
        self._programs = programs()
        self._data = directory / "data"
        self._socket = directory
        self._numbers = itertools.count(1)
        self._demotion = _unprivileged(directory)
        self._call("initdb", "-D", str(self._data), "-U", USER, "--auth=trust", "-E", "UTF8", "-N")
        self.start()

    def url(self) -> str:
        """How a client reaches it."""
        return f"postgresql://{USER}@/postgres?host={quote(str(self._socket), safe='')}"

    def new_schema(self) -> str:
        """The URL of an empty schema: a database of its own would take seconds."""
        name = f"history_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return self.url() + "&options=" + quote(f"-csearch_path={name}", safe="")

    def start(self) -> None:
        """Starts the server; after a crash it recovers first."""
        options = " ".join(f"-c {option}" for option in _FAST) + f" -k {self._socket}"
        log = str(self._socket / "log")
        self._call("pg_ctl", "-D", str(self._data), "-w", "-s", "-l", log, "-o", options, "start")

    def kill(self) -> None:
        """Ends all its processes at once, as a crash does."""
        pid = self.pid()
        self._call("pg_ctl", "-D", str(self._data), "-m", "immediate", "-s", "stop")
        wait_until(lambda: not _is_running(pid), "the server to be gone")

    def stop(self) -> None:
        """Ends it."""
        self._call("pg_ctl", "-D", str(self._data), "-m", "fast", "-s", "stop")

    def pid(self) -> int:
        """The first process of the server."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def _call(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self._socket,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **self._demotion,
        )
        assert result.returncode == 0, f"{program} {arguments}: {result.stderr}"


def programs() -> Path:
    """The folder of the newest server's programs; ends the test if there is none."""
    installed = list(DEBIAN.glob("*/bin/initdb"))
    if installed:
        return max(installed, key=lambda path: int(path.parts[-3])).parent
    on_path = shutil.which("initdb")
    if on_path is None:
        real.missing("PostgreSQL (Debian package postgresql)")
    return Path(on_path).resolve().parent


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server while the block lasts."""
    programs()
    with tempfile.TemporaryDirectory(
        prefix="dvpg"
    ) as name:  # short: a socket's path has 107 characters
        server = Server(Path(name))
        try:
            yield server
        finally:
            server.stop()


def _unprivileged(directory: Path) -> dict[str, int]:
    """PostgreSQL refuses to run as root: an unprivileged user owns the directory and runs it then."""
    if os.getuid() != 0:
        return {}
    entry = pwd.getpwnam("nobody")
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid}


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
