"""Selectors in the query of a list or watch: labelSelector and fieldSelector, read once and then asked per object.

Given the text of a query; returns a test of records, or refuses what an API server refuses, in its words. Labels come
from the struct; only fields that the struct does not carry cost a parse of the document. Never reads a store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.label_selectors import Test
from dovetail.ports import failures
from dovetail.sim.rest import status_answers
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import TableKey

Tree = dict[str, Any]
Matches = Callable[[Record], bool]

_NAME: Final = ("metadata.name", "metadata.namespace")
_REGARDING: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)
# The fields upstream lets clients select by, per kind, besides name and namespace.
FIELDS: Final[dict[TableKey, tuple[str, ...]]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
    ("resource.k8s.io", "resourceslices"): ("spec.nodeName", "spec.driver"),
    ("events.k8s.io", "events"): (
        *(f"regarding.{field}" for field in _REGARDING),
        "reason",
        "reportingController",
        "reportingComponent",
        "source",
        "type",
    ),
}
_EVENTS: Final = ("events.k8s.io", "events")

_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY: Final = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_KEY: Final = re.compile(r"^(?P<absent>!?)\s*(?P<key>[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?)$")


class FieldTest(NamedTuple):
    """One test of one field."""

    path: tuple[str, ...]
    value: str
    is_equal: bool


class Selection(NamedTuple):
    """What a request selects. Without any test everything passes."""

    labels: label_selectors.Tests = label_selectors.EVERYTHING
    fields: tuple[FieldTest, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether every object passes."""
        return not self.labels and not self.fields

    @property
    def only_name(self) -> str:
        """The one name that can pass; empty if several can."""
        for test in self.fields:
            if test.path == ("metadata", "name") and test.is_equal:
                return test.value
        return ""

    def matches(self, record: Record) -> bool:
        """Whether an object passes."""
        if not label_selectors.passes(self.labels, record.metadata.labels):
            return False
        return all(_holds(test, record) for test in self.fields)


EVERYTHING: Final = Selection()


def parsed(label_text: str, field_text: str, table: TableKey) -> Selection:
    """The selection of a query on a kind."""
    labels = tuple(_label_tests(label_text)) if label_text else label_selectors.EVERYTHING
    fields = tuple(_field_tests(field_text, table)) if field_text else ()
    return Selection(labels, fields)


def _label_tests(text: str) -> Iterator[Test]:
    for part in _parts(text):
        if match := _SET.match(part):
            values = frozenset(value.strip() for value in match["values"].split(","))
            yield Test(match["key"], "In" if match["operator"] == "in" else "NotIn", values)
        elif match := _EQUALITY.match(part):
            operator = "NotIn" if match["operator"] == "!=" else "In"
            yield Test(match["key"], operator, frozenset({match["value"]}))
        elif match := _KEY.match(part):
            yield Test(match["key"], "DoesNotExist" if match["absent"] else "Exists")
        else:
            raise status_answers.bad(
                f"unable to parse requirement: found '{part}', expected: !, identifier, or 'end of string'"
            )


def _parts(text: str) -> Iterator[str]:
    """The requirements between commas; commas inside parentheses separate values."""
    depth = 0
    begin = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    last = text[begin:].strip()
    if last:
        yield last


def _field_tests(text: str, table: TableKey) -> Iterator[FieldTest]:
    for part in filter(None, text.split(",")):
        match = _EQUALITY.match(part.strip())
        if match is None:
            raise status_answers.bad(f"invalid field selector: '{part}'; can't understand '{part}'")
        field = _stored_field(match["key"], table)
        if field not in (*_NAME, *FIELDS.get(table, ())):
            raise status_answers.bad(f"field label not supported: {match['key']}")
        yield FieldTest(tuple(field.split(".")), match["value"], match["operator"] != "!=")


def _stored_field(field: str, table: TableKey) -> str:
    """The field under its name in the stored version."""
    if table == _EVENTS and field.startswith("involvedObject."):
        return field.replace("involvedObject.", "regarding.", 1)
    return field


def _holds(test: FieldTest, record: Record) -> bool:
    return (_value(test.path, record) == test.value) == test.is_equal


def _value(path: tuple[str, ...], record: Record) -> str:
    """The field as text; absent fields are empty."""
    match path:
        case ("metadata", "name"):
            return record.metadata.name
        case ("metadata", "namespace"):
            return record.metadata.namespace
    struct_value = _FAST.get(path)
    if struct_value is not None and isinstance(record.struct, pods.Pod):
        return struct_value(record.struct)
    value: Any = record.tree
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if path == ("spec", "unschedulable") and value is None:
        return "false"
    return "" if value is None else str(value)


def _node_name(pod: pods.Pod) -> str:
    return pod.spec.node_name or ""


def _phase(pod: pods.Pod) -> str:
    return str(pod.status.phase or "")


# Fields by which pods are selected all the time, read without parsing the document.
_FAST: Final[dict[tuple[str, ...], Callable[[pods.Pod], str]]] = {
    ("spec", "nodeName"): _node_name,
    ("status", "phase"): _phase,
}


def refuse_continue(error: Exception) -> failures.Refused:
    """400 for a continue token that this server did not issue."""
    return status_answers.bad(f"invalid continue token: continue key is not valid: {error}")
