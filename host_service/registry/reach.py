"""How an instance is reached: dialled by the host, or over a stream that it opened itself."""

from typing import Protocol

from runmesh.v1 import run_pb2

from host_service.registry.run_stream import Living, RunStream


class Reach(Protocol):
    """The way to one instance. Runs go through it and do not know which kind it is."""

    def open_run(
        self,
        instance: Living,
        request: run_pb2.RunRequest,
        *,
        timeout_seconds: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> RunStream:
        """Give a run to the instance; returns at once.

        Args:
            instance: The instance that is reached so.
            request: The run.
            timeout_seconds: How long it may take; None: no limit.
            metadata: Trace context for the runner.
        """

    async def close(self) -> None:
        """End the connection, and what still runs on it."""
