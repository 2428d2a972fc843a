"""A checkpoint of the World that is open: whoever opened it may decide to keep what was assumed meanwhile."""

from __future__ import annotations


class Trial:
    """An open checkpoint. What is assumed meanwhile is taken back at the end unless `commit` was called."""

    __slots__ = ("is_committed",)

    def __init__(self) -> None:
        self.is_committed = False

    def commit(self) -> None:
        """Keeps what was assumed; an outer trial may still take it back."""
        self.is_committed = True
