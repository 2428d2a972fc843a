"""Counts the files one pod passes from its arrival to its binding: `python -m tests.live.walk [--list]`.

Two stories on a cluster in memory, traced with warm caches: one pod with a claim, and a gang of two
that reclaims. Counted are files of the package in which a function ran, without the API server in
memory. On a real cluster seven files of kube/ (transport to decoder) come on top.
A figure to look at, not a law.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import dovetail
from tests.live.live_scheduler import Stage, play

PACKAGE: Final = Path(dovetail.__file__).parent
SERVER: Final = ("sim/", "admission/")  # the API server in memory, its clock and its rules
KUBE_FILES: Final = 7


class Trace:
    """Calls by file of the package, and how often the next call was in another file."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.switches = 0
        self._last = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts calls until the end of the block."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(PACKAGE)):
            return
        file = _file(frame)
        if _is_of_the_server(frame):
            return
        self.calls[file] += 1
        self.functions.add((file, code.co_qualname))
        self.switches += file != self._last
        self._last = file


def _file(frame: FrameType) -> str:
    """The file within the package; empty for code outside it."""
    name = frame.f_code.co_filename
    return name[len(str(PACKAGE)) + 1 :] if name.startswith(str(PACKAGE)) else ""


def _is_of_the_server(frame: FrameType) -> bool:
    """Whether the API server called it, directly or not, and the live scheduler did not in between."""
    caller: FrameType | None = frame
    while caller is not None:
        file = _file(caller)
        if file.startswith("live/"):
            return False
        if file.startswith(SERVER):
            return True
        caller = caller.f_back
    return False


def one_pod() -> Trace:
    """A pod with a claim, the second of its kind."""
    trace = Trace()

    async def story() -> None:
        stage = Stage(nodes=2, gpus=4)
        async with stage.scheduling(audit_seconds=3600.0):
            stage.template("gpu")
            stage.pod("warm", templates=("gpu",))
            await stage.pass_time(3)
            with trace.running():
                stage.pod("walker", templates=("gpu",))
                await stage.pass_time(3)
            assert stage.node_of("walker")

    play(story)
    return trace


def a_gang_that_reclaims() -> Trace:
    """A gang of two whose queue is below its quota, among pods of a queue that uses more than its own."""
    trace = Trace()

    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        for name in ("lender", "owner"):
            stage.queue(name, resources={"gpu": {"quota": "2"}})
        async with stage.scheduling(audit_seconds=3600.0):
            stage.template("gpu")
            for number in range(4):
                stage.pod(f"borrower-{number}", templates=("gpu",), **_in_queue("lender"))
            await stage.pass_time(3)
            with trace.running():
                for number in range(2):
                    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "2"}
                    stage.pod(f"g-{number}", templates=("gpu",), **_in_queue("owner", **labels))
                await stage.pass_time(60)
            assert stage.node_of("g-0")
            assert stage.node_of("g-1")

    play(story)
    return trace


def _in_queue(name: str, **labels: str) -> dict[str, Any]:
    return {"labels": {"dovetail.dev/queue": name, **labels}}


def main() -> None:
    """Prints both walks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files, most called first")
    options = parser.parse_args()
    for name, trace in (("one pod", one_pod()), ("a gang that reclaims", a_gang_that_reclaims())):
        files = len(trace.calls)
        print(
            f"{name}: {files} files (+ {KUBE_FILES} of kube/), {len(trace.functions)} functions, "
            f"{trace.calls.total()} calls, {trace.switches} file switches"
        )
        if options.list:
            for file, calls in trace.calls.most_common():
                print(f"  {calls:7} {file}")


if __name__ == "__main__":
    main()
