"""Names that stand for many replicas of a runner: each address is kept, as long as the name has it.

`NameFollower` looks the name up again and again, and sooner when a replica was lost:

    name --look-up--> addresses --one task each--> keep an instance there
                          |
                          +-- no longer there: its instance finishes what it has, and goes
"""

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from host_service.registry.errors import AddressInvalid

_log = logging.getLogger("runmesh.registry")

_FORM = re.compile(r"dns:(?://(?P<server>[^/]*)/)?(?P<host>[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")

# A replica that comes or goes is noticed within this time.
_LOOK_SECONDS = 5.0
# A replica that is lost may have moved: the name is asked at once, but not in a storm.
_LEAST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DnsName:
    """A name and the port at each of its addresses.

    Attributes:
        host: The name.
        port: The port.
    """

    host: str
    port: int

    @property
    def private(self) -> bool:
        """Whether only this machine can have the name."""
        return self.host == "localhost"

    @property
    def target(self) -> str:
        """The name as it is listed."""
        return f"dns:///{self.host}:{self.port}"


Resolve = Callable[[DnsName], Awaitable[frozenset[str]]]


def parse_dns_name(text: str) -> DnsName:
    """Reads `dns:///name:port`.

    Raises:
        AddressInvalid: The text is something else, or names a server of its own.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise AddressInvalid(f"address {text!r} is not dns:///name:port with a port up to 65535")
    if match["server"]:
        raise AddressInvalid(
            f"address {text!r} names a DNS server: names are looked up as this machine looks them "
            f"up, write dns:///{match['host']}:{match['port']}"
        )
    return DnsName(match["host"], int(match["port"]))


async def look_up(name: DnsName) -> frozenset[str]:
    """Returns the addresses of a name as this machine looks it up, as gRPC targets.

    Raises:
        OSError: It could not be looked up, or has none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    return frozenset(_target(place[0], name.port) for *_, place in found if "%" not in str(place))


def _target(address: str | int, port: int) -> str:
    ip = ipaddress.ip_address(address)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


class NameFollower:
    """Keeps an instance at each address of a name.

    Args:
        name: The name.
        resolve: Looks it up.
        keep: Keeps an instance at an address until the event is set, and then lets it finish; calls
            the function whenever the instance is lost.
        note: Is told why there is no address; with None, that there are some.
        look_seconds: How often the name is looked up.
    """

    def __init__(
        self,
        name: DnsName,
        *,
        resolve: Resolve,
        keep: Callable[[str, asyncio.Event, Callable[[], None]], Coroutine[Any, Any, None]],
        note: Callable[[str | None], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._name = name
        self._resolve = resolve
        self._keep = keep
        self._note = note
        self._look_seconds = look_seconds
        self._lost = asyncio.Event()
        self._kept: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self) -> None:
        """Follows the name until it is cancelled; then its instances are gone at once."""
        try:
            while True:
                await self._look()
                self._lost.clear()
                await asyncio.sleep(min(_LEAST_PAUSE_SECONDS, self._look_seconds))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_seconds - _LEAST_PAUSE_SECONDS):
                        await self._lost.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self) -> None:
        try:
            addresses = await self._resolve(self._name)
        except OSError as error:
            # A server of names that is away for a while costs nothing that is there.
            if not self._kept:
                self._note(f"its name could not be looked up: {error.strerror or error}")
            return
        self._note(None if addresses else "its name has no address")
        for address in self._kept.keys() - addresses:
            _log.info("%s is no longer at %s", self._name.target, address)
            self._kept.pop(address).set()
        for address in sorted(addresses - self._kept.keys()):
            self._begin(address)

    def _begin(self, address: str) -> None:
        gone = self._kept[address] = asyncio.Event()
        task = asyncio.create_task(
            self._keep(address, gone, self._lost.set), name=f"dial {self._name.target} at {address}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
