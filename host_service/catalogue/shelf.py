"""What the catalogue holds at one moment. Never changed: a change makes another shelf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from host_service.authorization.policy import WorkspacePolicy
from host_service.catalogue.documents import Catalogued
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.catalogue.tool_server import SEPARATOR, ToolServer
from stores.records import CatalogueItem, CatalogueKind


# Told apart by identity: it is made once for each change.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shelf:
    """Models, tool servers, knowledge bases, policies and what is set for plugins, by id.

    Disabled ones are among them.
    """

    models: Mapping[str, Model] = field(default_factory=dict)
    tool_servers: Mapping[str, ToolServer] = field(default_factory=dict)
    knowledge_bases: Mapping[str, KnowledgeBase] = field(default_factory=dict)
    policies: Mapping[str, WorkspacePolicy] = field(default_factory=dict)
    plugins: Mapping[str, PluginSettings] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[CatalogueItem]) -> Shelf:
        """Return what these items are."""
        by_kind: dict[CatalogueKind, list[CatalogueItem]] = {kind: [] for kind in CatalogueKind}
        for item in items:
            by_kind[item.kind].append(item)
        return cls(
            models=MappingProxyType(
                {item.id: Model.from_item(item) for item in by_kind[CatalogueKind.MODEL]}
            ),
            tool_servers=MappingProxyType(
                {item.id: ToolServer.from_item(item) for item in by_kind[CatalogueKind.TOOL_SERVER]}
            ),
            knowledge_bases=MappingProxyType(
                {
                    item.id: KnowledgeBase.from_item(item)
                    for item in by_kind[CatalogueKind.KNOWLEDGE_BASE]
                }
            ),
            policies=MappingProxyType(
                {item.id: WorkspacePolicy.from_item(item) for item in by_kind[CatalogueKind.POLICY]}
            ),
            plugins=MappingProxyType(
                {item.id: PluginSettings.from_item(item) for item in by_kind[CatalogueKind.PLUGIN]}
            ),
        )

    def with_models(self, models: Iterable[Model]) -> Shelf:
        """Return this shelf with further models, which are in the place of those of their ids."""
        added = {each.id: each for each in models}
        return replace(self, models=MappingProxyType({**self.models, **added})) if added else self

    def things(self) -> Iterator[Catalogued]:
        """Yield everything on it."""
        yield from self.models.values()
        yield from self.tool_servers.values()
        yield from self.knowledge_bases.values()
        yield from self.policies.values()
        yield from self.plugins.values()

    def get(self, kind: CatalogueKind, id: str) -> Catalogued | None:
        """Return something by its kind and id, disabled or not, or None."""
        things: Mapping[CatalogueKind, Mapping[str, Catalogued]] = {
            CatalogueKind.MODEL: self.models,
            CatalogueKind.TOOL_SERVER: self.tool_servers,
            CatalogueKind.KNOWLEDGE_BASE: self.knowledge_bases,
            CatalogueKind.POLICY: self.policies,
            CatalogueKind.PLUGIN: self.plugins,
        }
        return things.get(kind, {}).get(id)

    def model(self, model_id: str) -> Model | None:
        """Return a model that may be used, or None."""
        found = self.models.get(model_id)
        return found if found is not None and found.enabled else None

    def knowledge_base(self, knowledge_base_id: str) -> KnowledgeBase | None:
        """Return a knowledge base that may be used, or None."""
        found = self.knowledge_bases.get(knowledge_base_id)
        return found if found is not None and found.enabled else None

    def server_of(self, tool_name: str) -> ToolServer | None:
        """Return the tool server whose tool has this full name and may be used, or None."""
        found = self.tool_servers.get(tool_name.partition(SEPARATOR)[0])
        if found is None or not found.enabled or not found.offers(tool_name):
            return None
        return found
