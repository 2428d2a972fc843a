"""The event loop of a command: its result reaches the caller, and nothing formats it on the way."""

from __future__ import annotations

import pytest

from dovetail.ask import api_session


class Fleet:
    """A large result."""

    def __init__(self) -> None:
        self.times_formatted = 0

    def __repr__(self) -> str:
        self.times_formatted += 1
        return "Fleet()"


async def reading(fleet: Fleet) -> Fleet:
    return fleet


async def failing() -> None:
    raise KeyError("gone")


def test_a_large_result_is_not_formatted() -> None:
    fleet = Fleet()
    assert api_session.awaited(reading(fleet)) is fleet
    assert fleet.times_formatted == 0


def test_a_failure_reaches_the_caller() -> None:
    with pytest.raises(KeyError, match="gone"):
        api_session.awaited(failing())
