"""Is an instance still there? Asked with the standard health check, again and again.

A process that is busy answers late, one that is frozen not at all, one that is gone is refused by
the system. So a check may take as long as two of its time limits before the instance is called
unhealthy, and a refused connection is looked at once more before it is called lost.

A machine that lost its power, or a router that forgot a connection, tells nobody: such a connection
is silent like one to a frozen process. A second connection tells them apart, see `CutOff`.
"""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc


class Finding(enum.Enum):
    """What one look at an instance showed."""

    SERVING = "it takes runs"
    DRAINING = "its health check says NOT_SERVING"
    SILENT = "its health check is not answered"
    GONE = "nobody listens at its address any more"


_ANSWERS = frozenset({Finding.SERVING, Finding.DRAINING})


@dataclass(frozen=True, slots=True)
class HealthPace:
    """How often, and how patiently, instances are looked at.

    Attributes:
        interval_seconds: Within this time a frozen instance is noticed.
        timeout_seconds: After this time an answer is late; twice this time without an answer is
            silence.
    """

    interval_seconds: float = 5.0
    timeout_seconds: float = 2.0

    @property
    def patience_seconds(self) -> float:
        """How long one look waits for an answer."""
        return 2 * self.timeout_seconds

    @property
    def pause_seconds(self) -> float:
        """How long to wait between two looks, so that pause and patience make the interval."""
        return max(self.interval_seconds - self.patience_seconds, self.interval_seconds / 5)


_AGAIN_AFTER_SECONDS = 0.1


async def look_at(channel: grpc.aio.Channel, pace: HealthPace) -> Finding:
    """Looks at an instance once; a refused connection is tried a second time."""
    finding = await _check(channel, pace.patience_seconds)
    if finding is Finding.GONE:
        await asyncio.sleep(_AGAIN_AFTER_SECONDS)
        finding = await _check(channel, pace.patience_seconds)
    return finding


async def _check(channel: grpc.aio.Channel, timeout_seconds: float) -> Finding:
    health = health_pb2_grpc.HealthStub(channel)
    try:
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        return Finding.GONE if error.code() is grpc.StatusCode.UNAVAILABLE else Finding.SILENT
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return Finding.SERVING
    return Finding.DRAINING


# A process that does not take connections has room for some that wait: they must not use it up.
_ASK_AGAIN_SECONDS = 30.0


class CutOff:
    """Tells whether a silent connection is dead, rather than the process at its end busy or frozen.

    A process that is busy or frozen answers on a new connection as little as on the old one, while
    its system takes the connection for it. So where no connection can be made the machine is gone,
    and where a new one is answered and the old one still is not, that was cut on the way.

    Args:
        pace: How patient it is.
    """

    def __init__(self, pace: HealthPace) -> None:
        self._pace = pace
        self._asks_at = 0.0

    async def is_so(
        self, address: str, silent: grpc.aio.Channel, dial: Callable[[], grpc.aio.Channel]
    ) -> bool:
        """Returns whether the connection to an address is dead.

        Args:
            address: The gRPC target.
            silent: The connection.
            dial: Opens a new connection to it.
        """
        now = asyncio.get_running_loop().time()
        if address.startswith("unix:") or now < self._asks_at:
            return False
        if not await self._takes_connections(address):
            return True
        self._asks_at = now + _ASK_AGAIN_SECONDS
        channel = dial()
        try:
            if await _check(channel, self._pace.patience_seconds) not in _ANSWERS:
                return False
        finally:
            await channel.close()
        # It may have come back meanwhile.
        return await _check(silent, self._pace.patience_seconds) not in _ANSWERS

    async def _takes_connections(self, address: str) -> bool:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(self._pace.patience_seconds):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True
