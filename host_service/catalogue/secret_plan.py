"""What declared secrets change of those that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from host_service.agents.changes import SECRET_JSON, Field
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.catalogue.tool_server import ToolServer
from host_service.errors import FieldFault
from stores.errors import SecretUnreadable
from stores.secrets import SecretChange, SecretOwner, Secrets

# Where a secret is declared that is named by `PLACE.NAME`.
_PLACES = {"env": "command.env", "headers": "http.headers", "secrets": "secrets"}


class SecretPlan:
    """What declared secrets change.

    Args:
        secrets: Those that are stored.

    Attributes:
        changes: Secrets to be stored or deleted.
        faults: What will not do.
    """

    def __init__(self, secrets: Secrets) -> None:
        self.changes: list[SecretChange] = []
        self.faults: list[FieldFault] = []
        self._secrets = secrets
        self._fields: dict[SecretOwner, list[Field]] = {}

    def fields(self, kind: str, id: str) -> Sequence[Field]:
        """Return which secrets of an object differ; none of them shows its value."""
        return self._fields.get(SecretOwner(kind, id), ())

    async def add(
        self, holders: Mapping[str, ToolServer | PluginSettings], given: Sequence[SecretChange]
    ) -> SecretPlan:
        """Plan what is declared.

        Args:
            holders: Tool servers and settings of plugins by where they are declared: their
                documents name their secrets.
            given: Secrets that are given or taken away.
        """
        for change in given:
            await self._add_change(change)
        for path, holder in holders.items():
            await self._add_holder(path, holder, given)
        return self

    async def _add_holder(
        self, path: str, holder: ToolServer | PluginSettings, given: Sequence[SecretChange]
    ) -> None:
        owner = SecretOwner(holder.KIND, holder.id)
        wanted, stored = holder.secret_names(), await self._secrets.names(owner)
        for name in sorted(set(stored) - set(wanted)):
            self._note(SecretChange(owner, name, None), stored=True)
        having = {*stored, *(each.name for each in given if each.owner == owner)}
        for name in wanted:
            if name not in having:
                place, _, entry = name.partition(".")
                self.faults.append(
                    FieldFault(
                        f"{path}.{_PLACES[place]}", f"a value for {entry!r}: none is stored", "none"
                    )
                )

    async def _add_change(self, change: SecretChange) -> None:
        stored = change.name in await self._secrets.names(change.owner)
        if change.secret is None:
            if stored:
                self._note(change, stored=True)
            return
        try:
            before = await self._secrets.get(change.owner, change.name)
        except SecretUnreadable:
            # Nobody can use it as it is: what is given now is in its place.
            before = None
        if before != change.secret:
            self._note(change, stored=stored)

    def _note(self, change: SecretChange, *, stored: bool) -> None:
        self.changes.append(change)
        before = SECRET_JSON if stored else None
        after = None if change.secret is None else SECRET_JSON
        self._fields.setdefault(change.owner, []).append((change.name, before, after))
