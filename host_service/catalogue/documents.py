"""Objects of the catalogue as the JSON documents that are stored, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stores.records import CatalogueItem, CatalogueKind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The store has columns for these; what is stored comes from the catalogue.
_APART = frozenset({"id", "enabled", "revision", "origin"})


class Catalogued(Protocol):
    """Something that operators keep, stored as an item of the catalogue."""

    KIND: ClassVar[CatalogueKind]

    @property
    def id(self) -> str:
        """What it is named by, unique within its kind."""

    @property
    def enabled(self) -> bool:
        """Whether it may be used."""

    def to_document(self) -> str:
        """Return the JSON text that is stored."""


def write_document(thing: DataclassInstance) -> str:
    """Return the document of a dataclass whose values are plain, tuples of such, or `None`."""
    document = {
        entry.name: getattr(thing, entry.name)
        for entry in fields(thing)
        if entry.name not in _APART
    }
    return json.dumps(document, ensure_ascii=False, sort_keys=True)


def read_document(make: type[DataclassInstance], item: CatalogueItem) -> dict[str, Any]:
    """Return what an item says of a dataclass, by attribute; later ones are left out."""
    values: Mapping[str, Any] = json.loads(item.document)
    known = {entry.name for entry in fields(make)} - _APART
    chosen = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name in known
    }
    return {**chosen, "id": item.id, "enabled": item.enabled, "revision": item.revision}


def item_of(thing: Catalogued) -> CatalogueItem:
    """Return the item that is stored for a thing."""
    return CatalogueItem(
        kind=thing.KIND, id=thing.id, document=thing.to_document(), enabled=thing.enabled
    )
