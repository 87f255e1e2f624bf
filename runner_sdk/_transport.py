"""How the SDK speaks gRPC: options of servers and channels, and the channels to hosts."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from runner_sdk._listen import is_private
from runner_sdk._tls import Fresh

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
    """The channels to hosts, one for each address, opened when first needed, and their calls.

    Args:
        credentials: What channels over TCP trust and show; None: they have no TLS.
    """

    def __init__(self, credentials: Fresh[grpc.ChannelCredentials] | None = None) -> None:
        self._credentials = credentials
        self._version = credentials.version if credentials else 0
        self._channels: dict[str, aio.Channel] = {}
        self._calls: dict[tuple[str, str], Any] = {}
        self._retired: list[aio.Channel] = []
        self._closing: set[asyncio.Task[None]] = set()

    def to(self, address: str) -> aio.Channel:
        """Returns the channel to a host."""
        self._renew()
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open(address, channel_options(address))
        return channel

    def open(self, address: str, options: Options) -> aio.Channel:
        """Opens a channel that is the caller's own, to be closed by the caller."""
        self._renew()
        return self._open(address, [*channel_options(address), *options])

    def _open(self, address: str, options: Options) -> aio.Channel:
        if self._credentials is not None and not address.startswith("unix:"):
            return aio.secure_channel(address, self._credentials.value, options=options)
        return aio.insecure_channel(address, options=options)

    def are_private(self, address: str) -> bool:
        """Returns whether nobody can listen in on the channel to an address."""
        return self._credentials is not None or is_private(address)

    def _renew(self) -> None:
        """Opens new channels from now on, when what they are opened with has changed.

        What is under way on the old ones goes on: they are closed with all others, or when the
        certificates change once more.
        """
        if self._credentials is None:
            return
        self._credentials.look()
        if self._credentials.version == self._version:
            return
        self._version = self._credentials.version
        for channel in self._retired:
            closing = asyncio.create_task(channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._retired = list(self._channels.values())
        self._channels.clear()
        self._calls.clear()

    def call(self, address: str, method: MethodDescriptor) -> Any:
        """Returns what makes calls of one method at an address."""
        self._renew()
        key = (address, method.full_name)
        call = self._calls.get(key)
        if call is None:
            channel = self.to(address)
            make: Any = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, False): channel.stream_unary,
                (True, True): channel.stream_stream,
            }[method.client_streaming, method.server_streaming]
            response = message_factory.GetMessageClass(method.output_type)
            call = self._calls[key] = make(
                f"/{method.containing_service.full_name}/{method.name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=response.FromString,
            )
        return call

    async def close(self) -> None:
        """Closes all channels; calls under way on them fail."""
        self._calls.clear()
        channels = [*self._channels.values(), *self._retired]
        self._channels, self._retired = {}, []
        for channel in channels:
            await channel.close()
