"""Runners at addresses that an operator named: somebody else runs them, this host dials them."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from host_service.certificates.dialling import ClientCertificates
from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import DialDefaults, DialFiles
from host_service.certificates.watched import keep_watched
from host_service.registry.address import parse_address
from host_service.registry.errors import (
    AddressInvalid,
    HandshakeFailed,
    PluginIncompatible,
    PluginRefused,
)
from host_service.registry.instance import Instance
from host_service.registry.names import DnsName, NameFollower, Resolve, look_up, parse_dns_name
from host_service.registry.records import FoundBy, InstanceState
from host_service.registry.registry import Registry

_log = logging.getLogger("runmesh.registry")

# A process that comes up is noticed within two seconds: connecting once a second costs next to
# nothing.
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.5
# One that answers wrongly is asked again all the same: it may be replaced by a right one.
_REFUSED_PAUSE_SECONDS = 5.0


class StaticRunners:
    """Dials addresses and keeps their instances in the registry, until it is closed.

    Args:
        registry: Where the instances are listed.
        insecure: Whether addresses that others can listen in on may be dialled without encryption.
        tls: What connections trust and show where their address says nothing of it.
        handshake_timeout_seconds: How long one try may take.
        resolve: Looks names up.
        look_seconds: How often names are looked up.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        insecure: bool = False,
        tls: DialDefaults | None = None,
        handshake_timeout_seconds: float = 15.0,
        resolve: Resolve = look_up,
        look_seconds: float = 5.0,
    ) -> None:
        self._registry = registry
        self._insecure = insecure
        self._tls = tls or DialDefaults()
        self._certificates: dict[DialFiles, ClientCertificates] = {}
        self._timeout_seconds = handshake_timeout_seconds
        self._resolve = resolve
        self._look_seconds = look_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, plugin_id: str, address: str) -> None:
        """Starts to dial a runner; returns at once, and never gives up.

        Args:
            plugin_id: `author/name`; a process that names another is refused.
            address: `unix:/path`, `host:port` or `dns:///name:port`; `?` and what TLS needs may
                follow. Each address that a name has becomes an instance of its own.

        Raises:
            AddressInvalid: The address cannot be dialled, or not without encryption; or what TLS
                needs cannot be used.
        """
        try:
            place, files = self._tls.split(address)
            certificates = self._certificates_of(files) if files else None
        except (ValueError, CertificateUnusable) as error:
            raise AddressInvalid(f"runner {plugin_id} at {address}: {error}") from error
        if place.startswith("dns:"):
            name = parse_dns_name(place)
            self._require_private(
                plugin_id, address, private=name.private, certificates=certificates
            )
            self._follow(plugin_id, name, certificates)
            return
        parsed = parse_address(place)
        self._require_private(plugin_id, address, private=parsed.private, certificates=certificates)
        site = _Site(plugin_id, parsed.target, FoundBy.STATIC, certificates)
        self._begin(self._keep(site, asyncio.Event(), _nothing), f"dial {plugin_id}")

    def _require_private(
        self,
        plugin_id: str,
        address: str,
        *,
        private: bool,
        certificates: ClientCertificates | None,
    ) -> None:
        if not (private or certificates or self._insecure):
            raise AddressInvalid(
                f"runner {plugin_id} at {address}: without TLS only unix sockets and loopback "
                "addresses are dialled, unless the host is told to run insecurely"
            )

    def _follow(
        self, plugin_id: str, name: DnsName, certificates: ClientCertificates | None
    ) -> None:
        async def keep(address: str, gone: asyncio.Event, on_loss: Callable[[], None]) -> None:
            # Certificates are for the name: nobody has one for an address that changes.
            site = _Site(plugin_id, address, FoundBy.DNS, certificates, name.host)
            await self._keep(site, gone, on_loss)

        absent = _Absent(self._registry, plugin_id, name.target)
        follower = NameFollower(
            name,
            resolve=self._resolve,
            keep=keep,
            note=absent.note,
            look_seconds=self._look_seconds,
        )

        async def follow() -> None:
            try:
                await follower.follow()
            finally:
                absent.note(None)

        self._begin(follow(), f"follow {name.target}")

    async def close(self) -> None:
        """Stops dialling and takes the instances off the list."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _certificates_of(self, files: DialFiles) -> ClientCertificates:
        certificates = self._certificates.get(files)
        if certificates is None:
            certificates = self._certificates[files] = ClientCertificates(files)
            self._begin(keep_watched(certificates.watched), f"watch {files.ca}")
        return certificates

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, site: "_Site", gone: asyncio.Event, on_loss: Callable[[], None]) -> None:
        """Keeps an instance at an address until that is gone, and tells whenever it is lost."""
        restarts = 0
        while not gone.is_set():
            instance = self._registry.add(
                plugin_id=site.plugin_id,
                found_by=site.found_by,
                address=site.target,
                restarts=restarts,
                credentials=site.certificates.watched.value if site.certificates else None,
                tls_name=site.tls_name,
            )
            try:
                reason = await self._stay(instance, site.certificates, gone)
            except asyncio.CancelledError:
                self._registry.remove(instance)
                raise
            if instance.lost.is_set():
                self._registry.remove(instance)
            else:
                # What runs on the old connection may finish there; the new one is dialled
                # meanwhile.
                self._registry.drain(instance, reason)
                self._begin(self._remove_when_idle(instance), f"remove {site.plugin_id}")
            restarts += 1
            on_loss()

    async def _stay(
        self, instance: Instance, certificates: ClientCertificates | None, gone: asyncio.Event
    ) -> str:
        """Dials, and returns why the connection is not to be used any more."""
        served = asyncio.create_task(self._serve(instance))
        left = asyncio.create_task(gone.wait())
        waiting: set[asyncio.Task[Any]] = {served, left}
        if certificates is not None:
            watched = certificates.watched
            waiting.add(asyncio.create_task(watched.changed(since=watched.version)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                return "its address is no longer one of its name's"
            if not served.done():
                return "the certificates for it changed"
            served.result()
            return "its connection was closed"
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _serve(self, instance: Instance) -> None:
        await self._dial(instance)
        await _disconnected(instance)

    async def _dial(self, instance: Instance) -> None:
        """Tries until the instance serves."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._registry.bring_up(instance, timeout_seconds=self._timeout_seconds)
                return
            except HandshakeFailed as error:
                state = _STATES.get(type(error), InstanceState.UNHEALTHY)
                self._registry.mark(instance, state, str(error))
            refused = instance.state is not InstanceState.UNHEALTHY
            await asyncio.sleep(_REFUSED_PAUSE_SECONDS if refused else _jittered(pause_seconds))
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    async def _remove_when_idle(self, instance: Instance) -> None:
        try:
            await instance.idle.wait()
        finally:
            self._registry.remove(instance)


@dataclass(frozen=True, slots=True)
class _Site:
    """Where an instance is dialled.

    Attributes:
        plugin_id: The plugin it must be.
        target: The gRPC target.
        found_by: How the address was found.
        certificates: What TLS needs; None: there is none.
        name: What its certificate is for when nothing else is said; empty: the target.
    """

    plugin_id: str
    target: str
    found_by: FoundBy
    certificates: ClientCertificates | None
    name: str = ""

    @property
    def tls_name(self) -> str:
        """What the certificate there must be for; empty: the target."""
        return (self.certificates.files.name or self.name) if self.certificates else ""


class _Absent:
    """Lists a name of which no address is known, with why."""

    def __init__(self, registry: Registry, plugin_id: str, target: str) -> None:
        self._registry = registry
        self._plugin_id = plugin_id
        self._target = target
        self._listed: Instance | None = None

    def note(self, reason: str | None) -> None:
        """There is no address, or (None) there is one."""
        if reason is None:
            if self._listed is not None:
                self._registry.remove(self._listed)
                self._listed = None
            return
        if self._listed is None:
            self._listed = self._registry.add(
                plugin_id=self._plugin_id, found_by=FoundBy.DNS, address=self._target
            )
        self._registry.mark(self._listed, InstanceState.UNHEALTHY, reason)


_STATES = {
    PluginRefused: InstanceState.REFUSED,
    PluginIncompatible: InstanceState.INCOMPATIBLE,
}


def _nothing() -> None:
    """What is done when nobody follows."""


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - it spreads load, it guards nothing


async def _disconnected(instance: Instance) -> None:
    """Returns when the connection of the handshake is gone: the next may reach another process."""
    unreachable = asyncio.create_task(instance.unreachable.wait())
    left = asyncio.create_task(
        instance.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
    )
    try:
        await asyncio.wait({unreachable, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        unreachable.cancel()
        left.cancel()
        await asyncio.gather(unreachable, left, return_exceptions=True)
