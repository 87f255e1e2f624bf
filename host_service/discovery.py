"""DiscoveryService as the host serves it: the whole mesh."""

from __future__ import annotations

from runmesh.v1 import discovery_pb2, discovery_pb2_grpc

from host_service import wire
from host_service.interceptors import Context, refuse_missing
from host_service.registry.registry import Registry


@refuse_missing
class DiscoveryServicer(discovery_pb2_grpc.DiscoveryServiceServicer):
    """Lists what the registry knows. A host dials and is not dialled: it takes no handshake.

    Args:
        registry: Knows runners and instances.
    """

    def __init__(self, *, registry: Registry) -> None:
        self._registry = registry

    async def ListRunners(
        self, request: discovery_pb2.ListRunnersRequest, context: Context
    ) -> discovery_pb2.ListRunnersResponse:
        """List runners, instances, and what is wrong with manifests."""
        return discovery_pb2.ListRunnersResponse(
            runners=self._registry.runners(),
            instances=[wire.instance_message(each) for each in self._registry.instances()],
            faults=wire.fault_messages(self._registry.faults()),
        )
