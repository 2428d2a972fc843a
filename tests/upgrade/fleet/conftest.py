"""Ends the control plane of the fleets with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upgrade.fleet import fleet_plane


@pytest.fixture(scope="session", autouse=True)
def _the_plane_of_the_fleets_ends() -> Iterator[None]:
    yield
    fleet_plane.stop()
