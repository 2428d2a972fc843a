"""The service Registration: introduces the driver to the kubelet, which finds its socket in the registry directory.

Given the driver's name, the service's socket and the versions it speaks. Records what the kubelet makes of it. Never
registers by itself: a kubelet that starts again looks through the directory and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from dovetail.node.kubelet import method_handlers
from dovetail.node.kubelet.wire import registration_v1_pb2 as messages

PLUGIN_TYPE: Final = "DRAPlugin"

LOG = logging.getLogger("dovetail.node.registration")


class RegistrationServer:
    """Answers the kubelet and records its verdict."""

    def __init__(self, driver: str, endpoint: Path, supported: Sequence[str]) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._supported = tuple(supported)
        self.registered = asyncio.Event()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The one version there is."""
        methods = {
            "GetInfo": method_handlers.Unary(messages.InfoRequest, self._info),
            "NotifyRegistrationStatus": method_handlers.Unary(
                messages.RegistrationStatus, self._notified
            ),
        }
        return [method_handlers.service_handler("pluginregistration.Registration", methods)]

    async def _info(self, request: Any, context: method_handlers.Context) -> Message:
        return messages.PluginInfo(
            type=PLUGIN_TYPE,
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=self._supported,
        )

    async def _notified(self, status: Any, context: method_handlers.Context) -> Message:
        if status.plugin_registered:
            self.registered.set()
            LOG.info("registration.done", extra={"driver": self._driver})
        else:
            self.registered.clear()
            LOG.error(
                "registration.refused: the kubelet tries again by itself",
                extra={"driver": self._driver, "why": status.error},
            )
        return messages.RegistrationStatusResponse()
