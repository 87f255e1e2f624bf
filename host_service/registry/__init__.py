"""Which runners and instances the host knows, how they are doing, and who takes a run."""

from host_service.registry.errors import (
    AddressInvalid,
    HandshakeFailed,
    NotAnswering,
    PluginIncompatible,
    PluginRefused,
    RegistryError,
    SlotUnavailable,
)
from host_service.registry.instance import Instance
from host_service.registry.liveness import HealthPace
from host_service.registry.records import (
    FoundBy,
    HostIdentity,
    InstanceState,
    Introduction,
    ManifestFault,
    plugin_of,
)
from host_service.registry.registry import Registry
from host_service.registry.static_runners import StaticRunners

__all__ = [
    "AddressInvalid",
    "FoundBy",
    "HandshakeFailed",
    "HealthPace",
    "HostIdentity",
    "Instance",
    "InstanceState",
    "Introduction",
    "ManifestFault",
    "NotAnswering",
    "PluginIncompatible",
    "PluginRefused",
    "Registry",
    "RegistryError",
    "SlotUnavailable",
    "StaticRunners",
    "plugin_of",
]
