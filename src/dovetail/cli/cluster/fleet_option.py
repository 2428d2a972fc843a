"""The fleet that --fleet FILE names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.sim.fleet import fleet_spec


def fleet(file: str) -> fleet_spec.Fleet:
    """The fleet of a file. Raises InputError if it cannot be read."""
    from dovetail.files import bounded_files
    from dovetail.sim.fleet import fleet_spec

    return fleet_spec.read(bounded_files.text(file), file=file)
