"""Fixtures of the stories with the kubelet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def kubelet_root() -> Iterator[Path]:
    """An empty directory whose path is short: the address of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dt-") as directory:
        yield Path(directory)
