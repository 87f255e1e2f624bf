"""Server reflection that knows methods too, as the SDK's does.

`grpcurl describe package.Service.Method` asks for the file of a method; the pool of Python's
protobuf finds those of services and messages alone. The SDK is not imported for it: that would take
the host's start a tenth of a second.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection


class _PoolWithMethods:
    """The default pool, in which a method is found where its service is."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - gRPC calls it
        """Return the file that a symbol is declared in.

        Raises:
            KeyError: No file declares it.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            # Raises what the first look raised where this is no service, or has no such method.
            found = self._pool.FindServiceByName(service).methods_by_name[method]
            return found.containing_service.file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def serve_reflection(services: Iterable[str], server: Any) -> None:
    """Adds reflection to a server.

    Args:
        services: Full names of the services that it tells of, beside its own.
        server: A server of grpc.aio, or what takes handlers as one does.
    """
    pool: Any = _PoolWithMethods()
    reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server, pool)
