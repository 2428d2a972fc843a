"""Ways to say the same three writes to an API server: patches, whole objects, JSON, protobuf, long and short answers.

Given a claim, its pod and a device; returns bodies that are ready but for the resourceVersion the first answer tells.
What our scheduler really sends is `steps` and `binding`, through its own client. Sends nothing but a list of claims.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from bench import live_cluster, live_protobuf
from dovetail.kube.http import paths, transport
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import claim_patches, write_retry

OURS: Final = "ours"  # no form of its own: our client and the steps of our scheduler
VERSION: Final = b"@resource-version@"
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
BRIEF: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
BRIEF_PROTOBUF: Final = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{PROTOBUF}"


class Way(NamedTuple):
    """How one request is made."""

    method: str
    content_type: str
    accept: str = JSON
    params: Mapping[str, str] | None = None


class Wish(NamedTuple):
    """What should become of one pod."""

    claim: claims.ResourceClaim
    pod: pods.Pod
    gpu: live_cluster.Gpu
    now: datetime.datetime
    document: bytes  # the claim as the server sent it, where a form needs that

    @property
    def allocation(self) -> claims.AllocationResult:
        """The device, as our scheduler writes it."""
        tree = live_cluster.allocation_tree([self.gpu])
        tree["allocationTimestamp"] = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return msgspec.convert(tree, claims.AllocationResult)

    @property
    def user(self) -> claims.ResourceClaimConsumerReference:
        """The pod as a user of the claim."""
        about = self.pod.metadata
        return claims.ResourceClaimConsumerReference(
            resource="pods", name=about.name, uid=about.uid
        )


class Bodies(NamedTuple):
    """What is sent. The status lacks the version that the first answer tells."""

    finalizer: bytes
    status: bytes
    binding: bytes


Documents = dict[str, bytes]


async def _no_documents(over: transport.Transport, namespace: str) -> Documents:
    return {}


def json_version(answer: bytes) -> bytes:
    """The resourceVersion of a JSON answer, without decoding it."""
    start = answer.index(b'"resourceVersion":"') + 19
    return answer[start : answer.index(b'"', start)]


def _with_json_version(body: bytes, version: bytes) -> bytes:
    return body.replace(VERSION, version)


class Form(NamedTuple):
    """One way to say all three."""

    finalizer: Way
    status: Way
    bodies: Callable[[Wish], Bodies]
    binding: Way = Way("POST", JSON)
    version_of: Callable[[bytes], bytes] = json_version
    with_version: Callable[[bytes, bytes], bytes] = _with_json_version
    documents: Callable[..., Any] = _no_documents


def steps(
    wish: Wish,
) -> tuple[write_retry.Patch[claims.ResourceClaim], write_retry.Patch[claims.ResourceClaim]]:
    """The two writes to the claim as our scheduler makes them; the second holds VERSION where the version belongs."""
    step = claim_patches.reserve(wish.claim.metadata.uid, wish.allocation, wish.user, expected=None)
    first = step(wish.claim)
    assert isinstance(first, write_retry.Patch)
    assert first.after is not None
    metadata = msgspec.structs.replace(first.after.metadata, resource_version=VERSION.decode())
    second = step(msgspec.structs.replace(first.after, metadata=metadata))
    assert isinstance(second, write_retry.Patch)
    return first, second


def patched(wish: Wish) -> Bodies:
    """Merge patches with the bodies of our scheduler."""
    first, second = steps(wish)
    return Bodies(first.patch, second.patch, binding(wish))


def forgetful(wish: Wish) -> Bodies:
    """As patched, but the first write also empties managedFields, after which the server tracks none."""
    made = patched(wish)
    tree = msgspec.json.decode(made.finalizer)
    tree["metadata"]["managedFields"] = [{}]
    return made._replace(finalizer=msgspec.json.encode(tree))


def whole(wish: Wish) -> Bodies:
    """The whole claim, twice, as client-go's updates do."""
    first = _protected(wish.claim, wish.claim.metadata.resource_version)
    status = claims.ResourceClaimStatus(allocation=wish.allocation, reserved_for=(wish.user,))
    second = msgspec.structs.replace(_protected(wish.claim, VERSION.decode()), status=status)
    return Bodies(codec.encode_struct(first), codec.encode_struct(second), binding(wish))


def whole_forgetful(wish: Wish) -> Bodies:
    """As whole, and the server stops tracking who manages which field."""
    made = whole(wish)
    tree = msgspec.json.decode(made.finalizer)
    tree["metadata"]["managedFields"] = [{}]
    return made._replace(finalizer=msgspec.json.encode(tree))


def operations(wish: Wish) -> Bodies:
    """JSON patches that set uid and version to what they should be: where they are not, the server says conflict."""
    about = wish.claim.metadata
    first = [
        *_identity(about, about.resource_version),
        _add("/metadata/finalizers", [claims.DELETE_PROTECTION_FINALIZER]),
    ]
    status = {
        "allocation": codec.tree_of(wish.allocation),
        "reservedFor": [codec.tree_of(wish.user)],
    }
    second = [*_identity(about, VERSION.decode()), _add("/status", status)]
    return Bodies(msgspec.json.encode(first), msgspec.json.encode(second), binding(wish))


def _identity(about: meta.ObjectMeta, version: str) -> list[dict[str, Any]]:
    return [_add("/metadata/uid", about.uid), _add("/metadata/resourceVersion", version)]


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def applied(wish: Wish) -> Bodies:
    """Server-side apply of exactly the fields we own."""
    about = wish.claim.metadata
    head = {"apiVersion": registry.CLAIM.api_version, "kind": "ResourceClaim"}
    named = {"name": about.name, "namespace": about.namespace, "uid": about.uid}
    first = {
        **head,
        "metadata": {
            **named,
            "resourceVersion": about.resource_version,
            "finalizers": [claims.DELETE_PROTECTION_FINALIZER],
        },
    }
    status = {
        "allocation": codec.tree_of(wish.allocation),
        "reservedFor": [codec.tree_of(wish.user)],
    }
    second = {**head, "metadata": {**named, "resourceVersion": VERSION.decode()}, "status": status}
    return Bodies(msgspec.json.encode(first), msgspec.json.encode(second), binding(wish))


def encoded(wish: Wish) -> Bodies:
    """The whole claim in protobuf: what the server sent, and our fields after it, which protobuf merges."""
    about = wish.claim.metadata
    first = live_protobuf.protected(wish.document, about.resource_version)
    second = live_protobuf.allocated(
        wish.document, allocation=wish.allocation, user=wish.user, seconds=int(wish.now.timestamp())
    )
    return Bodies(first, second, live_protobuf.binding(wish.pod.metadata, wish.gpu.node))


async def _protobuf_documents(over: transport.Transport, namespace: str) -> Documents:
    path = paths.collection(registry.CLAIM, namespace)
    answer = await over.request("GET", path, accept=PROTOBUF, timeout=60)
    return live_protobuf.items(live_cluster.checked(answer, path))


def binding(wish: Wish) -> bytes:
    """As our scheduler binds a pod."""
    about = wish.pod.metadata
    return codec.encode_tree(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": about.namespace, "name": about.name, "uid": about.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": wish.gpu.node},
        }
    )


def _protected(claim: claims.ResourceClaim, version: str) -> claims.ResourceClaim:
    metadata = msgspec.structs.replace(
        claim.metadata, resource_version=version, finalizers=(claims.DELETE_PROTECTION_FINALIZER,)
    )
    return msgspec.structs.replace(claim, metadata=metadata)


def _patches(
    content_type: str, bodies: Callable[[Wish], Bodies], *, params: Mapping[str, str] | None = None
) -> Form:
    """Patches with a brief first and a full second answer."""
    return Form(
        Way("PATCH", content_type, BRIEF, params), Way("PATCH", content_type, JSON, params), bodies
    )


def _lax(form: Form) -> Form:
    """The server need not look for unknown fields."""
    params = {"fieldValidation": "Ignore"}
    return form._replace(
        finalizer=form.finalizer._replace(params=params),
        status=form.status._replace(params=params),
        binding=form.binding._replace(params=params),
    )


EVENT: Final = Way("POST", JSON, BRIEF)
FORMS: Final[dict[str, Form]] = {
    "merge": _patches(MERGE, patched),
    "merge-full": Form(Way("PATCH", MERGE), Way("PATCH", MERGE), patched),
    "merge-brief": Form(Way("PATCH", MERGE, BRIEF), Way("PATCH", MERGE, BRIEF), patched),
    "merge-lax": _lax(_patches(MERGE, patched)),
    "merge-forget": _patches(MERGE, forgetful),
    "strategic": _patches(STRATEGIC, patched),
    "strategic-lax": _lax(_patches(STRATEGIC, patched)),
    "json-patch": _patches(JSON_PATCH, operations),
    "json-patch-lax": _lax(_patches(JSON_PATCH, operations)),
    "apply": _patches(APPLY, applied, params={"fieldManager": "dovetail", "force": "true"}),
    "put": Form(Way("PUT", JSON, BRIEF), Way("PUT", JSON), whole),
    "put-lax": _lax(Form(Way("PUT", JSON, BRIEF), Way("PUT", JSON), whole)),
    "put-forget": Form(Way("PUT", JSON, BRIEF), Way("PUT", JSON), whole_forgetful),
    "protobuf": Form(
        Way("PUT", PROTOBUF, BRIEF_PROTOBUF),
        Way("PUT", PROTOBUF, BRIEF_PROTOBUF),
        encoded,
        binding=Way("POST", PROTOBUF, PROTOBUF),
        version_of=live_protobuf.version_of,
        with_version=live_protobuf.with_version,
        documents=_protobuf_documents,
    ),
}
