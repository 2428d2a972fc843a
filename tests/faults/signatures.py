"""Who wrote each revision, from the API server's audit log.

A write that was answered carries its resourceVersion in the answer. A binding is answered without one, so it is known
by its pod; a deletion may take two writes. A write whose answer the server itself lost (the store was down) is known by
the failed request on the same object at that time. A write without a known writer is reported, because
then a history proves nothing.
"""

from __future__ import annotations

import datetime
import json
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults.records import History, Revision, Tree, with_writers

SIGNED: Final = ("resourceclaims", "pods", "leases")
SLACK_SECONDS: Final = (
    10.0  # the recorder may see a write so much later than it happened, on a busy machine
)
_GROUPS: Final = {
    "": ["pods", "pods/status", "pods/binding", "pods/eviction", "events"],
    "resource.k8s.io": ["resourceclaims", "resourceclaims/status"],
    "coordination.k8s.io": ["leases"],
    "events.k8s.io": ["events"],
}
POLICY: Final[Tree] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "namespaces": ["kube-node-lease"]},
        {
            "level": "RequestResponse",
            "resources": [
                {"group": group, "resources": resources} for group, resources in _GROUPS.items()
            ],
        },
        {"level": "None"},
    ],
}


class Request(NamedTuple):
    """One write as the server logged it."""

    user: str
    kind: str
    key: str
    subresource: str
    code: int
    version: int  # of what was stored, 0 where the answer does not say
    began: float
    ended: float
    verb: str = ""
    manager: str = ""  # of the fields that it sets, as managedFields has it

    @property
    def act(self) -> str:
        """What it would do to the object."""
        if self.subresource == "binding":
            return "bind"
        return "delete" if self.verb == "delete" or self.subresource == "eviction" else "write"

    @property
    def may_write_without_a_version(self) -> bool:
        """Whether it may have written something that its answer does not number: bindings, deletions, failures."""
        if self.code >= 500 or not self.code:
            return True
        if (
            self.act == "bind" and self.code == 409
        ):  # a server that lost its store tries again, and meets its own write
            return True
        return self.code < 300 and self.act != "write"


def flags(directory: Path) -> tuple[str, ...]:
    """Writes the policy; the flags that make the API server log by it."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(POLICY), encoding="utf-8")
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log_of(directory)}",
        "--audit-log-maxsize=0",
    )


def log_of(directory: Path) -> Path:
    """Where the log is."""
    return directory / "audit.log"


def read(path: Path) -> list[Request]:
    """The writes of a log; a last line that is still being written is left out."""
    result = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not _is_rehearsal(entry):
            result.append(_request(entry))
    return result


def _is_rehearsal(entry: Tree) -> bool:
    """Whether it only asked what would happen."""
    return "dryRun=All" in entry.get("requestURI", "")


def signed(history: History, requests: Iterable[Request]) -> History:
    """The history with its writers; a gap for each write that has no known writer."""
    writers: dict[int, str] = {}
    others: dict[tuple[str, str], list[Request]] = {}
    for request in sorted(requests, key=lambda item: item.ended):
        if request.version and request.code < 300:
            writers.setdefault(
                request.version, request.user
            )  # who changed nothing is answered with an old version
        if request.may_write_without_a_version:
            others.setdefault((request.kind, request.key), []).append(request)
    gaps = list(history.gaps)
    known: dict[tuple[str, str], Tree] = {}
    for revision in history.revisions:
        place = revision.kind, revision.key
        before = known.pop(place, None)
        if not revision.is_deleted:
            known[place] = revision.object
        if revision.number in writers or revision.kind not in SIGNED or revision.is_deleted:
            continue
        act = _act(before, revision.object)
        able = _able(others.get(place, ()), revision, act)
        users = {request.user for request in able}
        if len(users) > 1 and before is not None:
            managers = _managers(before, revision.object)
            users = {request.user for request in able if request.manager in managers} or users
        if len(users) == 1:
            writers[revision.number] = users.pop()
        else:
            what = "an unknown user" if not users else " or ".join(sorted(users))
            gaps.append(
                f"revision {revision.number} of {revision.kind} {revision.key} was written by {what}"
            )
    return history._replace(revisions=with_writers(history.revisions, writers), gaps=tuple(gaps))


def _act(before: Tree | None, after: Tree) -> str:
    """What was done to the object."""
    if before is not None and before["metadata"]["uid"] == after["metadata"]["uid"]:
        if (before.get("spec") or {}).get("nodeName") != (after.get("spec") or {}).get("nodeName"):
            return "bind"
        names = ("deletionTimestamp", "deletionGracePeriodSeconds")
        if any(before["metadata"].get(name) != after["metadata"].get(name) for name in names):
            return "delete"
    return "write"


def _able(requests: Iterable[Request], revision: Revision, act: str) -> list[Request]:
    """Those that could have written it. Of deletions the one that began last: kubelets end what they saw evicted."""
    able = [request for request in requests if _does(request, act) and _could_be(request, revision)]
    begun = [request for request in able if request.began <= revision.seconds]
    if act == "delete" and begun:
        return [max(begun, key=lambda request: request.began)]
    if act == "bind" and (done := [request for request in able if request.code < 300]):
        return done
    return able


def _managers(before: Tree, after: Tree) -> set[str]:
    """Whose fields the write changed, by name. Two schedulers have one name."""
    known = before["metadata"].get("managedFields") or []
    entries = after["metadata"].get("managedFields") or []
    return {entry["manager"] for entry in entries if entry not in known}


def _does(request: Request, act: str) -> bool:
    """An eviction also writes the condition that says so, before it deletes."""
    return request.act == act or (act == "write" and request.subresource == "eviction")


def _could_be(request: Request, revision: Revision) -> bool:
    """A success wrote for certain, however late it was seen; a failure is believed only around its time."""
    is_late = not 200 <= request.code < 300 and revision.seconds > request.ended + SLACK_SECONDS
    return request.began - 1 < revision.seconds and not is_late


def _request(entry: Tree) -> Request:
    about = entry.get("objectRef") or {}
    stored = entry.get("responseObject") or {}
    meta = stored.get("metadata") or {}
    name = about.get("name") or meta.get("name", "")
    namespace = about.get("namespace", "")
    return Request(
        user=entry["user"]["username"],
        kind=about.get("resource", ""),
        key=f"{namespace}/{name}" if namespace else name,
        subresource=about.get("subresource", ""),
        code=int((entry.get("responseStatus") or {}).get("code", 0)),
        version=int(meta.get("resourceVersion") or 0) if stored.get("kind") != "Status" else 0,
        began=_seconds(entry["requestReceivedTimestamp"]),
        ended=_seconds(entry["stageTimestamp"]),
        verb=entry["verb"],
        manager=_manager(entry),
    )


def _manager(entry: Tree) -> str:
    """As the server names the writer of fields: by the request, or by the program that sent it."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(entry.get("requestURI", "")).query)
    program = str(entry.get("userAgent", "")).partition("/")[0]
    return query.get("fieldManager", [program])[0]


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
