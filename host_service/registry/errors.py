"""What can go wrong between a host and the processes that serve runners.

RegistryError
├── AddressInvalid        an address nobody can dial, or that must not be dialled so
├── SlotUnavailable       an instance that takes no further run now
└── HandshakeFailed
    ├── NotAnswering      nobody there yet, or no answer in time: worth another try
    ├── PluginRefused     another plugin than expected, or answers that break the contract
    └── PluginIncompatible  no protocol version in common
"""


class RegistryError(Exception):
    """The root of what the registry raises."""


class AddressInvalid(RegistryError):
    """An address that cannot be dialled, or that must not be dialled without encryption."""


class SlotUnavailable(RegistryError):
    """An instance that is not serving, or that has as many runs as it takes."""


class HandshakeFailed(RegistryError):
    """A process that could not be made an instance; the text says why, for people."""


class NotAnswering(HandshakeFailed):
    """Nobody listens, the process is not ready, or it did not answer in time."""


class PluginRefused(HandshakeFailed):
    """A process that named another plugin than expected, or whose answers break the contract."""


class PluginIncompatible(HandshakeFailed):
    """A process that speaks no protocol version of this host."""
