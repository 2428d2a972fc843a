"""An unused state directory, and one in which the sample fleet runs with nothing on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.sim.fleet import fleet_spec
from tests.cli import embedded, running


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An unused state directory."""
    return tmp_path / "state"


@pytest.fixture(scope="session")
def _sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Embedded]:
    with embedded.running(tmp_path_factory.mktemp("sample") / "state") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Embedded]:
    file = running.EXAMPLES / "fleets" / "small.yaml"
    fleet = fleet_spec.read(file.read_text(), file=str(file))
    with embedded.running(tmp_path_factory.mktemp("small") / "state", fleet) as cluster:
        yield cluster


@pytest.fixture
def cluster(_sample: embedded.Embedded) -> embedded.Embedded:
    """The sample fleet with nothing on it, as it was at the beginning."""
    _sample.reset()
    return _sample


@pytest.fixture
def state(cluster: embedded.Embedded) -> Path:
    """The state directory of that cluster."""
    return cluster.directory


@pytest.fixture
def small(_small: embedded.Embedded) -> Path:
    """The state directory of a cluster of five nodes with nothing on it."""
    _small.reset()
    return _small.directory
