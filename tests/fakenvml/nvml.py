"""A process that uses nvidia-ml-py on fake hardware, and takes its orders line by line.

Every line is Python text with the module as `nvml`, and the names of earlier lines; the answer is the value of its last
expression, or the name of the NVMLError. Tests never load NVML into their own process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.devcluster.fake_gpus import hardware as fake

PROGRAM = r"""
import ast, json, sys
import pynvml as nvml
names = {"nvml": nvml}
for line in sys.stdin:
    tree = ast.parse(json.loads(line))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "order", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "order", "eval"), names) if last else None
        answer = {"value": value}
    except nvml.NVMLError as error:
        answer = {"error": type(error).__name__.removeprefix("NVMLError_")}
    print(json.dumps(answer, default=str), flush=True)
"""


class Failed(Exception):
    """NVML refused: the name of its error, such as InsufficientResources."""


class Nvml:
    """One NVML client."""

    def __init__(self, hardware: fake.Hardware) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=hardware.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, order: str) -> None:
        """Gives an order without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest order that has none yet."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the NVML client ended with {self.process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def do(self, order: str) -> Any:
        """Gives an order and waits for the answer."""
        self.send(order)
        return self.answer()

    def refusal(self, order: str) -> str:
        """The error an order ends with."""
        try:
            value = self.do(order)
        except Failed as failed:
            return str(failed)
        raise AssertionError(f"{order} was not refused: {value}")

    def kill(self) -> None:
        """SIGKILL, and gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        self.process.wait()


@contextmanager
def client(hardware: fake.Hardware) -> Iterator[Nvml]:
    """A client with a session, and handles of all GPUs as `gpus`."""
    nvml = Nvml(hardware)
    try:
        nvml.do("nvml.nvmlInit()")
        nvml.do(
            "gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]"
        )
        yield nvml
    finally:
        nvml.close()


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs; one that ended and waits for its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
