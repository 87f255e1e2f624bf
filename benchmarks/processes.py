"""The processes that are measured: started, waited for, and ended with whoever needed them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import MappingProxyType

from benchmarks.floors.transport import open_channel

_READY_SECONDS = 60.0
_POLL_SECONDS = 0.002
_LOOK_SECONDS = 0.1
_END_SECONDS = 15.0
_LAST_LINES = 12


class ProcessFault(Exception):
    """A process ended, or never did what it should; the text has its last words."""


class Program:
    """A process of this project.

    Args:
        name: What to call it.
        process: The process.
        log: Where its output goes.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def check(self) -> None:
        """Sees that it still runs.

        Raises:
            ProcessFault: It does not.
        """
        status = self._process.poll()
        if status is not None:
            raise self.fault(f"ended with status {status}")

    def fault(self, what: str) -> ProcessFault:
        """Makes the error that says what is wrong with it."""
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
        return ProcessFault(f"{self._name} {what}: " + "\n".join(lines))

    async def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        deadline = monotonic() + _END_SECONDS
        while self._process.poll() is None:
            if monotonic() > deadline:
                self._process.kill()
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def running(name: str, *words: str, folder: Path) -> AsyncIterator[Program]:
    """Runs a Python module as a process.

    Args:
        name: What to call it; also the name of its log.
        *words: The module and its arguments.
        folder: Where its log goes.
    """
    program = _start(name, words, folder / f"{name}.log")
    try:
        yield program
    finally:
        await program.stop()


def _start(name: str, words: Sequence[str], log: Path) -> Program:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("RUNMESH_")
    }
    with log.open("ab") as output:
        # Not by asyncio, which forks: a process in which gRPC is at work must not. This uses vfork.
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
    return Program(name, process, log)


async def wait_until_served(program: Program, address: str) -> None:
    """Returns when a program serves its address, a gRPC target.

    Raises:
        ProcessFault: It ended instead, or does not serve in time.
    """
    async with open_channel(address) as channel:
        served = asyncio.ensure_future(channel.channel_ready())
        deadline = monotonic() + _READY_SECONDS
        while not served.done():
            program.check()
            if monotonic() > deadline:
                raise program.fault("did not serve in time")
            await asyncio.wait({served}, timeout=_LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A host that is ready.

    Attributes:
        program: Its process.
        address: Its unix socket, a gRPC target.
        api_key: May do everything.
    """

    program: Program
    address: str
    api_key: str


@asynccontextmanager
async def running_host(
    folder: Path,
    *,
    plugins: Path | None = None,
    runners: Sequence[str] = (),
    limits: Mapping[str, float] = MappingProxyType({}),
) -> AsyncIterator[HostProcess]:
    """Runs `runmesh up` on a data folder of its own, with the default database; waits until ready.

    Args:
        folder: Where its data and its log go.
        plugins: A folder of more plugins than those that ship.
        runners: Runners that run already, `AUTHOR/NAME=ADDRESS`.
        limits: Limits of the host that are other than usual.
    """
    data = folder / "data"
    words = ["host_service", "up", "--data", str(data)]
    words += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    words += ["--plugins", str(plugins)] if plugins else []
    for runner in runners:
        words += ["--runner", runner]
    if limits:
        config = folder / "host.yaml"
        config.write_text(json.dumps({"limits": dict(limits)}), "utf-8")
        words += ["--config", str(config)]
    async with running("host", *words, folder=folder) as program:
        told = await _wait_until_ready(program, data)
        api_key = (data / "operator.key").read_text().strip()
        yield HostProcess(program, address=told["socket"], api_key=api_key)


async def _wait_until_ready(program: Program, data: Path) -> dict[str, str]:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                program.check()
                told = _read_host_file(data / "host.json")
                if told and await _says_ready(told["http"]):
                    return told
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise program.fault("was not ready in time") from error


def _read_host_file(path: Path) -> dict[str, str] | None:
    try:
        told: dict[str, str] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return told


async def _says_ready(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except ConnectionError:
        return False
    try:
        writer.write(f"GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        status = await reader.readline()
    finally:
        writer.close()
    return b" 200 " in status


def anonymous_memory_bytes(pid: int) -> int | None:
    """Returns the memory of a process that is not of files; None where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None
