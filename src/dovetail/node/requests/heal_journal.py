"""Remembers which remedy was begun on this node, so that no restart of the agent carries it out twice.

One small file beside the checkpoint. One that cannot be read counts as a remedy of which nothing is known. Never
decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from dovetail.files import small_files
from dovetail.model import node_annotations
from dovetail.node.cdi import durable_files

NAME: Final = "heal-request.json"
_MODE: Final = 0o600


class Begun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A remedy that was begun, and its answer once there is one. The time is in Unix seconds."""

    id: str
    boot_id: str
    began: float
    answer: node_annotations.HealResponse | None = None


class HealJournal:
    """The file. Methods block, and raise OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self, request_id: str) -> Begun | None:
        """What is known of this request; None if it was not begun."""
        try:
            begun = msgspec.json.decode(small_files.content(self._path), type=Begun)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError):
            # Something was begun in some boot: never a reason to begin again.
            return Begun(id=request_id, boot_id="", began=0.0, answer=self._unreadable(request_id))
        return begun if begun.id == request_id else None

    def write(self, begun: Begun) -> None:
        """In place of what was there."""
        durable_files.replace(self._path, msgspec.json.encode(begun), mode=_MODE)

    def clear(self) -> None:
        """The request is answered."""
        durable_files.remove(self._path)

    def _unreadable(self, request_id: str) -> node_annotations.HealResponse:
        why = f"{self._path} cannot be read; what was begun is not known"
        return node_annotations.HealResponse(
            id=request_id, result=node_annotations.FAILED, message=why
        )
