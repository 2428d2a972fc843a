"""The kubelet's side of the plugin protocols, for tests: message classes built from a table, and calls over a socket.

Given a Unix socket and plain values, calls `v1.DRAPlugin` and `v1beta1.DevicePlugin` as the kubelet does. Field
numbers are those of the published protocols. Shares nothing with the node agent's own messages, so that a wrong
field number there cannot hide itself here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

DRA: Final = "k8s.io.kubelet.pkg.apis.dra.v1"
DEVICE_PLUGIN: Final = "v1beta1"
CALL_SECONDS: Final = 120.0  # the kubelet waits 45 s; a busy machine gets more

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}

# message -> fields in the order of their numbers, which begin at 1. A type in [] is repeated, one in {} is the value
# type of a map from strings, and the name of another message stands for that message.
_DRA_MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "Claim": {"namespace": "string", "uid": "string", "name": "string"},
    "Device": {
        "request_names": "[string]",
        "pool_name": "string",
        "device_name": "string",
        "cdi_device_ids": "[string]",
        "share_id": "string",
    },
    "NodePrepareResourcesRequest": {"claims": "[Claim]"},
    "NodePrepareResourceResponse": {"devices": "[Device]", "error": "string"},
    "NodePrepareResourcesResponse": {"claims": "{NodePrepareResourceResponse}"},
    "NodeUnprepareResourcesRequest": {"claims": "[Claim]"},
    "NodeUnprepareResourceResponse": {"error": "string"},
    "NodeUnprepareResourcesResponse": {"claims": "{NodeUnprepareResourceResponse}"},
}
_DEVICE_PLUGIN_MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {
        "pre_start_required": "bool",
        "get_preferred_allocation_available": "bool",
    },
    "NUMANode": {"ID": "int64"},
    "TopologyInfo": {"nodes": "[NUMANode]"},
    "Device": {"ID": "string", "health": "string", "topology": "TopologyInfo"},
    "ListAndWatchResponse": {"devices": "[Device]"},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": "[string]",
        "must_include_deviceIDs": "[string]",
        "allocation_size": "int32",
    },
    "PreferredAllocationRequest": {"container_requests": "[ContainerPreferredAllocationRequest]"},
    "ContainerPreferredAllocationResponse": {"deviceIDs": "[string]"},
    "PreferredAllocationResponse": {
        "container_responses": "[ContainerPreferredAllocationResponse]"
    },
    "ContainerAllocateRequest": {"devices_ids": "[string]"},
    "AllocateRequest": {"container_requests": "[ContainerAllocateRequest]"},
    "Mount": {"container_path": "string", "host_path": "string", "read_only": "bool"},
    "DeviceSpec": {"container_path": "string", "host_path": "string", "permissions": "string"},
    "CDIDevice": {"name": "string"},
    "ContainerAllocateResponse": {
        "envs": "{string}",
        "mounts": "[Mount]",
        "devices": "[DeviceSpec]",
        "annotations": "{string}",
        "cdi_devices": "[CDIDevice]",
    },
    "AllocateResponse": {"container_responses": "[ContainerAllocateResponse]"},
}


class Socket:
    """A connection to one plugin. `close` ends it."""

    def __init__(self, path: Path, package: str, service: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}")
        self._package = package
        self._service = service

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def call(self, method: str, request: message.Message, answer: str) -> Any:
        """The answer of a call with one request and one answer. Raises grpc.RpcError."""
        remote = self._channel.unary_unary(
            self._path(method),
            request_serializer=type(request).SerializeToString,
            response_deserializer=self._class(answer).FromString,
        )
        return remote(request, timeout=CALL_SECONDS, wait_for_ready=True)

    def stream(self, method: str, request: message.Message, answer: str) -> Iterator[Any]:
        """The answers of a call that goes on until it is cancelled, the plugin ends, or too long."""
        remote = self._channel.unary_stream(
            self._path(method),
            request_serializer=type(request).SerializeToString,
            response_deserializer=self._class(answer).FromString,
        )
        return remote(request, timeout=CALL_SECONDS, wait_for_ready=True)

    def _path(self, method: str) -> str:
        return f"/{self._package}.{self._service}/{method}"

    def _class(self, name: str) -> type[message.Message]:
        return message_class(self._package, name)


def message_class(package: str, name: str) -> type[Any]:
    """The class of a message, such as `Claim` of the DRA protocol."""
    descriptor = _POOL.FindMessageTypeByName(f"{package}.{name}")
    return message_factory.GetMessageClass(descriptor)


def _file(package: str, messages: Mapping[str, Mapping[str, str]]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        declared = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            _add_field(declared, f".{package}.{name}", field, number=number, kind=kind)
            _qualify(declared.field[-1], package)
    return file


def _add_field(declared: Any, scope: str, name: str, *, number: int, kind: str) -> None:
    label = _Field.LABEL_REPEATED if kind[0] in "[{" else _Field.LABEL_OPTIONAL
    field = declared.field.add(name=name, number=number, label=label)
    plain = kind.strip("[]{}")
    if kind.startswith("{"):
        entry = declared.nested_type.add(name=_entry_name(name))
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        _set_type(value, plain)
        _qualify(value, scope.rpartition(".")[0].lstrip("."))
        _set_type(field, f"{scope}.{entry.name}")
    else:
        _set_type(field, plain)


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = kind


def _qualify(field: Any, package: str) -> None:
    """A message named without its package is of the same package."""
    if field.type_name and not field.type_name.startswith("."):
        field.type_name = f".{package}.{field.type_name}"


def _entry_name(field: str) -> str:
    """What protobuf requires of the message behind a map field: claims has ClaimsEntry."""
    words = field.split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Entry"


_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_file(DRA, _DRA_MESSAGES))
_POOL.Add(_file(DEVICE_PLUGIN, _DEVICE_PLUGIN_MESSAGES))
