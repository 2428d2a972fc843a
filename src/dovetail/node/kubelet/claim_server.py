"""The service DRAPlugin in its two versions: turns the kubelet's requests into calls of a ClaimService.

What goes wrong with a claim is a message in its entry of the response, never a gRPC error: that would hide the other
claims of the call. A call that the kubelet gives up goes on to its end, because half a preparation is worse than a
late one; the kubelet repeats the request and gets the answer then. Never keeps a claim in memory between calls.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from dovetail.node.kubelet import method_handlers
from dovetail.node.kubelet.claim_service import ClaimReference, ClaimService, Failed, Prepared
from dovetail.node.kubelet.wire import dra_v1_pb2, dra_v1beta1_pb2
from dovetail.ports import meter

# What a plugin states at registration; the gRPC names are longer.
SUPPORTED: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
_MESSAGES: Final[Mapping[str, ModuleType]] = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}

# Uids become parts of file names. Kubernetes makes UUIDs; accepted is what cannot leave a directory.
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_MESSAGE_CHARACTERS: Final = (
    1024  # the kubelet puts it into an event of the pod, which holds as many
)
UNEXPECTED: Final = "a bug in the node agent"

LOG = logging.getLogger("dovetail.node.claims")
_T = TypeVar("_T")
_Calls: TypeAlias = "set[asyncio.Task[Any]]"


class ClaimServer:
    """Serves claims over gRPC. `drained` waits for the calls the kubelet gave up."""

    def __init__(self, service: ClaimService, *, meter_: meter.Meter | None = None) -> None:
        self._service = service
        self._meter = meter_ or meter.NoMeter()
        self._calls: _Calls = set()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """One per version of the interface."""
        return [self._handler(version, messages) for version, messages in _MESSAGES.items()]

    async def drained(self) -> None:
        """Returns when no call is in progress."""
        while self._calls:
            await asyncio.wait(set(self._calls))

    def _handler(self, version: str, messages: ModuleType) -> grpc.GenericRpcHandler:
        async def prepare(request: Any, context: method_handlers.Context) -> Message:
            outcomes = await self._finished(self._prepare(request.claims))
            return _prepare_response(messages, outcomes)

        async def unprepare(request: Any, context: method_handlers.Context) -> Message:
            outcomes = await self._finished(self._unprepare(request.claims))
            return _unprepare_response(messages, outcomes)

        return method_handlers.service_handler(
            f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin",
            {
                "NodePrepareResources": method_handlers.Unary(
                    messages.NodePrepareResourcesRequest, prepare
                ),
                "NodeUnprepareResources": method_handlers.Unary(
                    messages.NodeUnprepareResourcesRequest, unprepare
                ),
            },
        )

    async def _finished(self, call: Coroutine[Any, Any, _T]) -> _T:
        """The outcome of a call, which goes on when the waiting for it is cancelled."""
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)

    async def _prepare(self, wire_claims: Iterable[Any]) -> dict[str, Prepared | Failed]:
        return await self._answered("prepare", wire_claims, self._service.prepare)

    async def _unprepare(self, wire_claims: Iterable[Any]) -> dict[str, Failed | None]:
        return await self._answered("unprepare", wire_claims, self._service.unprepare)

    async def _answered(
        self,
        operation: str,
        wire_claims: Iterable[Any],
        ask: Callable[[Sequence[ClaimReference]], Awaitable[Mapping[str, _T | Failed]]],
    ) -> dict[str, _T | Failed]:
        """An outcome for each claim of the request, whatever the service does."""
        started = time.monotonic()
        claims, outcomes = _references(wire_claims)
        if claims:
            answers = await self._asked(operation, claims, ask)
            for claim in claims:
                outcomes[claim.uid] = answers.get(claim.uid, _no_answer(answers, claim))
        self._report(operation, claims, outcomes, seconds=time.monotonic() - started)
        return outcomes

    async def _asked(
        self,
        operation: str,
        claims: Sequence[ClaimReference],
        ask: Callable[[Sequence[ClaimReference]], Awaitable[Mapping[str, _T | Failed]]],
    ) -> Mapping[str, _T | Failed]:
        try:
            return await ask(claims)
        except Exception as error:
            LOG.exception(
                f"claims.{operation}.broken: {UNEXPECTED}", extra={"claims": _listed(claims)}
            )
            failed = Failed(f"{UNEXPECTED}: {type(error).__name__}: {error}; its log has more")
            return {claim.uid: failed for claim in claims}

    def _report(
        self,
        operation: str,
        claims: Sequence[ClaimReference],
        outcomes: Mapping[str, Any],
        *,
        seconds: float,
    ) -> None:
        """One line for the call, and one for each claim that failed."""
        failures = {uid: fate for uid, fate in outcomes.items() if isinstance(fate, Failed)}
        self._meter.observe("dovetail_node_claim_seconds", seconds, operation=operation)
        for outcome, count in (
            ("ok", len(outcomes) - len(failures)),
            ("failed", len(failures)),
        ):
            self._meter.count(
                "dovetail_node_claims_total", count, operation=operation, result=outcome
            )
        LOG.info(
            f"claims.{operation}",
            extra={"claims": _listed(claims), "failed": len(failures), "seconds": seconds},
        )
        for uid, failed in failures.items():
            LOG.warning(f"claims.{operation}.failed", extra={"uid": uid, "why": failed.message})


def _references(
    wire_claims: Iterable[Any],
) -> tuple[list[ClaimReference], dict[str, Any]]:
    """The claims that can be asked about, each once, and a failure for each other uid."""
    claims: dict[str, ClaimReference] = {}
    refused: dict[str, Any] = {}
    for claim in wire_claims:
        if _UID.fullmatch(claim.uid) and claim.namespace and claim.name:
            claims[claim.uid] = ClaimReference(claim.namespace, claim.name, claim.uid)
        else:
            refused[claim.uid] = Failed(
                f"a claim needs a namespace, a name and a usable uid; the request has "
                f'namespace "{claim.namespace[:80]}", name "{claim.name[:80]}", uid "{claim.uid[:80]}"'
            )
    return list(claims.values()), refused


def _no_answer(answers: Mapping[str, object], claim: ClaimReference) -> Failed:
    return Failed(f"{UNEXPECTED}: no outcome for claim {claim} among {len(answers)}")


def _prepare_response(messages: ModuleType, outcomes: Mapping[str, Prepared | Failed]) -> Message:
    response: Message = messages.NodePrepareResourcesResponse()
    for uid, outcome in outcomes.items():
        entry = response.claims[uid]  # type: ignore[attr-defined]  # one of two generated classes
        if isinstance(outcome, Failed):
            entry.error = _message(outcome)
            continue
        entry.SetInParent()  # an entry also for a claim without devices of ours
        for device in outcome.devices:
            fields: dict[str, Any] = {
                "request_names": device.request_names,
                "pool_name": device.pool_name,
                "device_name": device.device_name,
                "cdi_device_ids": device.cdi_device_ids,
            }
            if device.share_id is not None and messages is dra_v1_pb2:  # v1beta1 has no shares
                fields["share_id"] = device.share_id
            entry.devices.add(**fields)
    return response


def _unprepare_response(messages: ModuleType, outcomes: Mapping[str, Failed | None]) -> Message:
    response: Message = messages.NodeUnprepareResourcesResponse()
    for uid, failed in outcomes.items():
        entry = response.claims[uid]  # type: ignore[attr-defined]  # one of two generated classes
        if failed is None:
            entry.SetInParent()
        else:
            entry.error = _message(failed)
    return response


def _message(failed: Failed) -> str:
    """Never empty: an empty message would mean success."""
    return failed.message[:MAX_MESSAGE_CHARACTERS] or UNEXPECTED


def _listed(claims: Sequence[ClaimReference]) -> str:
    names = [str(claim) for claim in claims[:10]]
    if len(claims) > len(names):
        names.append(f"{len(claims) - len(names)} more")
    return ", ".join(names)
