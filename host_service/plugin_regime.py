"""What operators set for plugins, in force: in handshakes, in the supervisor, in the registry.

::

    catalogue, secrets --reload--> PluginRegime --settings_of--> handshakes
                                        |
                                        +--what changed--> processes are replaced, others asked anew
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from host_service.agents.directory import AgentDirectory
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.registry.attachments import Attachments
from host_service.registry.registry import Registry
from host_service.supervisor.supervisor import Supervisor
from stores.errors import SecretUnreadable, StoreError
from stores.secrets import SecretOwner, Secrets

_log = logging.getLogger("runmesh.host")

_AGAIN_SECONDS = 2.0


class PluginRegime:
    """What is set for plugins now.

    Args:
        secrets: Where secret settings are.
    """

    def __init__(self, *, secrets: Secrets) -> None:
        self._secrets = secrets
        self._settings: dict[str, str] = {}
        self._disabled: frozenset[str] = frozenset()

    @property
    def disabled(self) -> frozenset[str]:
        """Ids of plugins that may not run."""
        return self._disabled

    def settings_of(self, plugin_id: str) -> str | None:
        """Return a plugin's settings as a JSON object; None where there are none."""
        return self._settings.get(plugin_id)

    async def learn(self, plugins: Mapping[str, PluginSettings]) -> frozenset[str]:
        """Take what is set for plugins from now on; return those whose settings are others."""
        settings = {}
        for plugin in plugins.values():
            text = plugin.with_secrets(await self._values(plugin))
            if text is not None:
                settings[plugin.id] = text
        before, self._settings = self._settings, settings
        self._disabled = frozenset(each.id for each in plugins.values() if not each.enabled)
        return frozenset(
            each
            for each in before.keys() | settings.keys()
            if before.get(each) != settings.get(each)
        )

    async def _values(self, plugin: PluginSettings) -> dict[str, str]:
        owner = SecretOwner(plugin.KIND, plugin.id)
        values = {}
        for name in plugin.secrets:
            try:
                secret = await self._secrets.get(owner, plugin.secret_name(name))
            except SecretUnreadable as error:
                _log.warning("%s goes without its setting %s: %s", plugin.id, name, error)
                continue
            if secret is not None:
                values[name] = secret.reveal()
        return values


async def keep_in_force(
    *,
    regime: PluginRegime,
    directory: AgentDirectory,
    changed: asyncio.Event,
    registry: Registry,
    attachments: Attachments,
    supervisor: Supervisor,
) -> None:
    """Bring what is set for plugins into force whenever it changes, until cancelled.

    Args:
        regime: What is in force.
        directory: Knows what is declared.
        changed: Set when what is declared may have changed.
        registry: Asks instances anew that others run.
        attachments: Has those attach anew that have attached.
        supervisor: Replaces processes that this host runs.
    """
    while True:
        await changed.wait()
        changed.clear()
        try:
            others = await regime.learn(directory.shelf.plugins)
        except StoreError as error:
            _log.warning("settings of plugins could not be read: %s", error)
            changed.set()
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        registry.set_disabled(regime.disabled)
        try:
            await supervisor.set_disabled(regime.disabled)
        except OSError as error:
            # It looks again by itself, and knows by now what is disabled.
            _log.warning("plugin folders could not be read: %s", error)
        for plugin_id in sorted(others):
            supervisor.restart(plugin_id)
            attachments.renew(plugin_id)
        await asyncio.gather(*map(registry.introduce_again, sorted(others)))
