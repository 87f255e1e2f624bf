"""Any RPC of the contract, called by its description."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from tests.integration.host.calls import Metadata


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC.

    Attributes:
        method: Its description.
    """

    method: MethodDescriptor

    def __str__(self) -> str:
        return self.method.name

    async def call(self, channel: grpc.aio.Channel, metadata: Metadata, **fields: Any) -> Any:
        """Calls it, with a request of these fields if it takes one; returns its first response."""
        method = self.method
        request_type: Any = message_factory.GetMessageClass(method.input_type)
        response_type: Any = message_factory.GetMessageClass(method.output_type)
        kinds = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, False): channel.stream_unary,
            (True, True): channel.stream_stream,
        }
        opened: Any = kinds[method.client_streaming, method.server_streaming](
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=response_type.FromString,
        )
        # A stream of requests is left empty: one that is refused early could not be written to.
        request = [] if method.client_streaming else request_type(**fields)
        call = opened(request, metadata=metadata)
        return await (call.read() if method.server_streaming else call)


def rpcs_of(service: ServiceDescriptor) -> Iterator[Rpc]:
    """All RPCs of a service."""
    for method in service.methods:
        yield Rpc(method)
