"""Runs a command of the node's owner: no shell, a deadline, and the end of its output for the answer.

Given words with placeholders, and GPUs. `{gpus}` becomes the uuids, `{pci}` the bus ids, each joined by commas. Blocks.
Never decides whether it may run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.node.inventory import Gpu

ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_LAST_WORDS: Final = 300


class Ended(NamedTuple):
    """How a command ended, for people."""

    is_success: bool
    said: str


def parsed(text: str) -> tuple[str, ...]:
    """The words of a command line. Raises InputError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise errors.InputError(f"{text!r}: {error}") from None


def filled(command: Sequence[str], gpus: Sequence[Gpu]) -> list[str]:
    """The words with the GPUs in them."""
    uuids = ",".join(gpu.uuid for gpu in gpus)
    bus_ids = ",".join(gpu.pci_bus_id for gpu in gpus)
    return [word.replace("{gpus}", uuids).replace("{pci}", bus_ids) for word in command]


def run(words: Sequence[str], *, seconds: float) -> Ended:
    """Runs it to its end, or ends it with all its children."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell reads it
            words,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Ended(False, f"{words[0]}: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Ended(False, f"{words[0]} did not end within {seconds:g} s and was killed")
    took = time.monotonic() - began
    said = " ".join(output.decode("utf-8", "replace").split())[-_LAST_WORDS:]
    if process.returncode == 0:
        return Ended(True, f"{words[0]} took {took:.1f} s. {said}".rstrip())
    return Ended(False, f"{words[0]} ended with {process.returncode}: {said}")
