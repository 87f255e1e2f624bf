"""Attaches any runner to a host as `runmesh dev` does for one that only listens.

`python -m tests.integration.host.runners.relayed COMMAND...` starts the command with a socket of
its own in `RUNMESH_LISTEN` and relays between it and the host in `RUNMESH_ATTACH`, until the
command ends.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import grpc.aio

from host_service.development.relay import Relay

LARGE = [
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", 16 * 1024 * 1024),
]


async def main(command_line: list[str]) -> None:
    """Starts the command and relays."""
    host = os.environ["RUNMESH_ATTACH"]
    with tempfile.TemporaryDirectory(prefix="relay-") as folder:
        socket = Path(folder) / "runner.sock"
        command = await asyncio.create_subprocess_exec(
            *command_line, env={**os.environ, "RUNMESH_LISTEN": f"unix:{socket}"}
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, command.kill)
        async with grpc.aio.insecure_channel(host, options=LARGE) as channel:
            relay = Relay(
                host=channel,
                token=os.environ["RUNMESH_ATTACH_TOKEN"],
                host_address=host,
                socket=socket,
            )
            relaying = asyncio.create_task(relay.run())
            ending = asyncio.create_task(command.wait())
            await asyncio.wait({relaying, ending}, return_when=asyncio.FIRST_COMPLETED)
            relaying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await relaying
        if command.returncode is None:
            command.kill()
        await ending


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
