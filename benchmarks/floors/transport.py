"""How the floors and the callers speak gRPC: as bare as it gets, with room for large frames."""

import asyncio
import signal

import grpc

MESSAGE_BYTES = 16 * 1024 * 1024

OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.default_authority", "localhost"),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """Opens a channel to a gRPC target."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


async def serve(server: grpc.aio.Server, address: str) -> None:
    """Serves on an address until the process is told to end."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server.add_insecure_port(address)
    await server.start()
    await ended.wait()
    await server.stop(None)
