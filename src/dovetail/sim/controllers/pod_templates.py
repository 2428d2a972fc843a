"""Pods from templates, and the short names made for children: hashes of templates and random-looking suffixes.

Given templates and owners; returns trees and texts. The alphabet is apimachinery's, which spells no words. Our hash
of a template differs from upstream's, which depends on how Go prints structs; nothing reads the value. Never stores
anything.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from dovetail.kubetypes import names
from dovetail.sim.controllers import owner_references, tree_fields

Tree = dict[str, Any]

ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery util/rand
SUFFIX_LENGTH: Final = 5  # apiserver storage/names
FNV_OFFSET: Final = 2_166_136_261
FNV_PRIME: Final = 16_777_619


def pod_from_template(template: Tree, owner: Tree, *, generate_name: str = "") -> Tree:
    """A pod of an owner, still without a name. `generate_name` is the owner's name and a dash by default."""
    template_metadata = tree_fields.mapping(template, "metadata")
    base = generate_name or f"{owner['metadata']['name']}-"
    metadata: Tree = {
        "generateName": base,
        "namespace": owner["metadata"].get("namespace", ""),
        "labels": dict(tree_fields.mapping(template_metadata, "labels")),
        "ownerReferences": [owner_references.reference_to(owner)],
    }
    if template_metadata.get("annotations"):
        metadata["annotations"] = dict(template_metadata["annotations"])
    if template_metadata.get("finalizers"):
        metadata["finalizers"] = list(template_metadata["finalizers"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": dict(tree_fields.mapping(template, "spec")),
    }


def generated_name(base: str, owner_uid: str, serial: int) -> str:
    """The name of the child of this serial number: the same on every run."""
    digest = hashlib.sha256(f"{owner_uid}/{base}/{serial}".encode()).digest()
    number = int.from_bytes(digest[:8])
    suffix = ""
    for _ in range(SUFFIX_LENGTH):
        number, place = divmod(number, len(ALPHABET))
        suffix += ALPHABET[place]
    return base[: names.MAX_GENERATED_BASE] + suffix


def template_hash(template: Tree, collision_count: int = 0) -> str:
    """A short text that differs where templates differ."""
    document = msgspec.json.encode(normal_form(template), order="sorted")
    if collision_count:
        document += collision_count.to_bytes(8, "little")
    return _safely_encoded(str(_fnv32a(document)))


def normal_form(value: Any) -> Any:
    """A template without what is empty, so that two ways to write the same are equal."""
    if isinstance(value, dict):
        fields = {name: normal_form(field) for name, field in value.items()}
        return {name: field for name, field in fields.items() if not _is_empty(field)}
    if isinstance(value, list | tuple):
        return [normal_form(entry) for entry in value]
    return value


def scaled_value(value: int | str | None, total: int, *, rounds_up: bool) -> int:
    """A number, or a percentage of a total, as upstream's IntOrString."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.strip().removesuffix("%") or 0)
    return -(-percent * total // 100) if rounds_up else percent * total // 100


def _is_empty(value: Any) -> bool:
    return value is None or value == {} or value == []


def _fnv32a(document: bytes) -> int:
    value = FNV_OFFSET
    for byte in document:
        value = (value ^ byte) * FNV_PRIME & 0xFFFFFFFF
    return value


def _safely_encoded(text: str) -> str:
    return "".join(ALPHABET[ord(character) % len(ALPHABET)] for character in text)
