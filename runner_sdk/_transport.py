"""How the SDK speaks gRPC: options of servers and channels, and the channels to hosts."""

from collections.abc import Sequence

import grpc
from grpc import aio

MESSAGE_BYTES = 16 * 1024 * 1024
"""The transport's limit. The contract's own limits lie below it, so that ours answer first."""

Options = Sequence[tuple[str, int | str]]

_LIMITS: Options = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)


def server_options() -> Options:
    """Returns the options of a runner's server."""
    return (
        *_LIMITS,
        # Two processes on one port would share its calls without knowing of each other.
        ("grpc.so_reuseport", 0),
        # A host may ping a quiet stream as often as it likes: a model can think for minutes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    )


def channel_options(address: str) -> Options:
    """Returns the options of a channel to an address."""
    options: list[tuple[str, int | str]] = [
        *_LIMITS,
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if address.startswith("unix:"):
        # Without it the path is the authority, and servers refuse its characters.
        options.append(("grpc.default_authority", "localhost"))
    return options


class Channels:
    """The channels to hosts, one for each address, opened when first needed."""

    def __init__(self, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._credentials = credentials
        self._channels: dict[str, aio.Channel] = {}

    def to(self, address: str) -> aio.Channel:
        """Returns the channel to a host."""
        channel = self._channels.get(address)
        if channel is None:
            options = channel_options(address)
            if self._credentials is not None:
                channel = aio.secure_channel(address, self._credentials, options=options)
            else:
                channel = aio.insecure_channel(address, options=options)
            self._channels[address] = channel
        return channel

    async def close(self) -> None:
        """Closes all channels; calls under way on them fail."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
