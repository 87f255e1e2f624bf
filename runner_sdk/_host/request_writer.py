"""Writing the requests of a call whose host may refuse it in the middle."""

from typing import Any

from google.protobuf.message import Message
from grpc import aio


class RequestWriter:
    """Writes a call's requests, each when gRPC has room for it.

    A host that refuses an upload stops reading, and a write under way fails before the host's
    status is there. gRPC's own `write` then ends the call with INTERNAL, and what the host said is
    lost for good. So requests go to the core beneath it, which says only that it could not send
    them: the call's status stays the host's.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._core = call._cython_call  # noqa: SLF001 - see above; gRPC has no other way
        self._connected = False

    async def write(self, request: Message) -> bool:
        """Writes one request; returns whether the host reads on."""
        try:
            if not self._connected:
                await self._call.wait_for_connection()
                self._connected = True
            await self._core.send_serialized_message(request.SerializeToString())
        except (aio.AioRpcError, aio.InternalError):
            return False
        return True

    async def end(self) -> None:
        """Says that this was all."""
        try:
            await self._call.done_writing()
        except aio.InternalError:
            # The host has stopped reading already; why is in its status.
            return
