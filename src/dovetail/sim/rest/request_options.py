"""What the query, the headers and the body of a write say besides the object: dry run, manager, deletion options.

Given plain mappings, returns structs or refuses in an API server's words. Never writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec, field_errors
from dovetail.manifest import yaml_text
from dovetail.sim.rest import status_answers
from dovetail.sim.rest.encoding import content_types, protobuf_bodies
from dovetail.sim.server import write_rules

Tree = dict[str, Any]

MAX_BODY_BYTES: Final = 3_145_728  # kube-apiserver's limit of a request body
_OPTIONS: Final = {  # meta/v1
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}
_ORPHAN: Final = "Orphan"
_POLICIES: Final = ("Background", "Foreground", _ORPHAN)


class WriteOptions(NamedTuple):
    """Options of a create, update or patch."""

    is_rehearsal: bool = False
    manager: str = ""
    field_validation: str = ""
    force: bool = False
    names_manager: bool = False  # the request says who writes, as the commands of people do


class DeleteOptions(NamedTuple):
    """Options of a deletion."""

    grace_seconds: int | None = None
    policy: str = "Background"
    uid: str = ""
    resource_version: str = ""
    is_rehearsal: bool = False


def write_options(method: str, query: Mapping[str, str], user_agent: str) -> WriteOptions:
    """The options of a write."""
    mode = query.get("fieldValidation", "")
    if mode not in ("", "Ignore", "Strict", "Warn"):
        message = f'Unsupported value: "{mode}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid(method, "fieldValidation", message)
    return WriteOptions(
        is_rehearsal=_is_dry_run(method, query.get("dryRun", "")),
        manager=query.get("fieldManager") or user_agent.partition("/")[0] or "unknown",
        field_validation=mode,
        force=query.get("force", "") in ("true", "1"),
        names_manager=bool(query.get("fieldManager")),
    )


def delete_options(query: Mapping[str, str], sent: Tree) -> DeleteOptions:
    """The options of a deletion: those of the body, if there is one."""
    dry_run = sent.get("dryRun") or [query.get("dryRun", "")]
    policy = sent.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    if sent.get("orphanDependents") or query.get("orphanDependents") == "true":
        policy = _ORPHAN
    if policy not in _POLICIES:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        message = f'Unsupported value: "{policy}": supported values: {supported}'
        raise invalid("DELETE", "propagationPolicy", message)
    preconditions: Tree = sent.get("preconditions") or {}
    return DeleteOptions(
        grace_seconds=_grace(sent.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))),
        policy=policy,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        is_rehearsal=_is_dry_run("DELETE", ",".join(filter(None, dry_run))),
    )


def body_tree(body: bytes, content_type: str) -> Tree:
    """The object of a body in one of the encodings that are read."""
    media = content_types.media_of(content_type)
    if media == content_types.PROTOBUF:
        return protobuf_bodies.decoded(body)
    if media not in (content_types.JSON, "application/yaml"):
        raise status_answers.unsupported_media(f"{content_types.JSON}, application/yaml")
    return tree_of(body)


def tree_of(body: bytes) -> Tree:
    """A body as a tree, JSON or YAML."""
    if body.lstrip()[:1] == b"{":
        try:
            return codec.parsed(body)
        except codec.DecodeError as error:
            raise status_answers.bad(
                f"couldn't get version/kind; json parse error: {error}"
            ) from None
    try:
        documents = [document.tree for document in yaml_text.documents(body.decode())]
    except (yaml_text.TextError, UnicodeDecodeError) as error:
        raise status_answers.bad(f"the object provided is unrecognized: {error}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise status_answers.bad("the object provided is unrecognized: expected one object")
    tree: Tree = documents[0]
    return tree


def invalid(method: str, field: str, message: str) -> write_rules.Invalid:
    """422 for an option of a request."""
    is_required = message.startswith("Required")
    type_ = field_errors.REQUIRED if is_required else field_errors.NOT_SUPPORTED
    problem = field_errors.FieldProblem(type_, field, message)
    return write_rules.Invalid(f"{_OPTIONS[method]}.meta.k8s.io", "", [problem])


def _is_dry_run(method: str, text: str) -> bool:
    if text not in ("", "All"):
        message = f'Unsupported value: ["{text}"]: supported values: "All"'
        raise invalid(method, "dryRun", message)
    return text == "All"


def _grace(value: Any) -> int | None:
    if value is None or value == "":
        return None
    try:
        seconds = int(value)
    except (TypeError, ValueError):
        raise status_answers.bad(f"gracePeriodSeconds: expected a number, got {value!r}") from None
    return max(0, seconds)
