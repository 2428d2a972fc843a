"""Binds coroutines to gRPC methods by name, without generated service classes.

Given a service's full name and its methods with their message types. Never looks at a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.message import Message

# What each coroutine gets besides the request says nothing the agent needs: there is one client, the kubelet.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Unary(NamedTuple):
    """One request, one response."""

    request: type[Message]
    answer: Callable[[Any, Context], Awaitable[Message]]


class Streaming(NamedTuple):
    """One request, a stream of responses."""

    request: type[Message]
    answers: Callable[[Any, Context], AsyncIterator[Message]]


def service_handler(name: str, methods: Mapping[str, Unary | Streaming]) -> grpc.GenericRpcHandler:
    """Serves the methods as /name/METHOD."""
    return grpc.method_handlers_generic_handler(
        name, {method: _handler(binding) for method, binding in methods.items()}
    )


def _handler(binding: Unary | Streaming) -> grpc.RpcMethodHandler[Any, Any]:
    if isinstance(binding, Unary):
        return grpc.unary_unary_rpc_method_handler(
            binding.answer,
            request_deserializer=binding.request.FromString,
            response_serializer=_serialized,
        )
    return grpc.unary_stream_rpc_method_handler(
        binding.answers,
        request_deserializer=binding.request.FromString,
        response_serializer=_serialized,
    )


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
