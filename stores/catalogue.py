"""The catalogue: what operators keep.

Agents and bindings, and items of further kinds that are alike: models, knowledge bases, tool
servers, plugins and policies, each a JSON document with an id.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from stores.records import (
    AgentRecord,
    ApiKeyRecord,
    Applied,
    BindingRecord,
    CatalogueItem,
    CatalogueKind,
)
from stores.secrets import SecretChange


class Catalogue(Protocol):
    """Writes and reads agents, bindings and items.

    A record that is put as it is stored already stays as it is: its revision, its time and the
    catalogue's revision do not change, so that applying a file twice changes nothing.
    """

    def put_agent(
        self, agent: AgentRecord, *, expected_revision: int | None = None
    ) -> Future[AgentRecord]:
        """Store an agent, new or changed.

        Args:
            agent: The agent; its revision and times are the store's and not looked at.
            expected_revision: The revision it must have now, 0 for none; `None` for any.

        Returns:
            The agent as it is stored, with its revision and times.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            RevisionConflict: It has another revision than expected.
        """

    def put_binding(
        self, binding: BindingRecord, *, expected_revision: int | None = None
    ) -> Future[BindingRecord]:
        """Store a binding, new or changed, as `put_agent` does.

        Raises:
            MissingReference: Its agent is not stored.
        """

    def put_item(
        self, item: CatalogueItem, *, expected_revision: int | None = None
    ) -> Future[CatalogueItem]:
        """Store an item, new or changed, as `put_agent` does.

        Raises:
            InvalidRecord: At once; a field cannot be stored, or the document is no JSON
                (`stores.json_text`).
        """

    def apply(
        self,
        agents: Sequence[AgentRecord],
        bindings: Sequence[BindingRecord],
        items: Sequence[CatalogueItem] = (),
        *,
        secrets: Sequence[SecretChange] = (),
        keys: Sequence[ApiKeyRecord] = (),
        expected_revision: int | None = None,
    ) -> Future[Applied]:
        """Store several records in one transaction: items first, then agents, then bindings.

        Args:
            agents: Agents, new or changed.
            bindings: Bindings, likewise.
            items: Items, likewise.
            secrets: Secrets to be stored or deleted with them.
            keys: API keys, each new or in place of the one with its id, whose times of making and
                last use stay.
            expected_revision: The revision that the catalogue must have now, so that nobody changed
                what the writer went by; `None` for any.

        Raises:
            InvalidRecord: At once; a field cannot be stored, or an id is given twice.
            ValueTooLarge, SecretKeyUnusable: At once, as `Secrets.put`.
            MissingReference: The agent of a binding is neither stored nor among the agents.
            AlreadyExists: The hash of a key is taken by another.
            RevisionConflict: The catalogue has another revision than expected.
        """

    def delete_agent(self, agent_id: str) -> Future[bool]:
        """Delete an agent and its secrets; False if it is not stored.

        Raises:
            StillReferenced: Bindings name it.
        """

    def delete_binding(self, binding_id: str) -> Future[bool]:
        """Delete a binding; False if it is not stored."""

    def delete_item(self, kind: CatalogueKind, id: str) -> Future[bool]:
        """Delete an item and its secrets; False if it is not stored.

        Of a knowledge base, its documents are removed in the same transaction.
        """

    async def get_agent(self, agent_id: str) -> AgentRecord | None:
        """Return an agent, or `None`."""

    async def get_binding(self, binding_id: str) -> BindingRecord | None:
        """Return a binding, or `None`."""

    async def get_item(self, kind: CatalogueKind, id: str) -> CatalogueItem | None:
        """Return an item, or `None`."""

    async def list_agents(self) -> Sequence[AgentRecord]:
        """Return all agents by id."""

    async def list_bindings(self, agent_id: str | None = None) -> Sequence[BindingRecord]:
        """Return all bindings, or those of one agent, by id."""

    async def list_items(self, kind: CatalogueKind | None = None) -> Sequence[CatalogueItem]:
        """Return all items, or those of one kind, by kind and id."""

    async def revision(self) -> int:
        """Return a number that grows with every change of the catalogue; 0 at first.

        It grows when a secret changes as well, so that who holds on to one knows to read it again.
        """
