"""Content negotiation: in which form a client wants its answer, and in which form it sent its body.

Given the Accept and Content-Type headers; returns the form, or refuses what is not served. JSON wins wherever a client
accepts it; the protobuf form is for clients that accept nothing else. Never reads a body.
"""

from __future__ import annotations

import enum
from typing import Final

from dovetail.sim.rest import status_answers

JSON: Final = "application/json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
_ANY: Final = ("*/*", "application/*", JSON)


class Form(enum.Enum):
    """The form of an answer."""

    OBJECT = "the object"
    TABLE = "meta.k8s.io Table"
    METADATA = "meta.k8s.io PartialObjectMetadata"
    METADATA_LIST = "meta.k8s.io PartialObjectMetadataList"
    PROTOBUF = "the server's protobuf encoding"


_FORMS: Final = {
    "Table": Form.TABLE,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA_LIST,
}


def form_of(accept: str) -> Form:
    """The first form of the header that is served."""
    if not accept:
        return Form.OBJECT
    takes_protobuf = False
    for option in accept.split(","):
        media, *parameters = [part.strip() for part in option.split(";")]
        if media == PROTOBUF:
            takes_protobuf = takes_protobuf or not _wanted_kind(parameters)
        elif media in _ANY or media.startswith("application/json"):
            kind = _wanted_kind(parameters)
            if not kind:
                return Form.OBJECT
            if kind in _FORMS:
                return _FORMS[kind]
    if takes_protobuf:
        return Form.PROTOBUF
    raise status_answers.not_acceptable(JSON)


def media_of(content_type: str) -> str:
    """The media type without parameters; JSON where none is stated."""
    return content_type.partition(";")[0].strip() or JSON


def wants_aggregated(accept: str) -> bool:
    """Whether a client asks for aggregated discovery in a version that is served."""
    return any(
        "as=APIGroupDiscoveryList" in option and "v=v2" in option.replace("v=v2beta1", "")
        for option in accept.split(",")
    )


def _wanted_kind(parameters: list[str]) -> str:
    """The `as` parameter; a form of another version than v1 is not served."""
    values = dict(parameter.partition("=")[::2] for parameter in parameters)
    kind = values.get("as", "")
    if kind and values.get("v", "v1") not in ("v1", "v2"):
        return f"{kind} {values['v']}"
    return kind
