"""What an operator set for a plugin: whether it may run, and what its handshakes hand over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from host_service.catalogue.documents import read_document, write_document
from stores.records import CatalogueItem, CatalogueKind

_SECRET_PREFIX = "secrets."  # noqa: S105 - a place, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """Settings of a plugin. Values of secret ones are secrets of its item.

    Attributes:
        id: The plugin, `author/name`.
        settings_json: The settings that are not secret, a JSON object.
        secrets: Names of the secret ones; the secret of each is `secrets.NAME`.
        enabled: Whether the plugin may run.
        revision: Counts the changes; 0 before it was stored.
    """

    KIND: ClassVar[CatalogueKind] = CatalogueKind.PLUGIN

    id: str
    settings_json: str = "{}"
    secrets: tuple[str, ...] = ()
    enabled: bool = True
    revision: int = field(default=0, compare=False)

    def secret_names(self) -> tuple[str, ...]:
        """Return the names of the secrets that it is used with."""
        return tuple(map(self.secret_name, self.secrets))

    @staticmethod
    def secret_name(setting: str) -> str:
        """Return the name of the secret that a setting is."""
        return f"{_SECRET_PREFIX}{setting}"

    def doubled(self) -> tuple[str, ...]:
        """Return the names of secret settings that are among the others as well."""
        return tuple(name for name in self.secrets if name in json.loads(self.settings_json))

    def with_secrets(self, values: Mapping[str, str]) -> str | None:
        """Return all settings as one JSON object, or None where there are none.

        Args:
            values: The values of secret settings, by name.
        """
        # Put together as texts, so that every number keeps its digits.
        inner = self.settings_json.strip()[1:-1].strip()
        members = [inner] if inner else []
        members += [
            f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
            for name, value in values.items()
        ]
        return f"{{{', '.join(members)}}}" if members else None

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        return write_document(self)

    @classmethod
    def from_item(cls, item: CatalogueItem) -> PluginSettings:
        """Return the settings that an item is."""
        return cls(**read_document(cls, item))
