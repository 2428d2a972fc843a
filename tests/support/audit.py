"""What an API server notes about every write: who, what, when. For tests that must know whose a write was.

`noted()` gives the flags a server is started with and reads back what it wrote. Reads are not noted.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


class Write(NamedTuple):
    """One request that wanted to change something."""

    user: str
    groups: tuple[str, ...]
    verb: str
    resource: str  # with the subresource: pods/binding
    name: str
    received: str  # RFC 3339 with microseconds, UTC: compares as text
    status: int


class Notes:
    """The audit log of one server."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "audit.log"
        policy = directory / "policy.json"
        policy.write_text(json.dumps(POLICY), encoding="utf-8")
        self.flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}"]

    def writes(self) -> list[Write]:
        """All writes so far, in the order they ended."""
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        return [
            _write(json.loads(line))
            for line in text.splitlines(keepends=True)
            if line.endswith("\n")
        ]


@contextlib.contextmanager
def noted() -> Iterator[Notes]:
    """A place for the notes of a server that is started inside the block."""
    with tempfile.TemporaryDirectory(prefix="dovetail-audit-") as scratch:
        yield Notes(Path(scratch))


def _write(entry: dict[str, Any]) -> Write:
    about = entry.get("objectRef", {})
    parts = [about.get("resource", ""), about.get("subresource", "")]
    return Write(
        user=entry["user"]["username"],
        groups=tuple(entry["user"].get("groups", ())),
        verb=entry["verb"],
        resource="/".join(part for part in parts if part),
        name=about.get("name", ""),
        received=entry["requestReceivedTimestamp"],
        status=entry.get("responseStatus", {}).get("code", 0),
    )
