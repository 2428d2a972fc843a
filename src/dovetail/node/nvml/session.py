"""One long-lived NVML session. Every piece of work runs in a thread of its own, with a deadline.

Given a driver's root. The library is opened by the first work and again after the driver was unloaded or replaced;
handles live as long as one opening. A call into the driver cannot be interrupted: one that does not return keeps its
thread, its caller gets GpuUnresponsive, and further work of the same lane fails at once until it has returned. Each GPU
has a lane, so that one that hangs does not stop the others. Never repeats work that may have changed something.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from dovetail.node import gpu_control
from dovetail.node.nvml import library, nvml_errors

S = TypeVar("S")
T = TypeVar("T")

CALL_SECONDS: Final = 20.0  # handles were seen to take 10 s under load


def side_by_side(work: Callable[[S], T], subjects: Sequence[S]) -> list[T]:
    """The same work for several GPUs at once: those that hang cost one deadline together, not one each."""
    if not subjects:
        return []
    with futures.ThreadPoolExecutor(max_workers=len(subjects)) as threads:
        return list(threads.map(work, subjects))


class Opened:
    """One opening of the library: the binding, and the handles of GPUs by minor number."""

    def __init__(self, binding: ModuleType, file: Path) -> None:
        self.nvml = binding
        self.file = file
        self._handles: dict[int, Any] = {}

    def handle(self, minor: int) -> Any:
        """The handle of a GPU. Raises GpuGone if there is none of this minor number."""
        if minor not in self._handles:
            self._enumerate()
        if minor not in self._handles:
            raise gpu_control.GpuGone(f"GPU {minor}: the driver does not know it")
        return self._handles[minor]

    def keep(self, minor: int, handle: Any) -> None:
        """Remembers a handle."""
        self._handles[minor] = handle

    def forget(self, minor: int) -> None:
        """A lost GPU that comes back has another handle."""
        self._handles.pop(minor, None)

    def _enumerate(self) -> None:
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                self.keep(self.nvml.nvmlDeviceGetMinorNumber(handle), handle)
            except self.nvml.NVMLError as error:
                if nvml_errors.code_of(error) != nvml_errors.GPU_IS_LOST:
                    raise


class _Work(Generic[T]):
    """One piece of work in a thread, and its outcome once there is one."""

    def __init__(self, job: Callable[[], T], doing: str) -> None:
        self.doing = doing
        self.started = time.monotonic()
        self.done = threading.Event()
        self._job = job
        self._value: T | None = None
        self._error: BaseException | None = None
        # A daemon: a thread that the driver does not let go must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"nvml {doing}", daemon=True)
        self._thread.start()

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._value = self._job()
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        finally:
            self.done.set()


class Session:
    """The driver of one node."""

    def __init__(self, driver_root: Path, *, call_seconds: float = CALL_SECONDS) -> None:
        self.driver_root = driver_root
        self.call_seconds = call_seconds
        self._opened: Opened | None = None
        self._binding: tuple[tuple[object, ...], ModuleType] | None = None
        self._opening = threading.Lock()
        self._swapping = threading.Lock()
        self._usage = threading.Condition()
        self._active_count = 0
        self._is_reopening = False
        self._is_paused = False
        self._overdue: dict[str, _Work[Any]] = {}
        self._overdue_lock = threading.Lock()

    def read(
        self, lane: str, job: Callable[[Opened], T], *, doing: str, seconds: float | None = None
    ) -> T:
        """Work that changes nothing: done again at once with a new opening if the driver was replaced."""
        try:
            return self.change(lane, job, doing=doing, seconds=seconds)
        except gpu_control.DriverUnavailable:
            return self.change(lane, job, doing=doing, seconds=seconds)

    def change(
        self, lane: str, job: Callable[[Opened], T], *, doing: str, seconds: float | None = None
    ) -> T:
        """Work that may change something. Raises GpuFailure and its kin."""
        self._check(lane)

        def attempt() -> T:
            with self._in_use():
                opened = self._open()
                with self._translated(opened, doing):
                    return job(opened)

        work = _Work(attempt, doing)
        limit = self.call_seconds if seconds is None else seconds
        if not work.done.wait(limit):
            with self._overdue_lock:
                self._overdue[lane] = work
            raise gpu_control.GpuUnresponsive(
                f"{doing}: the driver did not answer within {limit:g} s"
            )
        return work.outcome()

    def reopen(self) -> None:
        """Closes the library once no work uses it; the next work opens it. NVML finds GPUs only when it is opened."""
        with self._usage:
            self._is_reopening = True
        with self._in_use():
            pass

    @contextlib.contextmanager
    def paused(self, *, seconds: float = CALL_SECONDS) -> Iterator[None]:
        """Keeps the library closed meanwhile: a GPU that a process has open cannot be reset. New work fails at once.

        Raises GpuUnresponsive if work that was under way does not end in time.
        """
        with self._usage:
            self._is_paused = True
            is_quiet = self._usage.wait_for(lambda: self._active_count == 0, timeout=seconds)
        try:
            if not is_quiet:
                raise gpu_control.GpuUnresponsive(
                    f"the agent's own work with the driver did not end within {seconds:g} s"
                )
            self._drop(self._opened)
            yield
        finally:
            with self._usage:
                self._is_paused = False

    def close(self) -> None:
        """Ends the session. Work that hangs keeps its thread until the process ends."""
        self.reopen()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._usage:
            if self._is_paused:
                raise gpu_control.DriverPaused("a GPU of this node is being reset; try again")
            self._active_count += 1
        try:
            yield
        finally:
            with self._usage:
                self._active_count -= 1
                self._usage.notify_all()
                if self._is_reopening and self._active_count == 0:
                    self._is_reopening = False
                    self._drop(self._opened)

    def _check(self, lane: str) -> None:
        with self._overdue_lock:
            work = self._overdue.get(lane)
            if work is not None and work.done.is_set():
                del self._overdue[lane]
                work = None
        if work is not None:
            waited = time.monotonic() - work.started
            raise gpu_control.GpuUnresponsive(
                f"{lane}: the driver has not answered for {waited:.0f} s ({work.doing})"
            )

    def _open(self) -> Opened:
        with self._opening:
            # Read once: other work may drop it at any time.
            current = self._opened
            if current is not None:
                return current
            file = library.library_under(self.driver_root)
            opened = Opened(self._loaded(file), file)
            with self._translated(opened, "open NVML"):
                # Also a node whose GPUs are all lost or given to virtual machines has a driver.
                opened.nvml.nvmlInitWithFlags(opened.nvml.NVML_INIT_FLAG_NO_GPUS)
            with self._swapping:
                self._opened = opened
            return opened

    def _loaded(self, file: Path) -> ModuleType:
        """Loaded once per file: a driver that stays away is asked again and again."""
        try:
            status = file.stat()
        except OSError as error:  # just replaced
            raise gpu_control.DriverUnavailable(f"find {file}: {error}") from error
        identity = (file, status.st_ino, status.st_mtime_ns)
        if self._binding is None or self._binding[0] != identity:
            self._binding = (identity, library.load(file))
        return self._binding[1]

    @contextlib.contextmanager
    def _translated(self, opened: Opened, doing: str) -> Iterator[None]:
        try:
            yield
        except opened.nvml.NVMLError as error:
            code = nvml_errors.code_of(error)
            assert code is not None
            failure = nvml_errors.failure(code, str(error), doing)
            if isinstance(failure, gpu_control.DriverUnavailable):
                self._drop(opened)
            raise failure from error

    def _drop(self, opened: Opened | None) -> None:
        """Work that still uses this opening fails by itself."""
        with self._swapping:
            if opened is None or self._opened is not opened:
                return
            self._opened = None
        with contextlib.suppress(opened.nvml.NVMLError):
            opened.nvml.nvmlShutdown()
