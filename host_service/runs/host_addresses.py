"""Where runs reach their host: what is handed to a runner as `host_access.address`."""

from __future__ import annotations

from dataclasses import dataclass

from host_service.registry.address import is_loopback_target
from host_service.registry.instance import Instance
from host_service.registry.records import FoundBy


@dataclass(frozen=True, slots=True, kw_only=True)
class HostApiAddresses:
    """Where HostAPIService is served.

    Attributes:
        socket: For processes of this machine, `unix:/path`.
        advertised: For those of others, `HOST:PORT`; empty: they do not reach it.
        is_chosen: Whether an operator chose `advertised`: then it is for every runner that is
            dialled over TCP, since one on loopback may be a forwarded port.
    """

    socket: str
    advertised: str = ""
    is_chosen: bool = False

    def for_instance(self, instance: Instance) -> str:
        """Return the address for the runs of an instance."""
        if instance.found_by is FoundBy.ATTACHED:
            return instance.host_address
        if instance.address.startswith("unix:"):
            return self.socket
        if is_loopback_target(instance.address) and not self.is_chosen:
            return self.socket
        return self.advertised
