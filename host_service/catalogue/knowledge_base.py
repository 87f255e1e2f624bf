"""A knowledge base: documents that runs may search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from host_service.catalogue.documents import read_document, write_document
from stores.records import CatalogueItem, CatalogueKind

DEFAULT_KIND = "documents"
DEFAULT_CHUNK_CHARACTERS = 1000
DEFAULT_OVERLAP_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBase:
    """A knowledge base.

    Attributes:
        id: What agents and calls name it by.
        name: A name to show.
        kind: What is behind it, such as `documents`.
        description: What it is about.
        embedding_model: Id of the model that its vectors come from; empty: full text only.
        chunk_characters: How long the passages are that documents are cut into.
        overlap_characters: How much of a passage the next one repeats.
        enabled: Whether it may be used.
        revision: Counts the changes; 0 before it was stored.
    """

    KIND: ClassVar[CatalogueKind] = CatalogueKind.KNOWLEDGE_BASE

    id: str
    name: str = ""
    kind: str = DEFAULT_KIND
    description: str = ""
    embedding_model: str = ""
    chunk_characters: int = DEFAULT_CHUNK_CHARACTERS
    overlap_characters: int = DEFAULT_OVERLAP_CHARACTERS
    enabled: bool = True
    revision: int = field(default=0, compare=False)

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        return write_document(self)

    @classmethod
    def from_item(cls, item: CatalogueItem) -> KnowledgeBase:
        """Return the knowledge base that an item is."""
        return cls(**read_document(cls, item))
