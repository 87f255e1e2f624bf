"""The plugin's settings, as hosts hand them over when they shake hands."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from runmesh.v1 import discovery_pb2

from runner_sdk._json import from_json

_logger = logging.getLogger("runner_sdk.serve")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
# Whoever reaches the process may shake hands; what is kept of that has an end.
_HOSTS = 64


class HostSettings:
    """What each host handed over last. A run gets those of its own host, and no other's."""

    def __init__(self) -> None:
        self._settings: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def take(self, request: discovery_pb2.HandshakeRequest) -> None:
        """Keeps what a host hands over, in place of what it did before."""
        try:
            settings = from_json(request.settings_json) if request.settings_json else {}
        except ValueError as error:
            _logger.warning("host %s has settings that are no JSON: %s", request.host_id, error)
            return
        if not isinstance(settings, dict):
            _logger.warning("host %s has settings that are no JSON object", request.host_id)
            return
        self._settings[request.host_id] = MappingProxyType(settings)
        self._settings.move_to_end(request.host_id)
        if len(self._settings) > _HOSTS:
            self._settings.popitem(last=False)

    def of(self, host_id: str) -> Mapping[str, Any]:
        """Returns what a host handed over; nothing for one that has not."""
        return self._settings.get(host_id, _NONE)
