"""Reads a story: a cluster in which a pod is pending, and what a good answer to `why` says about it.

Given one YAML file: a document of kind Story, then ordinary Kubernetes objects. Two abbreviations exist and expand to
ordinary objects: `fleet` in the header (see `docs/reference/fleet-file.md`) and documents of kind Repeat. Never judges.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from dovetail.sim.fleet import fleet_objects, fleet_spec

DIRECTORY: Final = Path(__file__).parent / "stories"
LATEST: Final = datetime.datetime(2026, 11, 17, 12, 0, tzinfo=datetime.UTC)  # without timestamps
UIDS: Final = uuid.UUID("0b4b5b0e-5f0c-5b0e-8f3e-1f6a3c1d2e4f")  # ours; any constant would do
CLASSES: Final = ("config", "capacity", "quota", "policy", "platform")

Tree = dict[str, Any]
Class = Literal["config", "capacity", "quota", "policy", "platform"]
Who = Literal["user", "queue-admin", "cluster-admin"]


class Cause(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"class_": "class", "other_classes": "or"},
):
    """What a good engineer names first: its class, its rows in the list of causes, and codes where a row has many.

    `or` names classes that a reasonable person might choose instead.
    """

    class_: Class
    other_classes: tuple[Class, ...] = ()
    numbers: tuple[int, ...]
    codes: tuple[str, ...] = ()


class Fix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change: who makes it, and words of its title or patch, each with alternatives after a bar."""

    who: Who
    words: tuple[str, ...]


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The first document. `says` lists words of the sentence; alternatives are separated by bars.

    One of `fixes` has to be among the suggestions, and a person in `who` has to be able to make one of them.

    `live` is no where the pod has its node already, or where another scheduler decides by rules that Dovetail does not
    run: the verdict is then the one written here.
    """

    api_version: str
    kind: Literal["Story"]
    title: str
    ask: str
    verdict: Literal["starts", "blocked"]
    cause: Cause | None = None
    says: tuple[str, ...] = ()
    who: tuple[Who, ...] = ()
    fixes: tuple[Fix, ...] = ()
    live: bool = True
    now: str = ""
    fleet: fleet_spec.Fleet | None = None


class Question(msgspec.Struct, frozen=True):
    """What the story asks about."""

    kind: str
    name: str
    namespace: str


class Story(msgspec.Struct, frozen=True):
    """One story with its objects written out."""

    name: str
    header: Header
    objects: list[Tree]

    @property
    def question(self) -> Question:
        """The object of the question."""
        match = re.fullmatch(r"(\w+)/(\S+) -n (\S+)", self.header.ask)
        assert match, f"{self.name}: ask: expected kind/name -n namespace, got {self.header.ask}"
        return Question(*match.groups())

    def asked_object(self) -> Tree:
        """The object that the question is about."""
        question = self.question
        for tree in self.objects:
            metadata = tree["metadata"]
            key = (tree["kind"].lower(), metadata["name"], metadata.get("namespace"))
            if key == (question.kind, question.name, question.namespace):
                return tree
        raise AssertionError(f"{self.name}: {self.header.ask} is not among the objects")

    @property
    def now(self) -> datetime.datetime:
        """The time at which the question is asked: the header's, or just after the latest timestamp."""
        if self.header.now:
            return _time(self.header.now)
        times = [_time(text) for text in _timestamps(self.objects)]
        return max(times, default=LATEST)


def names() -> list[str]:
    """Every story, by name."""
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def is_large(name: str) -> bool:
    """Whether a fleet publishes every partition that its GPUs could have: judging such a story takes seconds."""
    return "mig: true" in (DIRECTORY / f"{name}.yaml").read_text()


def read(name: str) -> Story:
    """One story of the corpus."""
    return parse(name, (DIRECTORY / f"{name}.yaml").read_text())


def parse(name: str, text: str) -> Story:
    """A story of a text."""
    header_tree, *documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    header = msgspec.convert(header_tree, Header)
    objects = list(_expanded(documents))
    if header.fleet is not None:
        assert not list(fleet_spec.problems_of(header.fleet)), f"{name}: fleet"
        objects = [*fleet_objects.objects_of(header.fleet), *objects]
    return Story(name, header, completed(objects))


def _expanded(documents: list[Tree]) -> Iterator[Tree]:
    for document in documents:
        if document["kind"] == "Repeat":
            for number in range(document["from"], document["to"] + 1):
                yield _numbered(document["object"], number)
        elif document["kind"] == "List":
            yield from document["items"]
        else:
            yield document


def _numbered(part: Any, number: int) -> Any:
    """The part with the number in place of every `{n}`, or `{n2}` with two digits."""
    if isinstance(part, dict):
        return {_numbered(key, number): _numbered(value, number) for key, value in part.items()}
    if isinstance(part, list):
        return [_numbered(item, number) for item in part]
    if isinstance(part, str):
        return part.replace("{n}", str(number)).replace("{n2}", f"{number:02}")
    return part


def completed(objects: list[Tree]) -> list[Tree]:
    """The objects as an API server returns them: with uids, and with the namespaces they are in."""
    present = {tree["metadata"]["name"] for tree in objects if tree["kind"] == "Namespace"}
    used = {tree["metadata"].get("namespace") for tree in objects} - present - {None, ""}
    spaces = [_namespace(name) for name in sorted(used)]
    return [_with_uid(tree) for tree in (*spaces, *objects)]


def _namespace(name: str) -> Tree:
    labels = {"kubernetes.io/metadata.name": name}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _with_uid(tree: Tree) -> Tree:
    metadata = tree["metadata"]
    place = f"{tree['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"
    stamped = {"uid": str(uuid.uuid5(UIDS, place)), **metadata}
    return {**tree, "metadata": stamped}


# Fields in which a component writes the current time.
_TIMES: Final = (
    "creationTimestamp",
    "startTime",
    "lastTransitionTime",
    "lastHeartbeatTime",
    "lastTimestamp",
    "startedAt",
    "finishedAt",
    "timeAdded",
)


def _timestamps(part: Any) -> Iterator[str]:
    """Every time at which something happened; leases are renewed and so are not read."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _TIMES and value:
                yield str(value)
            elif key != "managedFields":
                yield from _timestamps(value)
    elif isinstance(part, list):
        for item in part:
            yield from _timestamps(item)


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
