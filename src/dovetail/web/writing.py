"""Changes a cluster on behalf of a user, with the user's own identity: the patch of a fix, or new work.

Given the connection of the cluster and the user. Everything is sent as a dry run first; what the server refuses there
stops all of it. Only kinds that answers are about can be written. Never uses the dashboard's own rights for a user who
signed in with a token, never retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from dovetail.answer.replica import patches
from dovetail.kube import resource_names
from dovetail.kube.auth import client_config, credentials
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import gpu_stack_kinds, registry
from dovetail.manifest import manifests
from dovetail.ports import api, failures
from dovetail.web import problems
from dovetail.web.security import audit_log, identities
from dovetail.web.source import watched_kinds
from dovetail.web.wire import parameters

MANAGER: Final = "dovetail-dashboard"
MOST_OBJECTS: Final = 200
SECONDS: Final = 30.0
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"

# What answers are about. Rights, secrets and admission are none of it; the objects of NVIDIA's operator are only read.
FIXABLE: Final = frozenset(
    (read.kind.group, read.kind.name)
    for read in watched_kinds.READS
    if read.kind not in gpu_stack_kinds.OPERATOR_KINDS
)
_WORKLOADS: Final = frozenset(
    {("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "DaemonSet"), ("batch", "CronJob")}
)
SUBMITTABLE: Final = _WORKLOADS | {
    (kind.group, kind.name)
    for kind in (
        registry.POD,
        registry.CLAIM,
        registry.TEMPLATE,
        *registry.OWNERS,
        *registry.PARENTS,
    )
}

Tree = dict[str, Any]


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New work: YAML or JSON documents, and the namespace of those that name none."""

    manifest: Annotated[str, msgspec.Meta(max_length=1 << 20)]
    namespace: str = "default"


class Done(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was changed, object by object."""

    changed: tuple[str, ...]


class _Write(NamedTuple):
    """One request."""

    method: str
    target: api.Target
    tree: Tree
    name: str  # of the object, for messages

    @property
    def verb(self) -> str:
        return {"POST": "create", "PATCH": "change", "DELETE": "delete"}[self.method]


class Writer:
    """One user's writes."""

    def __init__(self, connection: client_config.Connection, user: identities.User) -> None:
        self._user = user
        if user.how == "link":
            self._connection = connection  # the user's own kubeconfig
        else:
            own = credentials.Credentials(token=user.token)
            self._connection = msgspec.structs.replace(connection, credentials=own)

    async def fix(self, body: bytes) -> Done:
        """Carries out the patch of a fix."""
        try:
            tree = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise problems.bad_request(f"the body is not JSON: {error}") from None
        changes: list[patches.Patch] = parameters.convert(list[patches.Patch], tree)
        _check_number(len(changes))
        refs = [change.object for change in changes]
        for ref in refs:
            _check_kind(ref.api_version, ref.kind, FIXABLE)

        async with self._connected() as over:
            served = await self._served(over, [ref.api_version for ref in refs])
            writes = [_write_of(change, _kind(served, change.object)) for change in changes]
            return await self._carry_out(over, writes)

    async def submit(self, work: Work) -> Done:
        """Creates the objects of a manifest."""
        read = manifests.load(
            work.manifest, file="manifest", default_namespace=work.namespace or "default"
        )
        if read.problems:
            lines = [str(problem) for problem in read.problems[:20]]
            raise problems.bad_request("\n".join(lines), field="manifest")
        _check_number(len(read.objects))
        trees = [each.stored.tree for each in read.objects]
        for tree in trees:
            _check_kind(str(tree["apiVersion"]), str(tree["kind"]), SUBMITTABLE)

        async with self._connected() as over:
            served = await self._served(over, [str(tree["apiVersion"]) for tree in trees])
            creations = [
                patches.Patch(object=_ref(each, work.namespace), create=tree)
                for each, tree in zip(read.objects, trees, strict=True)
            ]
            writes = [_write_of(change, _kind(served, change.object)) for change in creations]
            return await self._carry_out(over, writes)

    def _connected(self) -> transport.Transport:
        return transport.Transport(self._connection, user_agent=MANAGER)

    async def _served(
        self, over: transport.Transport, api_versions: Sequence[str]
    ) -> resource_names.Resources:
        try:
            return await resource_names.served_types(over, api_versions)
        except failures.ApiFailure as failure:
            raise _refused(failure, "") from None

    async def _carry_out(self, over: transport.Transport, writes: Sequence[_Write]) -> Done:
        """All as a dry run, then all for good."""
        for write in writes:
            await self._send(over, write, is_rehearsal=True)
        changed: list[str] = []
        for write in writes:
            try:
                name = await self._send(over, write, is_rehearsal=False)
            except problems.Refusal as refusal:
                self._note(write, f"refused: {refusal}")
                if not changed:
                    raise
                done = ", ".join(changed)
                raise problems.conflict(f"{refusal}; before that: {done}") from None
            self._note(write, "done")
            changed.append(f"{write.verb}d {name}")
        return Done(changed=tuple(changed))

    async def _send(self, over: transport.Transport, write: _Write, *, is_rehearsal: bool) -> str:
        """Sends one write. Returns the object's name, which the server may have chosen."""
        params = {"dryRun": "All"} if is_rehearsal else {}
        if write.method != "DELETE":
            params |= {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        try:
            answer = await over.request(
                write.method,
                paths.of(write.target),
                params=params,
                body=msgspec.json.encode(write.tree),
                content_type=_MERGE if write.method == "PATCH" else _JSON,
                timeout=SECONDS,
            )
        except failures.ApiFailure as failure:
            raise _refused(failure, write.name) from None
        if not answer.is_success:
            refusal = status_errors.failure_of(
                answer.status,
                answer.body,
                headers=answer.headers,
                doing=f"{write.verb} {write.name}",
            )
            raise _refused(refusal, write.name)
        stored = msgspec.json.decode(answer.body)
        name = (stored.get("metadata") or {}).get("name") if isinstance(stored, dict) else ""
        if write.target.name or not name:
            return write.name
        place = f"{write.target.namespace}/" if write.target.namespace else ""
        return f"{write.target.kind.name} {place}{name}"

    def _note(self, write: _Write, outcome: str) -> None:
        audit_log.note_write(self._user, action=write.verb, target=write.name, outcome=outcome)


def _write_of(change: patches.Patch, kind: registry.Kind) -> _Write:
    ref = change.object
    namespace = ref.namespace if kind.is_namespaced else ""
    named = api.Target(kind, namespace, ref.name)
    given = [change.merge is not None, change.delete, change.create is not None]
    if sum(given) != 1:
        raise problems.bad_request(f"{ref}: give one of merge, delete and create")
    if change.create is not None:
        return _Write("POST", api.Target(kind, namespace), change.create, str(ref))
    if not ref.name:
        raise problems.bad_request(f"{ref.kind}: the object has no name")
    if change.delete:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return _Write("DELETE", named, options, str(ref))
    return _Write("PATCH", named, change.merge or {}, str(ref))


def _ref(item: manifests.ManifestObject, namespace: str) -> patches.ObjectRef:
    """The object; of kinds that the manifest's reader does not know, the namespace is still missing."""
    ref = patches.ref_of(item.stored.struct)
    return ref if ref.namespace else msgspec.structs.replace(ref, namespace=namespace)


def _kind(served: resource_names.Resources, ref: patches.ObjectRef) -> registry.Kind:
    resource = served.of_type(ref.api_version, ref.kind)
    if resource is None:
        raise problems.refused_by_cluster(f"the cluster serves no {ref.kind} of {ref.api_version}")
    return resource.kind


def _check_kind(api_version: str, kind: str, allowed: frozenset[tuple[str, str]]) -> None:
    group = api_version.rpartition("/")[0]
    if (group, kind) not in allowed:
        raise problems.forbidden(f"the dashboard writes no {kind} of {api_version}; kubectl can")


def _check_number(number: int) -> None:
    if not 1 <= number <= MOST_OBJECTS:
        raise problems.bad_request(f"{number} objects; expected 1 to {MOST_OBJECTS}")


def _refused(failure: failures.ApiFailure, name: str) -> problems.Refusal:
    """What the cluster said, as a problem."""
    text = str(failure)
    match failure:
        case failures.Unauthorised():
            return problems.unauthenticated("the cluster does not accept your token any more")
        case failures.Refused(status=403):
            return problems.forbidden(text)
        case failures.Missing():
            return problems.not_found(f"{name}: {text}" if name else text)
        case failures.Refused():
            return problems.refused_by_cluster(text)
        case failures.Conflict() | failures.AlreadyThere() | failures.Protected():
            return problems.conflict(text)
        case _:
            return problems.unavailable(text, retry_after=failure.retry_after or 2.0)
