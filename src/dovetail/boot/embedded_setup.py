"""What an embedded cluster begins with, as a small file in its state directory.

Written by the command that starts the cluster, read by its process. Never changed afterwards.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dovetail import errors
from dovetail.files import private_files, state_directory
from dovetail.sim.fleet import fleet_spec


class Setup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A fleet, a sample workload, or the objects of a snapshot."""

    name: str
    fleet: fleet_spec.Fleet | None = None
    has_sample_workload: bool = False
    snapshot: str = ""  # directory


def write(directory: Path, setup: Setup) -> None:
    """Records what the process in this directory is to begin with."""
    private_files.replace(directory / state_directory.SETUP, msgspec.json.encode(setup))


def read(directory: Path) -> Setup:
    """What the cluster in this directory began with. Raises StateError if it cannot be read."""
    path = directory / state_directory.SETUP
    try:
        return msgspec.json.decode(path.read_bytes(), type=Setup)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.StateError(
            f"{path}: cannot be read: {error}; dovetail up --fresh starts over"
        ) from None
