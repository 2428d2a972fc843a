"""MPS daemons, one per group of devices that a claim shares: started, asked, stopped.

Given what a daemon may use; starts nvidia-cuda-mps-control of the driver root, detached, with folders of its own for
pipes, logs and shared memory, and waits until it answers. Limits are the daemon's defaults, so a process cannot lift
them. All calls block. Raises MpsFailure with the reason. Never decides who may share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.node.cdi import spec
from dovetail.node.cdi.driver_root import LIBRARY_FOLDERS, PROGRAM_FOLDERS, DriverRoot

_CONTROL: Final = "nvidia-cuda-mps-control"
_PIPES_IN_CONTAINER: Final = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks by default
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - in the container and for the daemon
_OPTIONS: Final = ("rw", "nosuid", "nodev", "bind")
_COMMAND_SECONDS: Final = 10.0
_READY_SECONDS: Final = 15.0  # the kubelet waits 45 seconds for the whole claim
_POLL_SECONDS: Final = 0.05
_LONGEST_SOCKET: Final = len("/pipe/control_privileged")
_MAX_SOCKET_PATH: Final = 107  # sun_path of AF_UNIX, without its final zero
_MEBIBYTE: Final = 1024 * 1024
# The daemon and its clients must have the same /dev/shm: the daemon gets the claim's, in a mount namespace of its own.
_IN_NAMESPACE: Final = 'mount --bind "$1" /dev/shm && shift && exec "$@"'


class MpsFailure(errors.DovetailError):
    """A daemon that did not start, answer or stop. The kubelet repeats the request."""


class Daemon(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a daemon is for."""

    name: str  # the claim's uid, with the number of the group after the first
    device_uuids: tuple[str, ...]
    active_thread_percentage: int | None = None
    memory_limits: dict[str, int] = {}  # bytes by device uuid
    is_multi_user: bool = False


class MpsDaemons:
    """The daemons of this node, below one folder that the host sees under the same path."""

    def __init__(self, folder: Path, root: DriverRoot) -> None:
        self._folder = folder
        self._root = root

    def start(self, daemon: Daemon) -> None:
        """Starts it, or leaves it running, and sets its limits."""
        home = self._folder / daemon.name
        if len(str(home)) + _LONGEST_SOCKET > _MAX_SOCKET_PATH:
            raise MpsFailure(
                f"MPS: {home} is too long for the sockets of a daemon; choose a shorter folder for the kubelet"
            )
        try:
            for name in ("pipe", "log", "shm"):
                (home / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise MpsFailure(f"MPS: {error.filename}: {error.strerror}") from None
        if not self.is_alive(daemon.name):
            self._mount_shared_memory(home)
            self._launch(daemon, home)
        for command in _settings(daemon):
            answer = self._ask(daemon.name, command)
            # The program ends with 0 whatever the daemon says; a limit that was not taken is no limit.
            if any(word in answer.lower() for word in ("invalid", "unknown", "fail", "error")):
                raise MpsFailure(f"MPS: {command}: {answer}")

    def is_alive(self, name: str) -> bool:
        """Whether the daemon answers."""
        try:
            self._ask(name, "get_server_list")
        except MpsFailure:
            return False
        return True

    def stop(self, name: str) -> None:
        """Ends the daemon and removes its folders; nothing happens if there is none."""
        home = self._folder / name
        if not home.exists():
            return
        with contextlib.suppress(MpsFailure):  # there may be none any more
            self._ask(name, "quit")
        deadline = time.monotonic() + _READY_SECONDS
        while self.is_alive(name):
            if time.monotonic() > deadline:
                raise MpsFailure(f"MPS: the daemon of {home} does not stop; is it still in use?")
            time.sleep(_POLL_SECONDS)
        _end_session(home / "pipe" / f"{_CONTROL}.pid")  # one that hangs does not answer either
        shared_memory = home / "shm"
        try:
            while os.path.ismount(shared_memory):
                _run(["umount", str(shared_memory)])
            shutil.rmtree(home)
        except OSError as error:
            raise MpsFailure(f"MPS: {home} cannot be removed: {error.strerror}") from None

    def names(self) -> tuple[str, ...]:
        """The daemons that have folders, running or not."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(path.name for path in self._folder.iterdir()))

    def edits(self, name: str) -> spec.Edits:
        """What a client's container gets."""
        home = self._folder / name
        pipes = spec.Mount(
            host_path=str(home / "pipe"), container_path=_PIPES_IN_CONTAINER, options=_OPTIONS
        )
        shared_memory = spec.Mount(
            host_path=str(home / "shm"), container_path=_SHARED_MEMORY, options=_OPTIONS
        )
        return spec.Edits(
            env=(f"CUDA_MPS_PIPE_DIRECTORY={_PIPES_IN_CONTAINER}",), mounts=(shared_memory, pipes)
        )

    def _launch(self, daemon: Daemon, home: Path) -> None:
        options = ("-d", "-M") if daemon.is_multi_user else ("-d",)
        isolated = (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            _IN_NAMESPACE,
            "sh",
        )
        environment = self._environment(home)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(daemon.device_uuids)
        command = [*isolated, str(home / "shm"), str(self._program()), *options]
        _launch(command, environment, home / "log" / "startup.log")
        deadline = time.monotonic() + _READY_SECONDS
        while not self.is_alive(daemon.name):
            if time.monotonic() > deadline:
                log = home / "log" / "control.log"
                raise MpsFailure(
                    f"MPS: the daemon of {home} did not answer within {_READY_SECONDS:.0f} seconds; see {log}"
                )
            time.sleep(_POLL_SECONDS)

    def _ask(self, name: str, command: str) -> str:
        home = self._folder / name
        return _run([str(self._program())], given=command, environment=self._environment(home))

    def _program(self) -> Path:
        program = self._root.program(_CONTROL)
        if program is None:
            raise MpsFailure(
                f"MPS: the driver root {self._root.seen} has no {_CONTROL}; install the driver's MPS programs"
            )
        return program

    def _environment(self, home: Path) -> dict[str, str]:
        """The daemon looks for its server on PATH, and both for the driver's libraries."""
        root = self._root.seen
        environment = {
            "PATH": ":".join(
                [*(str(root / folder) for folder in PROGRAM_FOLDERS), "/usr/bin", "/bin"]
            ),
            "CUDA_MPS_PIPE_DIRECTORY": str(home / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(home / "log"),
        }
        if root != Path("/"):
            libraries = [str(root / folder) for folder in LIBRARY_FOLDERS]
            environment["LD_LIBRARY_PATH"] = ":".join(libraries)
        return environment

    def _mount_shared_memory(self, home: Path) -> None:
        """Memory that ends with the claim. Half of the node's, as NVIDIA's driver gives."""
        shared_memory = home / "shm"
        if os.path.ismount(shared_memory):
            return
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        half_bytes = page_bytes * os.sysconf("SC_PHYS_PAGES") // 2
        options = f"rw,nosuid,nodev,noexec,relatime,size={half_bytes}"
        _run(["mount", "-t", "tmpfs", "-o", options, "shm", str(shared_memory)])


def _end_session(pid_file: Path) -> None:
    """Ends a daemon that does not answer, with its servers: they are the processes of its session."""
    try:
        leader = int(pid_file.read_text("ascii"))
        is_daemon = _CONTROL.encode() in Path(f"/proc/{leader}/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    if not is_daemon:
        return  # the number belongs to another process by now
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)


def _settings(daemon: Daemon) -> list[str]:
    commands: list[str] = []
    if daemon.active_thread_percentage is not None:
        commands.append(f"set_default_active_thread_percentage {daemon.active_thread_percentage}")
    for uuid, limit in sorted(daemon.memory_limits.items()):
        # Whole MiB, rounded down: a limit must not exceed the share.
        commands.append(f"set_default_device_pinned_mem_limit {uuid} {limit // _MEBIBYTE}M")
    return commands


def _launch(command: list[str], environment: dict[str, str], output: Path) -> None:
    """Starts a daemon in a session of its own. It keeps what it inherits, so that is a file and no pipe of ours."""
    try:
        with output.open("wb") as file:
            finished = subprocess.run(  # noqa: S603 - the driver's program
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                timeout=_COMMAND_SECONDS,
                start_new_session=True,
                check=False,
            )
        words = output.read_text("utf-8", "replace").strip()
    except subprocess.TimeoutExpired:
        raise MpsFailure(
            f"MPS: {_CONTROL} -d: not started within {_COMMAND_SECONDS:.0f} seconds"
        ) from None
    except OSError as error:
        raise MpsFailure(f"MPS: {error.filename}: {error.strerror}") from None
    if finished.returncode:
        raise MpsFailure(f"MPS: {_CONTROL} -d failed ({finished.returncode}): {words}")


def _run(command: list[str], *, given: str = "", environment: dict[str, str] | None = None) -> str:
    program = command[0]
    try:
        finished = subprocess.run(  # noqa: S603 - programs of the driver root and of the system
            command,
            input=f"{given}\n".encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MpsFailure(
            f"MPS: {program}: no answer within {_COMMAND_SECONDS:.0f} seconds"
        ) from None
    except OSError as error:
        raise MpsFailure(f"MPS: {program}: {error.strerror}") from None
    output = finished.stdout.decode("utf-8", "replace").strip()
    if finished.returncode:
        raise MpsFailure(f"MPS: {program} {given} failed ({finished.returncode}): {output}")
    return output
